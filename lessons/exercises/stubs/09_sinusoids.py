"""09_sinusoids: the position vectors of the paper (lesson 09).

    PE(pos, 2i)     = sin(pos / 10000^(2i / d_model))
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))

Return the rows of the positions first, first + 1, ..., `count` of them: (count, d_model). Positions are counted from 0,
and d_model is even.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def position_vectors(first, count, d_model):
    raise NotImplementedError
    return PE


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
