"""12_residual_backward: back through Add & Norm, both ways (lesson 12).

The sublayer is a matrix W (D, D), so that nothing distracts from the box. Over the last axis of x (B, T, D):

    update = x W
    z = x + kept * update / (1 - P_drop)         kept (B, T, D) bool: what dropout kept
    y = gamma n + beta,   n = (z - mean(z)) / s,   s = sqrt(variance + eps)

Given dy = dL/dy, and n (B, T, D) and s (B, T, 1) from forward, return the gradients on the way back to x.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def residual_backward(dy, x, W, kept, P_drop, n, s, gamma):
    raise NotImplementedError
    return {"dz": dz, "dupdate": dupdate, "dW": dW, "dx": dx}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
