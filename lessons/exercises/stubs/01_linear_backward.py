"""01_linear_backward: the gradients of a linear layer (lesson 01).

    y = x W + b        x (..., d_in), W (d_in, d_out), b (d_out,)  ->  y (..., d_out)

Given dy = dL/dy, (..., d_out), return dL/db, dL/dW and dL/dx, each in the shape of b, W, x. `...` stands for any
leading axes: (B,) rows, or T rows of each of B sequences. All rows use the same W and the same b.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def linear_backward(dy, x, W):
    raise NotImplementedError
    return {"db": db, "dW": dW, "dx": dx}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
