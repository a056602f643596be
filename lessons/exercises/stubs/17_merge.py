"""17_merge: merge a pair wherever it stands in a word (lesson 17).

`word` is a list of ids, `pair` a tuple of two ids. From left to right, replace the two, where they stand side by side
in this order, by the one id `new`. Return the new list.
"""

from scratchformer.commands.learn import check_file


def merge(word, pair, new):
    raise NotImplementedError
    return merged


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
