"""09_order_blind: two sentences that look the same without positions (lesson 09).

One attention without positions reads a sentence, a list of different words (numbers from 0 to 29). Only its output at
index `at` is looked at. Return another sentence of the same length, whose output there is the same, whatever the
weights are, though the words before `at` (there are two or more) stand in another order or are others.

    causal   True: the query at `at` sees the words up to its own; False: it sees all
"""

import numpy as np

from scratchformer.commands.learn import check_file


def other_sentence(ids, at, causal):
    raise NotImplementedError
    return other


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
