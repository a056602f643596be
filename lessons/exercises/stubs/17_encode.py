"""17_encode: cut a word into pieces by replaying merges (lesson 17).

`word` is a list of ids from 0 to n_characters - 1. `merges` is a list of pairs of ids, in the order in which they were
learnt; merge number i makes the id n_characters + i out of its pair. Return the ids of the word's pieces, as a list.
"""

from scratchformer.commands.learn import check_file


def encode(word, merges, n_characters):
    raise NotImplementedError
    return ids


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
