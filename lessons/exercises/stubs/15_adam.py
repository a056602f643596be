"""15_adam: Adam, with its bias correction (lesson 15).

gradients (T, n): row t - 1 holds the gradients of n weights at step t = 1, 2, ... T. w (n,) are the weights before the
first step. Return the weights after each step, (T, n). As in the lesson, m averages the gradients (beta1) and v their
squares (beta2), both begin at 0, and both are corrected for that at every step. eps is added to the corrected root.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def adam(gradients, w, rate, beta1, beta2, eps):
    raise NotImplementedError
    return weights


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
