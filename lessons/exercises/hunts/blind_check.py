"""blind_check: make a gradient check accept a backward that forgets the past (lesson 02).

A recurrent network reads x_0, x_1, ... one by one: h_t = tanh(x_t W_x + h_(t-1) W_h). Its backward goes from the last
step to the first, and h_t has two ways to the loss: its own output, dh_t, and the next step, da_(t+1) W_h^T.
So da_t = (dh_t + da_(t+1) W_h^T) (1 - h_t^2). A wrong backward forgets the next step: da_t = dh_t (1 - h_t^2).

A gradient check compares the two for one dh. Return a dh (b, t, d) of float64 for which both give the same, whatever
weights and inputs are. At least one number of it must not be small.
"""

import numpy as np


def upstream(b, t, d):
    # a first try
    return np.ones((b, t, d))
