"""21_clipped_counts: which n-grams of a translation stand in its reference (lesson 21).

An n-gram is a run of n words, in order; runs overlap. hypothesis and reference are lists of words. Return an array of
two integers:

    how many n-grams of the hypothesis have a partner in the reference, each of whose n-grams can be partner once
    how many n-grams the hypothesis has

A sentence of fewer than n words has none.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def clipped_counts(hypothesis, reference, n):
    raise NotImplementedError
    return np.array([matches, written])


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
