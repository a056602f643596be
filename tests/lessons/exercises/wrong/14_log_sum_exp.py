import numpy as np


def naive(z):
    """not finite where the scores are far from 0"""
    with np.errstate(over="ignore", divide="ignore"):
        return np.log(np.exp(z).sum(axis=-1))


def largest_of_all(z):
    """subtract the largest score of each row, not of the array"""
    with np.errstate(divide="ignore"):
        return z.max() + np.log(np.exp(z - z.max()).sum(axis=-1))


def mean_subtracted(z):
    """nan where a class is forbidden"""
    mean = z.mean(axis=-1)
    with np.errstate(invalid="ignore"):
        return mean + np.log(np.exp(z - mean[..., None]).sum(axis=-1))


def not_added_again(z):
    """what was subtracted before the exponential must be added again"""
    return np.log(np.exp(z - z.max(axis=-1, keepdims=True)).sum(axis=-1))


def largest_alone(z):
    """this is the largest score alone"""
    return z.max(axis=-1)


def of_the_mean(z):
    """this is the logarithm of the mean of the exponentials"""
    m = z.max(axis=-1)
    return m + np.log(np.exp(z - m[..., None]).mean(axis=-1))


def axis_kept(z):
    """an axis of length 1 is left over"""
    m = z.max(axis=-1, keepdims=True)
    return m + np.log(np.exp(z - m).sum(axis=-1, keepdims=True))
