"""10_shift_test: by distance or by place? (lesson 10)

scores is a function: scores(x, first) takes the vectors x (T, K) of T words, which stand at the positions first,
first + 1, ..., and returns the scores (T, T) of all pairs, a row for each query. Return True if no score changes, by
more than rounding (1e-9 of the largest), when the whole sequence moves to later positions; False if any does, for any
shift up to 129.

Your function is tried on four kinds of scores that know distances only, and on eight that know places.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def shift_test(scores, x):
    raise NotImplementedError
    return relative


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
