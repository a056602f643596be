"""01_cross_entropy_backward: the gradient of softmax and cross-entropy, with padding (lesson 01).

    L = - sum over all positions of ln p[target],   p = softmax(scores)

scores (B, T, V), targets (B, T) whole numbers -> L, one number, in nats. A target of 0 is padding and adds nothing to
the sum. Given dL, the gradient of L (one number, and not always 1), return dL/dscores, (B, T, V).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def cross_entropy_backward(dL, scores, targets):
    raise NotImplementedError
    return {"dscores": dscores}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
