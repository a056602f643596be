import numpy as np


def moved(f, x, s, sentences=slice(None), components=slice(None)):
    changed = x.copy()
    changed[sentences, s, components] = 1 - 2 * x[sentences, s, components]
    return np.abs(f(changed) - f(x))


def allows_a_tolerance(f, x):
    """a faint leak is one: forgive no more than 1e-9"""
    return any(moved(f, x, s)[:, :s].max(initial=0) > 1e-5 for s in range(x.shape[1]))


def changes_the_last_word_only(f, x):
    """a leak in the middle"""
    return moved(f, x, -1)[:, :-1].any()


def looks_at_the_first_output_only(f, x):
    """at the very end"""
    return any(moved(f, x, s)[:, 0].any() for s in range(1, x.shape[1]))


def counts_the_own_place(f, x):
    """its own word is not the future"""
    return any(moved(f, x, s)[:, : s + 1].any() for s in range(x.shape[1]))


def looks_at_later_outputs(f, x):
    """earlier words are not the future"""
    return any(moved(f, x, s)[:, s + 1 :].any() for s in range(x.shape[1]))


def changes_x_itself(f, x):
    """the argument x is changed in place"""
    before = f(x)
    for s in range(x.shape[1]):
        x[:, s] += 1
        if (f(x) != before)[:, :s].any():
            return True
    return False


def adds_one_to_all_components(f, x):
    """behind a LayerNorm (which does not notice a number added to all components)"""
    for s in range(x.shape[1]):
        changed = x.copy()
        changed[:, s] += 1
        if (f(changed) != f(x))[:, :s].any():
            return True
    return False


def changes_the_first_sentence_only(f, x):
    """in the second sentence only"""
    return any(moved(f, x, s, sentences=0)[:, :s].any() for s in range(x.shape[1]))
