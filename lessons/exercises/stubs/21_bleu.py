"""21_bleu: the BLEU of a corpus, from 0 to 100 (lesson 21).

table (S, 9) has a row of counts for each of S sentences:

    table[:, 0:4]   matches of n = 1, 2, 3, 4 (clipped)
    table[:, 4:8]   n-grams written, n = 1, 2, 3, 4; so table[:, 4] is the number of words written
    table[:, 8]     words of the reference

Return one number. If one of the precisions is 0, it is 0.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def bleu(table):
    raise NotImplementedError
    return score


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
