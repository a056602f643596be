import numpy as np

from exercises.lesson_05 import softmax_backward as right


def without_the_factor(dweights, weights, d_k):
    """the factor 1 / sqrt(d_k) is missing"""
    return right(dweights, weights, 1)


def the_factor_is_divided_by(dweights, weights, d_k):
    """divided by 1 / sqrt(d_k) where it should be multiplied"""
    return right(dweights, weights, 1 / d_k)


def divided_by_d_k(dweights, weights, d_k):
    """the factor 1 / sqrt(d_k) is there once too often"""
    return right(dweights, weights, d_k**2)


def element_by_element(dweights, weights, d_k):
    """each weight is treated as if it depended on its own score alone"""
    return {"dscores": weights * (1 - weights) * dweights / np.sqrt(d_k)}


def without_the_average(dweights, weights, d_k):
    """sum(weights * dweights), is missing"""
    return {"dscores": weights * dweights / np.sqrt(d_k)}


def the_average_over_the_queries(dweights, weights, d_k):
    """taken over the queries (axis -2)"""
    average = (weights * dweights).sum(axis=-2, keepdims=True)
    return {"dscores": weights * (dweights - average) / np.sqrt(d_k)}


def the_average_without_weights(dweights, weights, d_k):
    """the average counts all keys alike"""
    return {"dscores": weights * (dweights - dweights.mean(axis=-1, keepdims=True)) / np.sqrt(d_k)}


def without_the_weights(dweights, weights, d_k):
    """the factor weights is missing"""
    return {"dscores": (dweights - (weights * dweights).sum(axis=-1, keepdims=True)) / np.sqrt(d_k)}
