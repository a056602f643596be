"""20_length_penalty: by what finished sentences are ranked (lesson 20).

    log_probabilities   (K,)   log P of each sentence, in nats, its </s> included
    sentences           a list of K lists of ids, without </s>
    alpha               the exponent

Return the scores (K,): log P divided by the length penalty of the lesson. Its n counts all pieces that the model wrote,
and whose probabilities are in log P.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def scores(log_probabilities, sentences, alpha):
    raise NotImplementedError
    return scores


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
