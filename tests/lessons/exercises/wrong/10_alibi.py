import numpy as np


def slopes(h):
    return 2.0 ** (-8 * np.arange(1, h + 1) / h)


def apart(T, S):
    return np.abs(np.arange(S - T, S)[:, None] - np.arange(S))


def bonus(T, S, h):
    """the sign is flipped"""
    return slopes(h)[:, None, None] * apart(T, S)


def signed(T, S, h):
    """the distance has a sign"""
    return slopes(h)[:, None, None] * (np.arange(S) - np.arange(S - T, S)[:, None])


def future_free(T, S, h):
    """keys ahead of the query cost nothing"""
    return slopes(h)[:, None, None] * np.minimum(np.arange(S) - np.arange(S - T, S)[:, None], 0)


def queries_first(T, S, h):
    """the queries stand at the first T positions"""
    return -slopes(h)[:, None, None] * np.abs(np.arange(T)[:, None] - np.arange(S))


def slopes_from_one(T, S, h):
    """the first slope is 1"""
    return -(2.0 ** (-8 * np.arange(h) / h))[:, None, None] * apart(T, S)


def slopes_of_eight_heads(T, S, h):
    """the slopes are those of eight heads"""
    return -(0.5 ** np.arange(1, h + 1))[:, None, None] * apart(T, S)


def slopes_reversed(T, S, h):
    """the slopes are in reverse order"""
    return -slopes(h)[::-1, None, None] * apart(T, S)


def heads_last(T, S, h):
    """the right numbers, with the axes in another order"""
    return -apart(T, S)[..., None] * slopes(h)
