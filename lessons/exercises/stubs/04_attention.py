"""04_attention: equation 1 of the paper (lesson 04).

    Attention(q, k, v) = softmax(q k^T / sqrt(d_k)) v

q (B, T, d_k): T queries in each of B sentences; k (B, S, d_k) and v (B, S, d_v): S pairs of a key and a value.
Return the blends, (B, T, d_v). Scores may be large: in the thousands.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def attention(q, k, v):
    raise NotImplementedError
    return y


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
