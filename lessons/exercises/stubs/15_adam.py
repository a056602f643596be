"""15_adam: Adam, with its bias correction (lesson 15).

gradients (T, n): row t - 1 holds the gradients of n weights at step t = 1, 2, ... T. w (n,) are the weights before the
first step. Return the weights after each step, (T, n). With m and v (n,) that begin at 0, a step is

    m <- beta1 m + (1 - beta1) g           v <- beta2 v + (1 - beta2) g^2
    w <- w - rate sqrt(1 - beta2^t) / (1 - beta1^t)  m / (sqrt(v) + eps)
"""

import numpy as np

from scratchformer.commands.learn import check_file


def adam(gradients, w, rate, beta1, beta2, eps):
    raise NotImplementedError
    return weights


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
