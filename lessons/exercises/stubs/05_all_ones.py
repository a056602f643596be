"""05_all_ones: a backward that is wrong for every input, and that a check with ones accepts (lesson 05).

    weights = softmax(scores)        over the last axis; here without a factor

Some checks take the sum of the output as the loss: dweights is then all ones. Return "dscores", in the shape of
dweights, such that this check finds nothing, although the result is wrong for every random dweights, and not zero (the
lesson has that one). No tricks like looking whether dweights is all ones: it must be wrong all the time.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def wrong_softmax_backward(dweights, weights):
    raise NotImplementedError
    return dscores


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
