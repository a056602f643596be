import numpy as np


def moved(f, x, s):
    changed = x.copy()
    changed[:, s] += 1
    return np.abs(f(changed) - f(x))


def allows_a_tolerance(f, x):
    """a faint leak is one: allow no tolerance"""
    return any(moved(f, x, s)[:, :s].max(initial=0) > 1e-5 for s in range(x.shape[1]))


def changes_the_last_word_only(f, x):
    """a leak in the middle"""
    return moved(f, x, -1)[:, :-1].any()


def looks_at_the_first_output_only(f, x):
    """at the very end"""
    return any(moved(f, x, s)[:, 0].any() for s in range(1, x.shape[1]))


def counts_the_own_place(f, x):
    """its own word is not the future"""
    return any(moved(f, x, s)[:, :s + 1].any() for s in range(x.shape[1]))


def looks_at_later_outputs(f, x):
    """earlier words are not the future"""
    return any(moved(f, x, s)[:, s + 1:].any() for s in range(x.shape[1]))


def changes_x_itself(f, x):
    """the argument x is changed in place"""
    before = f(x)
    for s in range(x.shape[1]):
        x[:, s] += 1
        if (f(x) != before)[:, :s].any():
            return True
    return False
