"""15_noam: the learning rate of equation 3, for many steps at once (lesson 15).

steps (n,) are whole numbers from 1 on, in any order. Return the learning rate of each, (n,): it rises on a line that
comes from 0 at step 0, is highest at step `warmup`, (d_model warmup)^-0.5, and then falls with the root of the step.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def learning_rates(steps, d_model, warmup):
    raise NotImplementedError
    return rates


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
