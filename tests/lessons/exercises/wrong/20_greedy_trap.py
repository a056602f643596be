import numpy as np


def always_alike(written):
    """greedy search finds it"""
    return np.full(3, 1 / 3)


def not_summing_to_one(written):
    """probabilities sum to 1"""
    return np.array([0.5, 0.5, 0.5])


def logarithms(written):
    """not their logarithms"""
    return np.log([0.2, 0.5, 0.3])


def without_the_end(written):
    """expected (3,)"""
    return np.array([0.4, 0.6])


def by_a_hair(written):
    """hardly a trap"""
    if not written:
        return np.array([0.0, 0.55, 0.45])
    return np.array([0.6, 0.2, 0.2]) if written[0] == 1 else np.array([1.0, 0.0, 0.0])


def too_deep_for_two(written):
    """a beam of 2 misses it, too"""
    if not written:
        return np.array([0.0, 0.6, 0.4])
    if written[0] == 1:
        return np.array([0.0, 0.51, 0.49]) if len(written) == 1 else np.array([0.34, 0.33, 0.33])
    return np.array([0.3, 0.36, 0.34]) if len(written) == 1 else np.array([1.0, 0.0, 0.0])


def another_one_each_time(written, random=np.random.default_rng(0)):
    """the second time"""
    return random.dirichlet(np.ones(3))
