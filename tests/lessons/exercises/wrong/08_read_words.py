import numpy as np


def factor_forgotten(E, ids):
    """the factor `sqrt(D)` is missing"""
    return E[ids] * (ids != 0)[..., None]


def times_D(E, ids):
    """the factor `sqrt(D)` is there once too often"""
    return E.shape[1] * E[ids] * (ids != 0)[..., None]


def divided(E, ids):
    """divided by `sqrt(D)` where it should be multiplied"""
    return E[ids] * (ids != 0)[..., None] / np.sqrt(E.shape[1])


def root_of_the_number_of_words(E, ids):
    """the factor is the root of V"""
    return np.sqrt(len(E)) * E[ids] * (ids != 0)[..., None]


def padding_is_read(E, ids):
    """padding has a vector"""
    return np.sqrt(E.shape[1]) * E[ids]


def table_without_padding(E, ids):
    """row ids - 1 is read"""
    return np.sqrt(E.shape[1]) * E[ids - 1] * (ids != 0)[..., None]


def normalised(E, ids):
    """each by itself; the factor is the same for all words"""
    lengths = np.linalg.norm(E[ids], axis=-1, keepdims=True)
    return np.sqrt(E.shape[1]) * E[ids] / lengths * (ids != 0)[..., None]
