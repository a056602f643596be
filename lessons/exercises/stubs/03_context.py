"""03_context: from scores and states to contexts (lesson 03).

e (B, T, S) are the scores of T positions for S states h (B, S, d_h). Softmax turns the scores of each position into
weights, and the context is the mean of the states with these weights. Return the contexts c (B, T, d_h). Some scores
are in the thousands.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def context(e, h):
    raise NotImplementedError
    return c


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
