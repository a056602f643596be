import numpy as np


def the_right_gradient(dweights, weights):
    """that is the right gradient"""
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


def without_the_average(dweights, weights):
    """a check with ones notices"""
    return weights * dweights


def wrong_for_half_of_the_inputs(dweights, weights):
    """wrong only sometimes"""
    return the_right_gradient(dweights, weights) * (dweights.flat[0] > 0)


def a_little_wrong(dweights, weights):
    """hardly wrong"""
    return 1.0001 * the_right_gradient(dweights, weights)


def zeros(dweights, weights):
    """zeros: the lesson has that one"""
    return np.zeros_like(dweights)


def one_number(dweights, weights):
    """any check would notice"""
    return np.zeros(dweights.shape[-1])


def not_a_number(dweights, weights):
    """it holds nan or inf"""
    return np.where(dweights == 1, 0, np.nan)


def in_place(dweights, weights):
    """the argument dweights is changed in place"""
    dweights *= 0
    return dweights
