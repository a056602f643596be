import numpy as np


def zeros(B, T, d_hidden):
    """any backward that returns zeros passes"""
    return np.zeros((B, T, d_hidden))


def tiny(B, T, d_hidden):
    """that hides every mistake"""
    return np.full((B, T, d_hidden), 1e-12)


def ones(B, T, d_hidden):
    """equal numbers are no hiding place here"""
    return np.ones((B, T, d_hidden))


def random(B, T, d_hidden):
    """some output has a step before it"""
    return np.random.default_rng(0).normal(size=(B, T, d_hidden))


def last_output_only(B, T, d_hidden):
    """with a loss at the last output"""
    dh = np.zeros((B, T, d_hidden))
    dh[:, -1] = 1
    return dh


def all_but_the_first(B, T, d_hidden):
    """Turn it round"""
    dh = np.random.default_rng(0).normal(size=(B, T, d_hidden))
    dh[:, 0] = 0
    return dh


def one_sequence_only(B, T, d_hidden):
    """one sequence alone shows it as well"""
    dh = np.zeros((B, T, d_hidden))
    dh[0] = np.arange(T)[:, None] + 1
    return dh


def one_step(B, T, d_hidden):
    """of the shape (3, 6, 5) that it is asked for"""
    return np.ones((B, 1, d_hidden))
