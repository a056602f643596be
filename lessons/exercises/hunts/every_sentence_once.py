"""every_sentence_once: write a test that finds wrong batches (lesson 18).

batches(pairs, size) is a function like that of the file: it yields [source (b, s), target (b, t)] without end, and an
epoch is as many batches as it takes for all pairs. Return True if these rules are kept, else False:
- every epoch has every pair once, the source with its own target, and no batch has more than size pairs;
- shorter sentences are filled up with 0 at the end;
- another epoch puts other pairs together;
- the batches of an epoch do not come in order of length.
You choose pairs, a list of (list of ids, list of ids), and size; batches may change the order of your list. With many
pairs, some of one length, nothing happens by chance. Yours is tried on six that are wrong and on three that are right.
"""

import numpy as np


def is_sound(batches):
    # a first try
    pairs = [([3, i], [i, 4]) for i in range(5, 9)]
    source, target = next(batches(pairs, 4))
    return np.array_equal(np.sort(source[:, 1]), np.arange(5, 9))
