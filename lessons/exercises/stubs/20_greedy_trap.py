"""20_greedy_trap: a table on which greedy search loses (lesson 20).

A language has two words, 1 and 2. `written` is the list of the words so far, empty at first. Return three numbers that
sum to 1: the probability that the sentence ends here, that word 1 comes next, that word 2 comes next. Zeros are
allowed.

Make it so that greedy search misses the likeliest sentence, that a beam of 2 finds it, and that it is at least twice as
likely as what greedy search writes.

Only sentences of at most 3 words count as the likeliest. You needn't force the end: the function is called for every
list of 0 to 3 words, and a search is stopped after its fourth word.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def next_words(written):
    raise NotImplementedError
    return probabilities


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
