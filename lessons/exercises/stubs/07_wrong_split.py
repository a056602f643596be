"""07_wrong_split: mend heads that are cut from rows (lesson 07).

q, k, v (B, T, h d_k) are the projections of all heads; joined (B, T, h d_k) is what goes into W_O. The function below
runs, all its shapes are right, and models made with it learn something. But its heads are not heads. Remove the line
that raises, and mend it.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def multi_head(q, k, v, h):
    raise NotImplementedError
    B, T, D = q.shape
    d_k = D // h
    q, k, v = (x.reshape(B, h, T, d_k) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_k)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    heads = weights @ v
    joined = heads.reshape(B, T, D)
    return joined


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
