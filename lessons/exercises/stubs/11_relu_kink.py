"""11_relu_kink: an input for which the check of a right gradient fails (lesson 11).

    z = x W_1 + b_1,   active = max(0, z)

W_1 (D, F), b_1 (F,), D = 5, F = 8, and the number j of a unit. Return an x, (D,), for which unit j stands at its kink:
z_j so near to 0 that a step of 1e-5 in a number of x carries it across. No other unit may be nearer to 0 than 1e-3.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def at_the_kink(W_1, b_1, j):
    raise NotImplementedError
    return x


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
