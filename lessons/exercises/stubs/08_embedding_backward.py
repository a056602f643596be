"""08_embedding_backward: from the gradient of the vectors to that of the matrix (lesson 08).

    x = sqrt(D) E[ids]        and 0 where ids is 0, which is padding

Given dx = dL/dx (B, T, D), the ids (B, T) and the number V of rows of E, return dE = dL/dE (V, D). Words may occur
several times.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def embedding_backward(dx, ids, V):
    raise NotImplementedError
    return {"dE": dE}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
