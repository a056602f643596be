"""16_right_gradient: a softmax that is wrong, looks right, and passes its gradient check (lesson 16).

Return two arrays in the shape of scores (n, S):

    weights   not negative, each row of sum 1, and clearly not softmax(scores)
    dscores   given dweights = dL/dweights, the gradient of the scores: of your weights, as finite differences find it

So it is a bug that no gradient check notices, and nobody who looks at a few weights.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def wrong_softmax(scores, dweights):
    raise NotImplementedError
    return weights, dscores


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
