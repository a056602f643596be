"""03_additive_scores: score every place of the writer with every state of the reader (lesson 03).

    z_ts = tanh(s_t W + h_s U)        e_ts = sum over k of z_tsk v_k

s (B, T, d_s), h (B, S, d_h), W (d_s, d_a), U (d_h, d_a), v (d_a,). Return the scores e (B, T, S), without a loop.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def additive_scores(s, h, W, U, v):
    raise NotImplementedError
    return e


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
