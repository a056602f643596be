"""02_bptt: backpropagation through time (lesson 02).

    h_t = tanh(x_t W_x + h_{t-1} W_h + b)        and the first step reads h0

Given dh = dL/dh as the outputs alone have it, (B, T, d_hidden), the inputs x (B, T, d_in), h0 (B, d_hidden), the states
h (B, T, d_hidden) and the weights W_x (d_in, d_hidden), W_h (d_hidden, d_hidden), return the gradients of b, W_x, W_h,
x and h0. Each of them has the shape of what it is the gradient of.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def bptt(dh, x, h0, h, W_x, W_h):
    raise NotImplementedError
    return {"db": db, "dW_x": dW_x, "dW_h": dW_h, "dx": dx, "dh0": dh0}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
