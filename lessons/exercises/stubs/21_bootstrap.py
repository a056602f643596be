"""21_bootstrap: between what does the difference of two systems lie, BLEU(b) - BLEU(a)? (lesson 21)

table_a and table_b, (S, 9), are the counts of the same S sentences (see 21_bleu). Each of the R rows of indices, (R,
S), is a test set drawn with replacement: the numbers of its sentences. Return the two ends of the interval that holds
the middle 95 % of the R differences, as np.quantile gives them, the lower end first: (2,). bleu takes counts (..., 9)
and returns scores (...).
"""

import numpy as np

from scratchformer.commands.learn import check_file
from support.bleu_by_hand import bleu


def interval(table_a, table_b, indices):
    raise NotImplementedError
    return np.array([lower, upper])


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
