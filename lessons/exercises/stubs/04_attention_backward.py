"""04_attention_backward: the whole backward pass of equation 1 (lesson 04).

    scores = q k^T / sqrt(d_k)                   q (B, T, d_k), k (B, S, d_k)  ->  (B, T, S)
    weights = softmax(scores)                    over the keys, the last axis
    y = weights v                                v (B, S, d_v)  ->  (B, T, d_v)

Given dy, the inputs and the weights, return the gradient of everything, the last line's first. `@` multiplies the last
two axes, for each sentence by itself. The checker stops at the first that is wrong; you may return only the first ones.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def attention_backward(dy, q, k, v, weights):
    raise NotImplementedError
    return {"dv": dv, "dweights": dweights, "dscores": dscores, "dq": dq, "dk": dk}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
