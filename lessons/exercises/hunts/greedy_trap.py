"""greedy_trap: a language in which greedy search loses (lesson 20).

The language has two words, 1 and 2. `written` is the list of the words so far, empty at first. Return three numbers
that sum to 1: the probability that the sentence ends here, that word 1 comes next, that word 2 comes next.

Greedy search must miss the likeliest sentence, a beam of 2 must find it (with alpha = 0), and it must be at least twice
as likely as what greedy search writes. Only sentences of at most 3 words count, and greedy search must end after at
most 3, too. The function is called for every list of 0 to 3 words.
"""

import numpy as np


def next_words(written):
    # a first try
    return np.array([0.2, 0.5, 0.3])
