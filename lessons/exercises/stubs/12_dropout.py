"""12_dropout: dropout, forward and backward, from numbers already drawn (lesson 12).

x (B, T, D) is what dropout reads, dy (B, T, D) the gradient of what it writes. uniform (B, T, D) holds random numbers,
evenly spread from 0 to 1: in training, a number of x is dropped where its uniform number is below P_drop, and what is
kept is scaled so that the expected value stays. training is a bool; at inference, nothing is dropped.

Return y and dx as one array, (2, B, T, D).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def dropout(x, dy, uniform, P_drop, training):
    raise NotImplementedError
    return np.stack([y, dx])


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
