"""01_gradient_check: a gradient by central differences (lesson 01).

f takes an array of the shape of x and returns one number. Return the array of its derivatives in each element of x,
in the shape of x (any number of axes, float64), right to six digits or more. Leave x as it was.
f is smooth, and its values and derivatives are neither huge nor tiny.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def numeric_gradient(f, x):
    raise NotImplementedError
    return gradient


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
