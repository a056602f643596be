"""07_split_heads: cut a projection into heads (lesson 07).

x (B, T, h d_k) is what x W of all heads gives: for every position the columns of head 0, then those of head 1, and so
on. Return (B, h, T, d_k): for every head its own columns of all positions.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def split_heads(x, h):
    raise NotImplementedError
    return heads


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
