"""21_average: the mean of the last checkpoints (lesson 21).

checkpoints is a list of arrays, all of one shape: a weight matrix as it was at different steps, oldest first. Return
the mean of the last ones, as many as `last` says, or of all if there are fewer. Leave the checkpoints as they are.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def average(checkpoints, last):
    raise NotImplementedError
    return mean


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
