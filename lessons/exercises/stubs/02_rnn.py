"""02_rnn: read a sequence with a recurrent network (lesson 02).

    h_t = tanh(x_t W_x + h_{t-1} W_h + b)        and before the first step stands h0

x (B, T, d_in), h0 (B, d_hidden), W_x (d_in, d_hidden), W_h (d_hidden, d_hidden), b (d_hidden,). Return the states after
each step, (B, T, d_hidden).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def rnn(x, h0, W_x, W_h, b):
    raise NotImplementedError
    return h


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
