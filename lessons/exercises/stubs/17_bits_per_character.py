"""17_bits_per_character: a loss that can be compared between vocabularies (lesson 17).

A model has written B sentences of at most T pieces. Return how many bits it needs for each character of the text, on
average over all characters: one number.

    losses        (B, T) of each piece, in nats
    targets       (B, T) the ids of the pieces; 0 is padding, and what stands in `losses` there means nothing
    n_characters  (B,) the characters of each sentence, its end counted as one of them
"""

import numpy as np

from scratchformer.commands.learn import check_file


def bits_per_character(losses, targets, n_characters):
    raise NotImplementedError
    return bits


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
