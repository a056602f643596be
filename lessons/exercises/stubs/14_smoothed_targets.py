"""14_smoothed_targets: what a smoothed loss asks for (lesson 14).

For each target, a row of V shares that sum to 1. `smoothing` is taken from the right class, and given

    spread="others"     in equal parts to the V - 1 other classes (Tensor2Tensor; the default of the library)
    spread="uniform"    in equal parts to all V classes, the right one included (Szegedy et al. 2016)

targets is an array of int of any shape; 0 is padding, and a row of padding is 0 throughout. (As a class, 0 gets its
part from the others.) Return q, (..., V).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def smoothed_targets(targets, V, smoothing, spread):
    raise NotImplementedError
    return q


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
