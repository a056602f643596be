import numpy as np


def constant(beta1, beta2):
    """as long as the learning rate"""
    return np.ones(100)


def one_large_gradient(beta1, beta2):
    """shorter than the learning rate: 0.596"""
    return np.append(np.zeros(60), 1000.0)


def doubling(beta1, beta2):
    """shorter than the learning rate: 0.786"""
    return 2.0 ** np.arange(30)


def rising_on_a_line(beta1, beta2):
    """the last step is 1.279 times the learning rate"""
    return np.arange(100.0)


def to_and_fro(beta1, beta2):
    """shorter than the learning rate: 0.05"""
    return (-1.0) ** np.arange(100)


def nothing(beta1, beta2):
    """all gradients are 0"""
    return np.zeros(100)


def overflowing(beta1, beta2):
    """its square may overflow"""
    return 10.0 ** np.arange(300)


def a_column(beta1, beta2):
    """expected (T,)"""
    return (beta2 / beta1) ** np.arange(100.0)[:, None]
