"""05_scaling: scaled scores of several heads at once (lesson 05).

q (B, T, H, d_k): T queries of B sentences, each cut into H heads of d_k numbers; k (B, S, H, d_k): S keys.
Return the scores (B, H, T, S): the dot product of each query with each key of the same sentence and the same head,
scaled as in equation 1 of the paper.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def scaled_scores(q, k):
    raise NotImplementedError
    return scores


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
