"""02_rnn: read a sequence with a recurrent network (lesson 02).

At each step the network adds a linear map of the input, a linear map of the state before, and a bias. The new state is
tanh of the sum. The first step reads h0.

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
