import numpy as np

from scratchformer.study.exercises.lesson_12 import layer_norm_backward as right


def mean_and_variance_are_taken_for_constants(dy, n, inverse_std, gamma):
    """the way through the mean, - mean(dn), is missing; the way through the variance, - n mean(dn n), is missing"""
    return right(dy, n, inverse_std, gamma) | {"dx": gamma * dy * inverse_std}


def without_the_mean(dy, n, inverse_std, gamma):
    """dx is wrong: the way through the mean, - mean(dn), is missing"""
    dn = gamma * dy
    return right(dy, n, inverse_std, gamma) | {"dx": (dn - n * mean(dn * n)) * inverse_std}


def without_the_variance(dy, n, inverse_std, gamma):
    """dx is wrong: the way through the variance, - n mean(dn n), is missing"""
    dn = gamma * dy
    return right(dy, n, inverse_std, gamma) | {"dx": (dn - mean(dn)) * inverse_std}


def the_variance_with_the_wrong_sign(dy, n, inverse_std, gamma):
    """the way through the variance, - n mean(dn n), has the wrong sign"""
    dn = gamma * dy
    return right(dy, n, inverse_std, gamma) | {"dx": (dn - mean(dn) + n * mean(dn * n)) * inverse_std}


def not_divided_by_the_standard_deviation(dy, n, inverse_std, gamma):
    """the factor 1 / sqrt(variance + eps) is missing"""
    gradients = right(dy, n, inverse_std, gamma)
    return gradients | {"dx": gradients["dx"] / inverse_std}


def gamma_outside_the_means(dy, n, inverse_std, gamma):
    """gamma multiplies at the end"""
    gradients = right(dy, n, inverse_std, gamma)
    return gradients | {"dx": right(dy, n, inverse_std, np.ones_like(gamma))["dx"] * gamma}


def gamma_left_out(dy, n, inverse_std, gamma):
    """gamma is left out"""
    return right(dy, n, inverse_std, gamma) | {"dx": right(dy, n, inverse_std, np.ones_like(gamma))["dx"]}


def dgamma_as_dbeta(dy, n, inverse_std, gamma):
    """the factor n is missing"""
    gradients = right(dy, n, inverse_std, gamma)
    return gradients | {"dgamma": gradients["dbeta"]}


def mean(x):
    return x.mean(axis=-1, keepdims=True)
