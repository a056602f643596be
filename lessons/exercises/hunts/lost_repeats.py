"""lost_repeats: write a test that finds wrong gradients of an embedding (lesson 08).

embed(ids, E, P_drop) is a function like that of the file, y, backward = embed(ids, E, P_drop), and backward(dy) adds to
E.grad. Forward is always right. Return True if what backward adds is right, to 1e-6, and False if it is not. You choose
what it is tried on: ids (b, t), dy, P_drop, and E = SimpleNamespace(data=..., grad=...), of even d_model. What dropout
has left out is 0 in y.

Your function is tried on six that are wrong and on two that are right.
"""

from types import SimpleNamespace

import numpy as np


def is_right(embed):
    # a first try
    ids, E = np.array([[3, 4, 5]]), SimpleNamespace(data=np.ones((7, 4)), grad=np.zeros((7, 4)))
    y, backward = embed(ids, E, 0.0)
    backward(np.ones_like(y))
    return np.allclose(E.grad[3:6], 4**0.5)
