"""03_bag: find other states that attention cannot tell apart (lesson 03).

h (B, S, d_h) are the states of an encoder. Return an array of the same shape that differs from h in every sequence, but
with which additive attention has the same contexts, whatever its weights W, U, v and the states of the decoder.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def other_states(h):
    raise NotImplementedError
    return other


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
