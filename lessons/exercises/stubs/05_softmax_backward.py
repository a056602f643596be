"""05_softmax_backward: from the gradient of the weights to that of the scores (lesson 05).

    weights = softmax(scores / sqrt(d_k))        over the keys, the last axis; both (B, H, T, S)

Given dweights = dL/dweights, and the weights that forward has computed, return dL/dscores, (B, H, T, S).
Here `scores` are the dot products of queries and keys, before the division; their values are not needed.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def softmax_backward(dweights, weights, d_k):
    raise NotImplementedError
    return {"dscores": dscores}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
