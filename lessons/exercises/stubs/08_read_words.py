"""08_read_words: from ids to the vectors that the model reads (lesson 08).

Given the matrix E (V, D) and ids (B, T) of integers below V, return x (B, T, D): for each id its row of E, times the
root of D. The id 0 is padding, and its vector is 0 whatever row 0 holds.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def read_words(E, ids):
    raise NotImplementedError
    return x


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
