import numpy as np

from exercises.lesson_12 import layer_norm_backward as right


def mean_and_variance_are_taken_for_constants(dy, n, s, gamma):
    """the way through the mean, - mean(dn), is missing; the way through the variance, - n mean(dn n), is missing"""
    return right(dy, n, s, gamma) | {"dx": gamma * dy / s}


def without_the_variance(dy, n, s, gamma):
    """dx is wrong: the way through the variance, - n mean(dn n), is missing"""
    dn = gamma * dy
    return right(dy, n, s, gamma) | {"dx": (dn - mean(dn)) / s}


def sums_for_means(dy, n, s, gamma):
    """sums where means are meant"""
    dn = gamma * dy
    along = (dn * n).sum(axis=-1, keepdims=True)
    return right(dy, n, s, gamma) | {"dx": (dn - dn.sum(axis=-1, keepdims=True) - n * along) / s}


def the_share_along_n_without_n(dy, n, s, gamma):
    """the last mean lacks its n"""
    dn = gamma * dy
    return right(dy, n, s, gamma) | {"dx": (dn - mean(dn) - mean(dn * n)) / s}


def divided_by_one_less(dy, n, s, gamma):
    """the last mean divides by D - 1"""
    dn = gamma * dy
    along = (dn * n).sum(axis=-1, keepdims=True) / (dn.shape[-1] - 1)
    return right(dy, n, s, gamma) | {"dx": (dn - mean(dn) - n * along) / s}


def gamma_outside_the_means(dy, n, s, gamma):
    """gamma multiplies at the end"""
    gradients = right(dy, n, s, gamma)
    return gradients | {"dx": right(dy, n, s, np.ones_like(gamma))["dx"] * gamma}


def gamma_left_out(dy, n, s, gamma):
    """gamma is left out"""
    return right(dy, n, s, gamma) | {"dx": right(dy, n, s, np.ones_like(gamma))["dx"]}


def dgamma_of_the_sums(dy, n, s, gamma):
    """dgamma is wrong: a product of sums where a sum of products is meant"""
    return right(dy, n, s, gamma) | {"dgamma": dy.sum(axis=(0, 1)) * n.mean(axis=(0, 1))}


def dbeta_from_dn(dy, n, s, gamma):
    """dbeta is wrong: made from dn = gamma dy"""
    return right(dy, n, s, gamma) | {"dbeta": (gamma * dy).sum(axis=(0, 1))}


def dy_in_the_last_mean(dy, n, s, gamma):
    """the last mean has dy where dn is meant"""
    dn = gamma * dy
    return right(dy, n, s, gamma) | {"dx": (dn - mean(dn) - n * mean(dy * n)) / s}


def mean(x):
    return x.mean(axis=-1, keepdims=True)
