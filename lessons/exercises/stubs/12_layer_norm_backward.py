"""12_layer_norm_backward: the gradients of LayerNorm (lesson 12).

    n = (x - mean) / s,   s = sqrt(variance + eps)        mean and variance over the last axis
    y = gamma n + beta

x, n, y (B, T, D); s (B, T, 1); gamma, beta (D,). Given dy, (B, T, D), and what forward has kept, return
dL/dbeta, dL/dgamma and dL/dx, each in the shape of beta, gamma, x. The variance is the biased one: the mean of the
squares.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def layer_norm_backward(dy, n, s, gamma):
    raise NotImplementedError
    return {"dbeta": dbeta, "dgamma": dgamma, "dx": dx}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
