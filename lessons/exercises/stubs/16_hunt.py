"""16_hunt: which bug does this model have? (lesson 16)

model(source, target) returns logits (B, T, V). source (B, S) is padded with 0 at the end of its rows; target (B, T) is
what the decoder reads, without padding. The ids are below 11. Leave both arrays as they were. Return one word:

    "dice"      two equal calls give different logits
    "future"    a guess depends on a later symbol of the target
    "padding"   more padding at the end of the source changes something
    "deaf"      the symbols of the source make no difference
    "honest"    none of these

Differences up to 1e-9 are rounding. Your function is tried on nine models.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def verdict(model, source, target):
    raise NotImplementedError
    return word


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
