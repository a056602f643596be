"""18_every_sentence_once: a test of batch plans (lesson 18).

epoch_of(e) returns the batches of epoch e (0, 1, 2, ...): a list of arrays of indices of pairs. lengths (n,) are the
lengths of the pairs, budget the positions that a batch may have, padding included. Return True if the plan is sound:

- every epoch has every pair exactly once;
- no batch has more positions (pairs times the longest) than the budget;
- another epoch is dealt otherwise;
- the same epoch is always the same, so that a run can be resumed;
- the batches of an epoch do not stand in order of length, from short to long.

Your function is tried on seven plans that break a rule and on three that do not.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def is_sound(epoch_of, lengths, budget):
    raise NotImplementedError
    return sound


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
