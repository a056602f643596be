"""leak: write a test that finds functions which see the future (lesson 06).

f takes an array (b, t, d), a vector for each of t words, and returns another one (b, t, d). Return True if f leaks: if
the output at any position changes, by more than rounding (1e-9), when an input at a later position does. An output may
depend on its own word and on all words before it. Leave x as it was.

Your function is tried on eight functions that leak and on three that do not. The gradients of all of them are right.
"""


def leaks(f, x): ...
