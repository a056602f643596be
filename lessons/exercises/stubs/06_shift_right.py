"""06_shift_right: what a decoder reads, and what it is to write (lesson 06).

`sentences` is a list of lists of ids, of different lengths, none of them 0, 1 or 2. Return two arrays of integers,
(B, T), T being one more than the longest sentence:

    read    <s>, then the words
    write   the words, then </s>

with <s> = 2, </s> = 1, and padding 0 at the end of the shorter ones.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def shift_right(sentences):
    raise NotImplementedError
    return read, write


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
