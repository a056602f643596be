"""02_lstm_cell_backward: the gradients of one step of an LSTM (lesson 02).

    i, f, g, o = sigmoid(a_i), sigmoid(a_f), tanh(a_g), sigmoid(a_o)        a (B, 4, d) holds a_i, a_f, a_g, a_o
    c = f c_before + i g
    h = o tanh(c)

What comes back from later is dstate (2, B, d): the gradient of h, and that of c, which the next step reads. Given also
c_before, c (B, d), and gates (B, 4, d), which holds i, f, g, o in this order, return the gradients of c_before and a.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def lstm_cell_backward(dstate, c_before, c, gates):
    dh, dc = dstate
    i, f, g, o = gates.swapaxes(0, 1)
    raise NotImplementedError
    return {"dc_before": dc_before, "da": da}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
