"""lost_repeats: write a test that finds wrong gradients of an embedding (lesson 08).

embed(ids, E, P_drop) is a function like that of the file, y, backward = embed(ids, E, P_drop), and backward(dy) adds to
E.grad. Forward is always right. Return True if what backward adds is right, to 1e-6, and False if it is not. You choose
what it is tried on: ids (b, t), E of even d_model, dy, and P_drop. What dropout has left out is 0 in y.

Your function is tried on six that are wrong and on two that are right.
"""

from types import SimpleNamespace  # E = SimpleNamespace(data=..., grad=...)


def is_right(embed): ...
