import math

import numpy as np


def table(first, count, speeds):  # speeds (D,), of each component
    angle = np.arange(first, first + count)[:, None] * speeds
    angle[:, 1::2] += math.pi / 2
    return np.sin(angle)


def twice(speeds):
    return np.repeat(speeds, 2)


def first_ignored(first, count, d_model):
    """`first` is ignored"""
    return table(0, count, twice(10000.0 ** (-np.arange(0, d_model, 2) / d_model)))


def concatenated(first, count, d_model):
    """all sines stand before all cosines"""
    angle = np.arange(first, first + count)[:, None] * 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def without_pairs(first, count, d_model):
    """the exponent is 2 c / d_model for component c"""
    return table(first, count, 10000.0 ** (-2 * np.arange(d_model) / d_model))


def upside_down(first, count, d_model):
    """the speeds are upside down"""
    return table(first, count, twice(10000.0 ** (np.arange(0, d_model, 2) / d_model)))


def degrees(first, count, d_model):
    """the angles are taken for degrees"""
    return table(first, count, np.radians(twice(10000.0 ** (-np.arange(0, d_model, 2) / d_model))))


def base_100000(first, count, d_model):
    """the base is 100000"""
    return table(first, count, twice(100000.0 ** (-np.arange(0, d_model, 2) / d_model)))


def half_the_exponent(first, count, d_model):
    """the exponent is i / d_model"""
    return table(first, count, twice(10000.0 ** (-np.arange(d_model // 2) / d_model)))


def as_tensor2tensor(first, count, d_model):
    """as in Tensor2Tensor"""
    return table(first, count, twice(10000.0 ** (-np.arange(d_model // 2) / (d_model // 2 - 1))))
