"""18_accumulate: the gradient of a step, micro-batch by micro-batch (lesson 18).

    x         (M, B, D): M micro-batches of B vectors
    W         (D, V): scores[m] = x[m] @ W
    targets   (M, B) int: the right class of each vector; 0 is padding, which has no loss

    loss = (sum of all cross-entropies of real tokens, over all M micro-batches) / (number of these tokens)

Given dloss, a number, return dW (D, V). Compute one micro-batch at a time, as a small machine must.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def accumulate(dloss, x, W, targets):
    raise NotImplementedError
    return {"dW": dW}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
