"""03_additive_scores: score every position of the decoder with every state of the encoder (lesson 03).

The score of a pair comes from a small network with one hidden layer: W maps the decoder's state, U the encoder's, both
are added, then comes tanh, and v makes one number of it. The states are s (B, T, d_s) and h (B, S, d_h); W (d_s, d_a),
U (d_h, d_a), v (d_a,). Return the scores e (B, T, S), without a loop.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def additive_scores(s, h, W, U, v):
    raise NotImplementedError
    return e


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
