"""03_additive_backward: the gradients of additive attention (lesson 03).

    z_tj = tanh(s_t W + h_j U)        e_tj = sum over k of z_tjk v_k
    w_t = softmax(e_t)                c_t = sum over j of w_tj h_j

Given dc (B, T, d_h), the states s (B, T, d_s) and h (B, S, d_h), the layer's W (d_s, d_a), U (d_h, d_a) and v (d_a,),
the weights w (B, T, S) that softmax made, as `weights`, and z (B, T, S, d_a), return the gradients of v, W, U, s and h.
Each of them has the shape of what it is the gradient of.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def additive_backward(dc, s, h, W, U, v, weights, z):
    raise NotImplementedError
    return {"dv": dv, "dW": dW, "dU": dU, "ds": ds, "dh": dh}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
