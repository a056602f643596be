"""09_shift_matrix: the matrix that leads k words on (lesson 09).

PE(pos) is the paper's vector of a position: component 2i is sin(omega pos), component 2i + 1 is cos(omega pos), with
omega = 10000^(-2i / d_model). Return the matrix M (d_model, d_model) for which, with PE(pos) as a row,

    PE(pos + k) = PE(pos) M        for every pos

k may be negative: then M leads to a word before.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def shift(k, d_model):
    raise NotImplementedError
    return M


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
