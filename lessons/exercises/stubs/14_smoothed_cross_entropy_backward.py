"""14_smoothed_cross_entropy_backward: the gradient of the smoothed loss, a mean over the real tokens (lesson 14).

    p = softmax(logits)                       over the last axis
    L = -(1 / n) sum over the real tokens of sum_v q_v ln p_v

with q = 1 - smoothing at the right class and smoothing / (V - 1) at each other one. A target of 0 is padding; n is the
number of targets that are not. Given dL, one number, logits (B, T, V) and targets (B, T), return dL/dlogits, (B, T, V).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def smoothed_cross_entropy_backward(dL, logits, targets, smoothing):
    raise NotImplementedError
    return {"dlogits": dlogits}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
