"""19_perplexity: the perplexity of a text that was computed in batches of different sizes (lesson 19).

Return one number: e to the power of the mean loss per target token of the whole text.

    loss_sums     (batches,) the sum of the losses of all tokens of a batch, in nats
    n_tokens      (batches,) int, its target tokens
    n_sentences   (batches,) int, its sentences
"""

import numpy as np

from scratchformer.commands.learn import check_file


def perplexity(loss_sums, n_tokens, n_sentences):
    raise NotImplementedError
    return number


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
