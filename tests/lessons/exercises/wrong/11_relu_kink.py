import numpy as np


def start(W_1):
    return np.random.default_rng(4).normal(size=len(W_1))


def zeros(W_1, b_1, j):
    """which is its bias"""
    return np.zeros(len(W_1))


def any_input(W_1, b_1, j):
    """not near its kink"""
    return start(W_1)


def bias_of_the_wrong_sign(W_1, b_1, j):
    """twice its bias"""
    x, column = start(W_1), W_1[:, j]
    return x - (x @ column - b_1[j]) * column / (column @ column)


def column_not_squared(W_1, b_1, j):
    """How far does z move if x moves along the column?"""
    x, column = start(W_1), W_1[:, j]
    return x - (x @ column + b_1[j]) * column


def the_next_unit(W_1, b_1, j):
    """units are the columns of W_1"""
    x, column = start(W_1), W_1[:, j - 1]
    return x - (x @ column + b_1[j - 1]) * column / (column @ column)


def as_many_units_as_numbers(W_1, b_1, j):
    """is at its kink, and so are others"""
    units = (j + np.arange(len(W_1))) % len(b_1)
    return np.linalg.solve(W_1[:, units].T, -b_1[units])


def a_little_too_far(W_1, b_1, j):
    """does not carry it across"""
    x, column = start(W_1), W_1[:, j]
    return x - (x @ column + b_1[j] - 5e-4) * column / (column @ column)


def the_hidden_layer(W_1, b_1, j):
    """one vector, with as many numbers as W_1 has rows"""
    return np.where(np.arange(len(b_1)) == j, 0, start(W_1) @ W_1 + b_1)
