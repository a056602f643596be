"""13_count: how many parameters a model has (lesson 13).

N encoder layers and N decoder layers with the paper's post-LN, sinusoidal positions, h heads with keys of d_k and
values of d_v numbers, biases everywhere; D is d_model, F is d_ff, V the size of the vocabulary. `tied` is True if
source embedding, target embedding and unembedding are one matrix, False if they are three. Return a whole number.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def count(V, N, D, F, h, d_k, d_v, tied):
    raise NotImplementedError
    return number


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
