"""too_good: repair a loss that is too good to be true (lesson 16).

With this function the training loss falls to almost 0 in a few hundred steps, though label smoothing keeps a right one
above 1, and every translation is rubbish. Find the three bugs. Its gradients are right: those of the wrong function.
"""

import numpy as np
from transformer import PAD, cross_entropy, decode, differentiable, encode, linear


@differentiable
def loss_of(source, target, model, P_drop=0.0, eps_ls=0.1):
    memory, encode_backward = encode(source, model, P_drop)
    x, decode_backward = decode(target[:, 1:], memory, source, model, P_drop)
    is_word = target[:, :-1] != PAD
    logits, logits_backward = linear("nd,vd->nv", x[is_word], model.E)
    loss, loss_backward = cross_entropy(logits, target[:, 1:][is_word], 0.0)
    dloss = yield loss
    dx = np.zeros_like(x)
    dx[is_word] = logits_backward(loss_backward(dloss))
    return encode_backward(decode_backward(dx))
