import numpy as np


def nothing(gradients):
    """some gradients are as they were"""
    return gradients


def turned_round(gradients):
    """every step goes the other way"""
    return -2 * gradients


def another_factor_at_each_step(gradients):
    """a factor must be the same at every step"""
    return gradients * np.arange(2, len(gradients) + 2)[:, None]


def much_too_small(gradients):
    """so small that eps is no longer small"""
    return gradients * 1e-9


def something_added(gradients):
    """the steps differ"""
    return gradients + 5


def in_place(gradients):
    """the argument gradients is changed in place"""
    gradients *= 2
    return gradients


def a_mean(gradients):
    """shape (3,), expected (6, 3)"""
    return 2 * gradients.mean(axis=0)
