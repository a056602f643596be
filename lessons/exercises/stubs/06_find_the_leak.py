"""06_find_the_leak: a flow test (lesson 06).

f takes an array (B, T, D), a vector for each of T words, and returns another one (B, T, D). Return True if f leaks: if
any output t changes, by more than rounding (1e-9), when an input after t does. An output may depend on its own word and
on all before it. Leave x as it was.

Your function is tried on eight functions that leak and on three that do not. Some of them are attention whose gradients
are all right.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def leaks(f, x):
    raise NotImplementedError
    return leaking


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
