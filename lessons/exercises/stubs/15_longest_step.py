"""15_longest_step: how long can a step of Adam be? (lesson 15)

Return gradients (T,) of one weight, the newest last, T at most 1000, after which Adam's last step is at least 1.6
times the learning rate. You are given beta1 = 0.9 and beta2 = 0.98; the bias correction is on, eps is 1e-9.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def gradients_of_a_long_step(beta1, beta2):
    raise NotImplementedError
    return gradients


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
