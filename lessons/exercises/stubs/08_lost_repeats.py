"""08_lost_repeats: a test for backwards (lesson 08).

Somebody claims that `backward(dx, ids, V)` is the backward of reading words,

    x = sqrt(D) E[ids]        and 0 where ids is 0, which is padding

with ids (B, T), dx (B, T, D) and the result dE (V, D). Return True if that is right, and False if it is not. You choose
what it is tried on.

Your function is tried on seven backwards that are wrong and on two that are right.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def is_right(backward):
    raise NotImplementedError
    return right


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
