import numpy as np

from exercises.lesson_05 import scaled_scores as right


def not_scaled(q, k):
    """the factor 1 / sqrt(d_k) is missing"""
    return right(q, k) * np.sqrt(q.shape[-1])


def divided_by_d_k(q, k):
    """the factor 1 / sqrt(d_k) is there once too often"""
    return right(q, k) / np.sqrt(q.shape[-1])


def scaled_by_d_model(q, k):
    """divided by sqrt(d_model)"""
    return right(q, k) / np.sqrt(q.shape[-2])


def scaled_by_the_number_of_heads(q, k):
    """divided by the root of the number of heads"""
    return right(q, k) * np.sqrt(q.shape[-1] / q.shape[-2])


def keys_by_queries(q, k):
    """transposed"""
    return right(q, k).swapaxes(-1, -2)


def heads_last(q, k):
    """with the axes in another order"""
    return right(q, k).transpose(0, 2, 3, 1)


def one_score_for_all_heads(q, k):
    """the heads are added up"""
    return right(q, k).sum(axis=1)


def multiplied_by_the_root(q, k):
    """divided by 1 / sqrt(d_k) where it should be multiplied"""
    return right(q, k) * q.shape[-1]
