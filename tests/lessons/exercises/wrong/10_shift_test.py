import numpy as np


def moved(scores, x, shift):
    return np.abs(scores(x, shift) - scores(x, 0))


def one_long_shift(scores, x):
    """a bonus that comes again every 8 positions"""
    return bool(moved(scores, x, 128).max() < 1e-8)


def short_shifts(scores, x):
    """a bonus from position 64 on"""
    return all(moved(scores, x, shift).max() < 1e-8 for shift in range(1, 20))


def first_query_only(scores, x):
    """one score alone, that of the last query and the first key"""
    return all(moved(scores, x, shift)[0].max() < 1e-8 for shift in range(1, 130))


def too_forgiving(scores, x):
    """a millionth of a table"""
    return all(moved(scores, x, shift).max() < 1e-3 for shift in range(1, 130))


def sums_compared(scores, x):
    """two bonuses that cancel in the sum of all scores"""
    return all(abs(scores(x, shift).sum() - scores(x, 0).sum()) < 1e-8 for shift in range(1, 130))


def nothing_forgiven(scores, x):
    """it calls absolute what is relative: rotary positions"""
    return all((scores(x, shift) == scores(x, 0)).all() for shift in range(1, 130))


def diagonals_compared(scores, x):
    """it calls absolute what is relative: no positions"""
    return all(np.ptp(np.diagonal(scores(x, 0), offset)) < 1e-8 for offset in range(-len(x) + 1, len(x)))
