"""00_greedy: write a sentence, always going on with the best word (lesson 00).

next_word_scores takes a list of ids, `begin` first and then all that is written so far, and returns one score for each
id of the vocabulary, (V,). Write the id with the largest score behind the others, and ask again, until it is `end`, or
until `longest` ids are written. Return the list of the ids that were written, without begin and end.
"""

from scratchformer.commands.learn import check_file


def greedy(next_word_scores, begin, end, longest):
    raise NotImplementedError
    return written


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
