"""18_fill_batches: as many sentences to a batch as a budget allows (lesson 18).

    lengths   (n,) int: tokens of n sentences, none of them longer than the budget
    budget    a batch may have so many positions, padding included: sentences times the longest

Go from the shortest sentence to the longest, and of one length in the order given. Put each into the batch of the one
before, if that stays within the budget, else into a new one. Return numbers (n,) of int: sentence i is in batch
numbers[i], counted from 0.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def fill_batches(lengths, budget):
    raise NotImplementedError
    return numbers


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
