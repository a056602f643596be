import numpy as np


def average(dweights, weights):
    return (weights * dweights).sum(axis=-1, keepdims=True)


def factor_forgotten(dweights, weights, factor):
    """the factor `factor` is missing"""
    return weights * (dweights - average(dweights, weights))


def weight_in_front_forgotten(dweights, weights, factor):
    """the weight in front of the bracket is missing"""
    return factor * (dweights - average(dweights, weights))


def average_forgotten(dweights, weights, factor):
    """the weighted average of dweights (minus factor * weights * average) is missing"""
    return factor * weights * dweights


def plain_mean(dweights, weights, factor):
    """the average must be weighted"""
    return factor * weights * (dweights - dweights.mean(axis=-1, keepdims=True))


def over_queries(dweights, weights, factor):
    """the average runs over the queries"""
    return factor * weights * (dweights - (weights * dweights).sum(axis=-2, keepdims=True))


def diagonal(dweights, weights, factor):
    """only the diagonal"""
    return factor * weights * (1 - weights) * dweights


def divided_by_the_sum(dweights, weights, factor):
    """nan where a query may use no key"""
    with np.errstate(invalid="ignore"):
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return factor * weights * (dweights - average(dweights, weights))


def forbidden_let_through(dweights, weights, factor):
    """only forbidden keys are wrong"""
    right = factor * weights * (dweights - average(dweights, weights))
    return np.where(weights == 0, factor * dweights, right)
