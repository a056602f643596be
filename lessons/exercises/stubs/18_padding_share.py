"""18_padding_share: which share of all positions is padding? (lesson 18).

    source_lengths, target_lengths   (n,) int: tokens of the two sides of n pairs
    batches                          a list of arrays of indices (B,): which pairs are computed together

A batch is two arrays, (B, S) and (B, T): S is the length of its longest source, T that of its longest target. Return
the padding of all batches over all their positions, a number from 0 to 1. Pairs in no batch do not count.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def padding_share(source_lengths, target_lengths, batches):
    raise NotImplementedError
    return share


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
