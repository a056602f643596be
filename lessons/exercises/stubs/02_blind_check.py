"""02_blind_check: make a gradient check accept a truncated backward (lesson 02).

A backward of a recurrent network forgets the way through the next state: it takes da_t = dh_t (1 - h_t^2) for every
step, and goes on from there as it should. A gradient check compares it with the truth for one upstream gradient dh.
Return a dh (B, T, d_hidden), with at least one number that is not small, with which all five gradients of the truncated
backward are right, whatever the weights and the input.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def upstream(B, T, d_hidden):
    raise NotImplementedError
    return dh


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
