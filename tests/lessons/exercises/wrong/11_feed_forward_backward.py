import numpy as np

from exercises.lesson_11 import feed_forward_backward as right


def gate(dz, dy, x, W_1, W_2, active):
    gradients = {"dz": dz, "dW_1": np.einsum("bti,btj->ij", x, dz), "db_1": dz.sum(axis=(0, 1)), "dx": dz @ W_1.T}
    return right(dy, x, W_1, W_2, active) | gradients


def never_below_zero(dy, x, W_1, W_2, active):
    """dz is wrong: the ReLU is left out on the way back"""
    return gate(dy @ W_2.T * (active >= 0), dy, x, W_1, W_2, active)


def times_the_value(dy, x, W_1, W_2, active):
    """dz is wrong: multiplied by `active` itself"""
    return gate(dy @ W_2.T * active, dy, x, W_1, W_2, active)


def relu_of_the_gradient(dy, x, W_1, W_2, active):
    """dz is wrong: a ReLU of the gradient"""
    return gate(np.maximum(0, dy @ W_2.T), dy, x, W_1, W_2, active)


def guided(dy, x, W_1, W_2, active):
    """dz is wrong: the gradient must be positive, too"""
    return gate(np.maximum(0, dy @ W_2.T) * (active > 0), dy, x, W_1, W_2, active)


def weights_past_the_gate(dy, x, W_1, W_2, active):
    """dW_1 is wrong: made with dactive"""
    return right(dy, x, W_1, W_2, active) | {"dW_1": np.einsum("bti,btj->ij", x, dy @ W_2.T)}


def input_past_the_gate(dy, x, W_1, W_2, active):
    """dx is wrong: the gate is passed by"""
    return right(dy, x, W_1, W_2, active) | {"dx": dy @ W_2.T @ W_1.T}


def bias_of_each_position(dy, x, W_1, W_2, active):
    """db_2 is wrong: shape (4, 5), expected (5,): sum over axis 0"""
    return right(dy, x, W_1, W_2, active) | {"db_2": dy.sum(axis=0)}


def mean_over_sentences(dy, x, W_1, W_2, active):
    """dW_2 is wrong: 0.3333 times what it should be: divided by 3, a mean where the sum is meant"""
    return right(dy, x, W_1, W_2, active) | {"dW_2": np.einsum("btj,btm->jm", active, dy) / len(x)}
