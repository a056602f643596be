"""07_heads_backward: back through W_O, the merge, the heads, the split and W_V (lesson 07).

    v      = split(memory W_V)     memory (B, S, D), W_V (D, h d_v)   ->  v (B, h, S, d_v)
    heads  = weights v             weights (B, h, T, S)               ->  heads (B, h, T, d_v)
    joined = merge(heads)          side by side again                 ->  joined (B, T, h d_v)
    y      = joined W_O            W_O (h d_v, D + 1)                 ->  y (B, T, D + 1)

Given dy = dL/dy, return the gradients of W_O, heads, v, W_V and memory, each in the shape of what it belongs to. The
weights are given: what reaches memory by way of keys and scores is left out here. h is weights.shape[1].
"""

import numpy as np

from scratchformer.commands.learn import check_file


def heads_backward(dy, memory, weights, joined, W_V, W_O):
    raise NotImplementedError
    return {"dW_O": dW_O, "dheads": dheads, "dv": dv, "dW_V": dW_V, "dmemory": dmemory}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
