import numpy as np

from exercises.lesson_01 import linear_backward as right


def the_bias_is_not_summed_over_the_batch(dy, x, W):
    """shape (2, 5), expected (5,): sum over axis 0 of yours"""
    return right(dy, x, W) | {"db": dy.sum(axis=0)}


def the_bias_is_a_mean(dy, x, W):
    """divided by 6, a mean where the sum is meant"""
    return right(dy, x, W) | {"db": rows(dy).mean(axis=0)}


def dW_is_a_mean_over_the_batch(dy, x, W):
    """divided by 3, a mean where the sum is meant"""
    gradients = right(dy, x, W)
    return gradients | {"dW": gradients["dW"] / len(x)}


def dW_is_transposed(dy, x, W):
    """shape (5, 4), expected (4, 5): transposed"""
    return right(dy, x, W) | {"dW": rows(dy).T @ rows(x)}


def the_rows_are_summed_before_the_product(dy, x, W):
    """summed over the rows each by itself"""
    return right(dy, x, W) | {"dW": rows(x).sum(axis=0)[:, None] * rows(dy).sum(axis=0)}


def dy_is_ignored(dy, x, W):
    """right only for an upstream gradient of all ones"""
    return right(np.ones_like(dy), x, W) | {"db": rows(dy).sum(axis=0)}


def dx_goes_down_the_hill(dy, x, W):
    """the sign is flipped"""
    gradients = right(dy, x, W)
    return gradients | {"dx": -gradients["dx"]}


def the_bias_gets_the_inputs(dy, x, W):
    """it is the sum of x"""
    return right(dy, x, W) | {"db": rows(x).sum(axis=0)}


def rows(x):
    return x.reshape(-1, x.shape[-1])
