"""15_disguise: other gradients, the same steps (lesson 15).

gradients (T, n): row t holds the gradients of n weights at step t. Return other gradients, (T, n), each of them changed
by one per cent or more, after which Adam takes the same steps (beta1 0.9, beta2 0.98, eps 1e-9). Leave gradients as
they were.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def disguise(gradients):
    raise NotImplementedError
    return others


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
