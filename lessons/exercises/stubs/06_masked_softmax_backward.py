"""06_masked_softmax_backward: from the gradient of the weights to that of the scores, with a mask (lesson 06).

    weights = softmax(factor * scores)        over the keys that the query may use; 0 for all others

Given dweights = dL/dweights and the weights, both (B, H, T, S), return dL/dscores, (B, H, T, S). You do not get the
mask. Some queries may use no key at all: all their weights are 0, and so is the gradient of their scores.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def masked_softmax_backward(dweights, weights, factor):
    raise NotImplementedError
    return {"dscores": dscores}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
