"""wrong_split: repair heads that are cut from the wrong axis (lesson 07).

Here Q (b, t, h k), K and V (b, s, h k) hold all heads side by side, as in many programs, and the result (b, t, h k)
holds the outputs of all heads. The code runs, all shapes are right, every gradient check passes, and a model with it
learns something. But with more than one head the result is wrong. Repair it.
"""

from transformer import attention, differentiable


def cut(x, h):
    """(b, t, h k) -> (b, t, h, k)"""
    return x.reshape(len(x), h, x.shape[1], -1).swapaxes(1, 2)


def join(x):
    """(b, t, h, k) -> (b, t, h k)"""
    return x.swapaxes(1, 2).reshape(len(x), x.shape[1], -1)


@differentiable
def attention_of_heads(Q, K, V, mask, h):
    heads, backward = attention(cut(Q, h), cut(K, h), cut(V, h), mask)
    dy = yield join(heads)
    dQ, dK, dV = backward(cut(dy, h))
    return join(dQ), join(dK), join(dV)
