"""leak: write a test that finds functions which see the future (lesson 06).

f takes an array (b, t, d), a vector for each of t words, and returns another one (b, t, d). Return True if f leaks: if
the output at any position changes, by more than rounding (1e-9), when an input at a later position does. An output may
depend on its own word and on all words before it. Leave x as it was.

Your function is tried on six functions that leak and on three that do not. The gradients of all of them are right.
"""

import numpy as np


def leaks(f, x):
    # a first try
    changed = x.copy()
    changed[:, -1] += 1  # the last word
    return not np.allclose(f(changed)[:, 0], f(x)[:, 0])  # the first output
