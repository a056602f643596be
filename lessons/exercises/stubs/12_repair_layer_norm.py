"""12_repair_layer_norm: repair a LayerNorm that has five bugs (lesson 12).

Below is a LayerNorm, forward and backward, with five bugs. Each could pass for right: it runs, and models that have it
learn. Repair it, and take out the line that raises. x and dy are (B, T, D), gamma and beta (D,); n, s, and the formula
of dx are those of the lesson. The check looks at one result after the other and describes a symptom.
"""

import numpy as np

from scratchformer.commands.learn import check_file

EPS = 1e-6


def layer_norm(x, gamma, beta, dy):
    raise NotImplementedError                                  # take this line out
    mu = x.mean(axis=(-2, -1), keepdims=True)
    s = np.sqrt(((x - mu) ** 2).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)) + EPS
    n = (x - mu) / s
    y = gamma * n + beta

    dx = gamma * (dy - dy.mean(axis=-1, keepdims=True) - n * (dy * n).mean(axis=-1, keepdims=True)) / s
    dgamma = (dy * n).sum(axis=0)
    dbeta = dy.sum(axis=(0, 1))
    return {"y": y, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
