"""Recurrent layers, which read a sequence from left to right with one state for all of it.

And the attention that was first put on top of them. Shapes: B batch, T length, S length of the other sequence. One and
the same weights serve every step, so their gradients are sums over the steps; the backward pass of a recurrent layer is
called backpropagation through time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.ops import rows_of
from scratchformer.nn.parameter import Array, Layer


class RNN(Layer):
    """The simple recurrent network (Elman 1990).

        h_t = tanh(x_t W_x + b + h_{t-1} W_h)

    W_x (d_in, d_hidden) and b (d_hidden,): `input`; W_h (d_hidden, d_hidden): `recurrent`; all as Linear begins them.

    forward(x (B, T, d_in), h0 (B, d_hidden) or None: zeros) -> h (B, T, d_hidden), cache
    backward(dh (B, T, d_hidden), cache) -> dx (B, T, d_in), dh0 (B, d_hidden)

    Keeps:    x, and the states with h0 in front of them.
    Differs:  Elman stops the gradient at the previous state; here it goes all the way back. His units are logistic.
    """

    def __init__(self, d_in: int, d_hidden: int, init: np.random.Generator, dtype: str = "float32") -> None:
        self.input = Linear(d_in, d_hidden, init, dtype)
        self.recurrent = Linear(d_hidden, d_hidden, init, dtype, bias=False)

    def forward(self, x: Array, h0: Array | None = None, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        W_h = self.recurrent.weight.data
        from_input, input_cache = self.input.forward(x)  # (B, T, d_hidden): all steps at once
        h = with_first(from_input, h0)  # (B, T + 1, d_hidden)
        for t in range(x.shape[1]):
            h[:, t + 1] = np.tanh(from_input[:, t] + h[:, t] @ W_h)
        return h[:, 1:], (input_cache, h)

    def backward(self, dh: Array, cache: Any) -> tuple[Array, Array]:
        input_cache, h = cache
        W_h = self.recurrent.weight
        da, from_later = np.empty_like(dh), np.zeros_like(h[:, 0])
        for t in reversed(range(dh.shape[1])):
            # h_t = tanh(a_t) is output t, and is read by step t + 1
            da[:, t] = (dh[:, t] + from_later) * (1 - h[:, t + 1] ** 2)
            # a_t = x_t W_x + b + h_{t-1} W_h
            from_later = da[:, t] @ W_h.data.T
        W_h.grad += rows_of(h[:, :-1]).T @ rows_of(da)
        return self.input.backward(da, input_cache), from_later


class LSTM(Layer):
    """Long short-term memory (Hochreiter & Schmidhuber 1997), with a forget gate (Gers, Schmidhuber & Cummins 2000).

        i, f, o = sigmoid(...), g = tanh(...)  of four parts of  x_t W_x + b + h_{t-1} W_h,  in the order i, f, g, o
        c_t = f c_{t-1} + i g
        h_t = o tanh(c_t)

    W_x (d_in, 4 d_hidden) and b (4 d_hidden,): `input`; W_h (d_hidden, 4 d_hidden): `recurrent`; as Linear begins them,
    but the bias of the forget gate with 1: at first the cell keeps most of what it holds.

    forward(x (B, T, d_in), h0, c0 (B, d_hidden) or None: zeros) -> h (B, T, d_hidden), cache
    backward(dh (B, T, d_hidden), cache) -> dx (B, T, d_in), dh0, dc0 (B, d_hidden)

    Keeps:    x, the states h and c with the first ones in front of them, the gates (B, T, 4, d_hidden).
    Differs:  the cells of 1997 have no forget gate, and their backward is cut off; there are no peepholes.
    """

    def __init__(self, d_in: int, d_hidden: int, init: np.random.Generator, dtype: str = "float32") -> None:
        self.input = Linear(d_in, 4 * d_hidden, init, dtype)
        self.recurrent = Linear(d_hidden, 4 * d_hidden, init, dtype, bias=False)
        assert self.input.bias is not None
        self.input.bias.data[d_hidden : 2 * d_hidden] = 1

    def forward(
        self, x: Array, h0: Array | None = None, c0: Array | None = None, rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        W_h = self.recurrent.weight.data
        d_hidden = len(W_h)
        from_input, input_cache = self.input.forward(x)  # (B, T, 4 d_hidden)
        h, c = (with_first(from_input[:, :, :d_hidden], first) for first in (h0, c0))
        gates = from_input.reshape(*x.shape[:2], 4, d_hidden)
        for t in range(x.shape[1]):
            a = gates[:, t] + (h[:, t] @ W_h).reshape(-1, 4, d_hidden)
            i, f, g, o = sigmoid(a[:, 0]), sigmoid(a[:, 1]), np.tanh(a[:, 2]), sigmoid(a[:, 3])
            c[:, t + 1] = f * c[:, t] + i * g
            h[:, t + 1] = o * np.tanh(c[:, t + 1])
            gates[:, t] = np.stack([i, f, g, o], axis=1)
        return h[:, 1:], (input_cache, h, c, gates)

    def backward(self, dh: Array, cache: Any) -> tuple[Array, Array, Array]:
        input_cache, h, c, gates = cache
        W_h = self.recurrent.weight
        da = np.empty_like(gates)  # (B, T, 4, d_hidden)
        dh_later, dc_later = np.zeros_like(h[:, 0]), np.zeros_like(c[:, 0])
        for t in reversed(range(dh.shape[1])):
            i, f, g, o = gates[:, t].swapaxes(0, 1)
            # h_t = o tanh(c_t) is output t, and is read by step t + 1, as c_t is
            dh_t, tanh_c = dh[:, t] + dh_later, np.tanh(c[:, t + 1])
            dc = dc_later + dh_t * o * (1 - tanh_c**2)
            # c_t = f c_{t-1} + i g;  i, f, o = sigmoid(a), g = tanh(a)
            parts = dc * g * i * (1 - i), dc * c[:, t] * f * (1 - f), dc * i * (1 - g**2), dh_t * tanh_c * o * (1 - o)
            da[:, t], dc_later = np.stack(parts, axis=1), dc * f
            # a_t = x_t W_x + b + h_{t-1} W_h
            dh_later = da[:, t].reshape(len(dh), -1) @ W_h.data.T
        da = da.reshape(*dh.shape[:2], -1)  # (B, T, 4 d_hidden)
        W_h.grad += rows_of(h[:, :-1]).T @ rows_of(da)
        return self.input.backward(da, input_cache), dh_later, dc_later


class AdditiveAttention(Layer):
    """Each state of the decoder looks at all states of the encoder (Bahdanau, Cho & Bengio 2015).

        e_tj = v . tanh(s_t W + h_j U)            the score: a network with one hidden layer of size d_a
        w_tj = softmax of e_t1, ..., e_tS
        c_t  = sum over j of w_tj h_j             the context

    W (d_s, d_a): `query`; U (d_h, d_a): `key`; v (d_a, 1): `score`; no biases; all as Linear begins them.

    forward(s (B, T, d_s), h (B, S, d_h)) -> c (B, T, d_h), cache
    backward(dc (B, T, d_h), cache) -> ds (B, T, d_s), dh (B, S, d_h)

    Keeps:    s, h, tanh of all the pairs (B, T, S, d_a), the weights (B, T, S).
    Differs:  1. no masks: all sequences of a batch have one length.
              2. all s_t are there beforehand. In the paper s_{t-1} asks, and the context goes into s_t, so the
                 positions of the decoder cannot be computed side by side.
    """

    def __init__(self, d_s: int, d_h: int, d_a: int, init: np.random.Generator, dtype: str = "float32") -> None:
        self.query = Linear(d_s, d_a, init, dtype, bias=False)
        self.key = Linear(d_h, d_a, init, dtype, bias=False)
        self.score = Linear(d_a, 1, init, dtype, bias=False)

    def forward(self, s: Array, h: Array, rng: DropoutKey | None = None) -> tuple[Array, AdditiveCache]:
        from_s, s_cache = self.query.forward(s)  # (B, T, d_a)
        from_h, h_cache = self.key.forward(h)  # (B, S, d_a)
        z = from_s[:, :, None] + from_h[:, None]  # (B, T, S, d_a): each t with each j
        np.tanh(z, out=z)
        e = self.score.forward(z)[0][..., 0]  # (B, T, S)
        weights = np.exp(e - e.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return weights @ h, AdditiveCache(h, weights, z, s_cache, h_cache)

    def backward(self, dc: Array, cache: AdditiveCache) -> tuple[Array, Array]:
        h, weights, z, s_cache, h_cache = cache
        # c = w h
        dweights = dc @ h.swapaxes(1, 2)  # (B, T, S)
        # w = softmax(e)
        de = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
        # e = z v;  z = tanh(a)
        v = self.score.weight
        v.grad += rows_of(z).T @ rows_of(de[..., None])
        da = np.square(z)  # (B, T, S, d_a), the largest array
        np.subtract(1, da, out=da)
        da *= v.data[:, 0]
        da *= de[..., None]
        # a_tj = s_t W + h_j U
        ds = self.query.backward(da.sum(axis=2), s_cache)
        return ds, self.key.backward(da.sum(axis=1), h_cache) + weights.swapaxes(1, 2) @ dc


class AdditiveCache(NamedTuple):
    h: Array  # (B, S, d_h)
    weights: Array  # (B, T, S)
    z: Array  # (B, T, S, d_a)
    query: Any
    key: Any


def with_first(like: Array, first: Array | None) -> Array:
    """Room for the states, the first of them filled in: like (B, T, d), first (B, d) or None -> (B, T + 1, d)"""
    B, T, d = like.shape
    states = np.empty((B, T + 1, d), like.dtype)
    states[:, 0] = 0 if first is None else first
    return states


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)


# How much of a small difference is left -------------------------------------------------------------------------------


def left_of_a_nudge(layer: RNN | LSTM, x: Array, *first: Array) -> float:
    """Length in h_n, to first order, of a difference of length 1 in the state before x (1, n, d_in).

    The root of the mean square over all directions of the difference. That of an LSTM is in its cell. Computed by
    `backward`: the gradient of h_n with respect to the first state.
    """
    size = len(layer.recurrent.weight.data)
    h, cache = layer.forward(np.repeat(x, size, axis=0), *first)  # once for each number of h_n
    dh = np.zeros_like(h)
    dh[:, -1] = np.eye(size)
    *_, dfirst = layer.backward(dh, cache)  # dh0, or dc0: (size, size)
    layer.zero_grad()
    return float(np.sqrt((dfirst**2).sum() / size))
