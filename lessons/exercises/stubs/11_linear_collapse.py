"""11_linear_collapse: without the ReLU, one linear map does what the two do (lesson 11).

    (x W_1 + b_1) W_2 + b_2  =  x W + b        for every x

W_1 (D, F), b_1 (F,), W_2 (F, D), b_2 (D,). Return W, (D, D), with b as one more row below it: (D + 1, D).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def collapse(W_1, b_1, W_2, b_2):
    raise NotImplementedError
    return np.vstack([W, b])


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
