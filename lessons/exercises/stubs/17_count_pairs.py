"""17_count_pairs: how often does each pair of pieces stand side by side in a text? (lesson 17)

The text is given as its different words: `words`, lists of ids from 0 to n_pieces - 1, and `times`, how often each of
them occurs in the text. Return an array of integers (n_pieces, n_pieces): in row a, column b, how often b stands right
behind a within a word. In a word a a a, the pair a a stands twice.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def count_pairs(words, times, n_pieces):
    raise NotImplementedError
    return counts


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
