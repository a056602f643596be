"""cross_attention: repair an attention that passes every gradient check (lesson 07).

x (b, t, d) is the sentence being written, memory (b, s, d) the sentence being read, and y (b, t, d). A model with this
function trained, and its gradients were right: those of the wrong function. All its sentences had one length.
A public program made this mistake. Repair both halves.
"""

from transformer import attention, differentiable, linear


@differentiable
def multi_head_attention(x, memory, mask, W_Q, W_K, W_V, W_O):
    Q, Q_backward = linear("btd,dhk->bthk", memory, W_Q)
    K, K_backward = linear("bsd,dhk->bshk", memory, W_K)
    V, V_backward = linear("bsd,dhk->bshk", x, W_V)
    heads, heads_backward = attention(Q, K, V, mask)
    y, y_backward = linear("bthk,hkd->btd", heads, W_O)
    dy = yield y
    dQ, dK, dV = heads_backward(y_backward(dy))
    return V_backward(dV), K_backward(dK) + Q_backward(dQ)
