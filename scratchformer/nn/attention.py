"""Attention: masks, scaled dot-product attention, the two ways a Transformer uses it, and one step of decoding.

Queries, keys and values are (B, ., H, K): the heads are a split of the last axis of a projection's output, which costs
nothing. The products run over (B, H, ., .) views of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.ops import allowed, ops_of
from scratchformer.nn.parameter import Array, Layer


class Mask(NamedTuple):
    """Which query may attend to which key (paper §3.2.3).

    key_lengths  (B,) int: how many keys of each sequence are real, the rest being padding; None = all
    causal       True keeps a query from looking at keys after it
    """

    key_lengths: Array | None = None
    causal: bool = False

    def as_array(self, T: int, S: int) -> Array:
        """The mask written out: bool (B or 1, 1, T, S), True = may attend."""
        return allowed(np, T, S, self.key_lengths, self.causal)


class ScaledDotProductAttention(Layer):
    """Scaled dot-product attention in every head at once (paper §3.2.1, equation 1).

        Attention(Q, K, V) = dropout(softmax(Q K^T / sqrt(d_k))) V

    forward(q (B, T, H, K), k (B, S, H, K), v (B, S, H, d_v), mask) -> y (B, T, H, d_v), cache
    backward(dy (B, T, H, d_v), cache) -> dq (B, T, H, K), dk (B, S, H, K), dv (B, S, H, d_v)

    Keeps:    q, k, v, the weights (B, H, T, S), and these once more if attention_dropout thins them out.
    Differs:  `attention_dropout` drops weights; the paper's value for translation is 0.
    """

    def __init__(self, attention_dropout: float = 0.0) -> None:
        self.attention_dropout = attention_dropout

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        ops = ops_of(q)
        scores = ops.matmul(by_head(q), transposed(by_head(k)))  # (B, H, T, S)
        weights = ops.masked_softmax(scores, 1 / math.sqrt(q.shape[-1]), mask.key_lengths, mask.causal)
        dropped, kept = ops.dropout(weights, self.attention_dropout, rng)
        y = ops.xp.empty((*q.shape[:-1], v.shape[-1]), v.dtype)  # (B, T, H, d_v)
        ops.matmul(dropped, by_head(v), out=by_head(y))
        return y, AttentionCache(q, k, v, weights, dropped, kept)

    def backward(self, dy: Array, cache: AttentionCache) -> tuple[Array, Array, Array]:
        q, k, v, weights, dropped, kept = cache
        ops = ops_of(dy)
        dq, dk, dv = (ops.xp.empty(x.shape, x.dtype) for x in (q, k, v))
        # y = dropped v
        ops.matmul(transposed(dropped), by_head(dy), out=by_head(dv))
        ddropped = ops.matmul(by_head(dy), transposed(by_head(v)))  # (B, H, T, S)
        # dropped = dropout(softmax(scores / sqrt(d_k)))
        dweights = ops.dropout_backward(ddropped, kept, self.attention_dropout)
        dscores = ops.masked_softmax_backward(dweights, weights, 1 / math.sqrt(q.shape[-1]))
        # scores = q k^T
        ops.matmul(dscores, by_head(k), out=by_head(dq))
        ops.matmul(transposed(dscores), by_head(q), out=by_head(dk))
        return dq, dk, dv


class AttentionCache(NamedTuple):
    """What attention keeps for backward: its inputs, the weights (B, H, T, S), and these after dropout."""

    q: Array
    k: Array
    v: Array
    weights: Array
    dropped: Array
    kept: Array | None


def attention_weights(cache: Any) -> list[Array]:
    """The weights (B, H, T, S) of every attention in the cache of a forward pass, in the order of forward.

    For a whole Transformer: the N of the encoder, then for each decoder layer its self- and its cross-attention.
    """
    if isinstance(cache, AttentionCache):
        return [cache.weights]
    if isinstance(cache, (tuple, list)):
        return [weights for part in cache for weights in attention_weights(part)]
    return []


def by_head(x: Array) -> Array:
    """View (B, T, H, K) as (B, H, T, K)."""
    return x.swapaxes(1, 2)


def transposed(x: Array) -> Array:
    """View (..., m, n) as (..., n, m)."""
    return x.swapaxes(-1, -2)


class MultiHeadAttention(Layer):
    """Multi-head attention (paper §3.2.2; equation 1 inside each head): what SelfAttention and CrossAttention share.

        MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O,   head_i = Attention(Q W_Q,i, K W_K,i, V W_V,i)

    The projections of all heads lie side by side in one matrix; a subclass makes q, k and v from its inputs.

    W_O (H d_v, D), b_O (D,).

    Keeps:    q, k, v, the weights (B, H, T, S), and the inputs of the projections.
    Raises:   ValueError if d_model is not a multiple of h and d_k or d_v is not given.
    Differs:  projections carry biases, as the published parameter counts require; `bias=False` drops them. Projections
              that read the same input are one matrix and are initialised as one (the paper's code does so too).
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        init: np.random.Generator,
        dtype: str = "float32",
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        if (d_k is None or d_v is None) and d_model % h:
            raise ValueError(f"d_model={d_model} is not a multiple of h={h}: give d_k and d_v")
        self.h, self.d_k, self.d_v = h, d_k or d_model // h, d_v or d_model // h
        self._add_projections(d_model, init, dtype, bias)
        self.output = Linear(h * self.d_v, d_model, init, dtype, bias)
        self.attention = ScaledDotProductAttention(attention_dropout)

    def _add_projections(self, d_model: int, init: np.random.Generator, dtype: str, bias: bool) -> None:
        raise NotImplementedError

    def _attend(self, q: Array, k: Array, v: Array, mask: Mask, rng: DropoutKey | None) -> tuple[Array, Any]:
        """q (B, T, H, K), k (B, S, H, K), v (B, S, H, d_v) -> y (B, T, D), cache"""
        heads, attention_cache = self.attention.forward(q, k, v, mask, rng=rng)  # (B, T, H, d_v)
        joined = heads.reshape(*heads.shape[:2], -1)  # (B, T, H d_v)
        y, output_cache = self.output.forward(joined)  # (B, T, D)
        return y, (attention_cache, output_cache)

    def _attend_backward(self, dy: Array, cache: Any) -> tuple[Array, Array, Array]:
        """dy (B, T, D) -> dq (B, T, H, K), dk (B, S, H, K), dv (B, S, H, d_v)"""
        attention_cache, output_cache = cache
        dheads = self.output.backward(dy, output_cache)  # (B, T, H d_v)
        return self.attention.backward(dheads.reshape(*dy.shape[:2], self.h, -1), attention_cache)

    def _split(self, projected: Array, *widths: int) -> list[Array]:
        """Cut (B, T, H (w_1 + w_2 + ...)) into views (B, T, H, w_1), (B, T, H, w_2), ..."""
        parts, start = [], 0
        for width in widths:
            end = start + self.h * width
            parts.append(projected[..., start:end].reshape(*projected.shape[:-1], self.h, width))
            start = end
        return parts

    def _joined(self, *parts: Array) -> Array:
        """Undo `_split`: lay (B, T, H, w_i) side by side as (B, T, H (w_1 + w_2 + ...))."""
        return ops_of(parts[0]).xp.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)


class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself (paper §3.2.3): queries, keys and values all come from x.

    W_QKV (D, H (2 d_k + d_v)): W_Q, W_K and W_V side by side; b_QKV likewise.

    forward(x (B, T, D), mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)
    """

    def _add_projections(self, d_model: int, init: np.random.Generator, dtype: str, bias: bool) -> None:
        self.qkv = Linear(d_model, self.h * (2 * self.d_k + self.d_v), init, dtype, bias)

    def forward(self, x: Array, mask: Mask = Mask(), rng: DropoutKey | None = None) -> tuple[Array, Any]:
        qkv, qkv_cache = self.qkv.forward(x)  # (B, T, H (2 d_k + d_v))
        q, k, v = self._split(qkv, self.d_k, self.d_k, self.d_v)
        y, attend_cache = self._attend(q, k, v, mask, rng)
        return y, (qkv_cache, attend_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        qkv_cache, attend_cache = cache
        # y = attend(q, k, v)
        dq, dk, dv = self._attend_backward(dy, attend_cache)
        # q, k, v = split(x W_QKV + b_QKV)
        return self.qkv.backward(self._joined(dq, dk, dv), qkv_cache)

    def step(self, x: Array, past: KeysValues) -> tuple[Array, KeysValues]:
        """One position of causal self-attention, for W hypotheses of each of B sentences.

        x (B, W, D), `past` with B W rows of t positions -> y (B, W, D), the past with t + 1 positions
        """
        qkv, _ = self.qkv.forward(x.reshape(-1, 1, x.shape[-1]))  # (B W, 1, H (2 d_k + d_v))
        q, k, v = self._split(qkv, self.d_k, self.d_k, self.d_v)
        past = past.extended(k, v)
        y, _ = self._attend(q, *past.first(len(q)), Mask(), None)
        return y.reshape(x.shape), past

    def no_past(self, rows: int) -> KeysValues:
        """The past of up to `rows` hypotheses before their first step, with room for some positions."""
        xp, dtype = ops_of(self.qkv.weight.data).xp, self.qkv.weight.data.dtype
        room = rows, POSITIONS_AT_FIRST, self.h
        return KeysValues(0, xp.empty((*room, self.d_k), dtype), xp.empty((*room, self.d_v), dtype))


POSITIONS_AT_FIRST = 32
"""Room for so many to begin with. It doubles when it is full."""


class CrossAttention(MultiHeadAttention):
    """Encoder-decoder attention (paper §3.2.3): queries come from the decoder, keys and values from `memory`, the
    encoder's output.

    W_Q (D, H d_k); W_KV (D, H (d_k + d_v)): W_K and W_V side by side; biases likewise.

    forward(x (B, T, D), memory (B, S, D), mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D), dmemory (B, S, D)
    """

    def _add_projections(self, d_model: int, init: np.random.Generator, dtype: str, bias: bool) -> None:
        self.q = Linear(d_model, self.h * self.d_k, init, dtype, bias)
        self.kv = Linear(d_model, self.h * (self.d_k + self.d_v), init, dtype, bias)

    def forward(self, x: Array, memory: Array, mask: Mask = Mask(), rng: DropoutKey | None = None) -> tuple[Array, Any]:
        projected, q_cache = self.q.forward(x)  # (B, T, H d_k)
        kv, kv_cache = self.kv.forward(memory)  # (B, S, H (d_k + d_v))
        (q,) = self._split(projected, self.d_k)
        k, v = self._split(kv, self.d_k, self.d_v)
        y, attend_cache = self._attend(q, k, v, mask, rng)
        return y, (q_cache, kv_cache, attend_cache)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        q_cache, kv_cache, attend_cache = cache
        # y = attend(q, k, v)
        dq, dk, dv = self._attend_backward(dy, attend_cache)
        # k, v = split(memory W_KV + b_KV)
        dmemory = self.kv.backward(self._joined(dk, dv), kv_cache)
        # q = x W_Q + b_Q
        return self.q.backward(self._joined(dq), q_cache), dmemory

    def keys_values(self, memory: Array) -> KeysValues:
        """What every step attends to, computed once. memory (B, S, D) -> keys (B, S, H, K), values (B, S, H, d_v)"""
        return KeysValues(memory.shape[1], *self._split(self.kv.forward(memory)[0], self.d_k, self.d_v))

    def step(self, x: Array, memory: KeysValues, mask: Mask) -> Array:
        """x (B, W, D) -> y (B, W, D). The W hypotheses of a sentence are W queries to the same memory."""
        (q,) = self._split(self.q.forward(x)[0], self.d_k)
        return self._attend(q, *memory.first(len(q)), mask, None)[0]


class KeysValues(NamedTuple):
    """Keys (R, t, H, d_k) and values (R, t, H, d_v) that decoding keeps, so that no position is computed twice.

    They stand at the beginning of arrays with room for more rows and positions; t counts the positions in use, those
    written so far or those of the memory. `extended` and `copy_rows_inplace` write into these arrays: what was made
    from the same arrays before must not be used any more.
    """

    t: int
    keys: Array
    values: Array

    def first(self, rows: int) -> tuple[Array, Array]:
        """The keys and values of the first rows."""
        return self.keys[:rows, : self.t], self.values[:rows, : self.t]

    def extended(self, k: Array, v: Array) -> KeysValues:
        """With one more position of the R rows still in use: k (R, 1, H, d_k), v (R, 1, H, d_v)."""
        t, keys, values = self
        if t == keys.shape[1]:  # full: room for twice as many
            xp = ops_of(k).xp
            keys, values = (xp.concatenate([x, xp.empty_like(x)], axis=1) for x in (keys, values))
        keys[: len(k), t], values[: len(v), t] = k[:, 0], v[:, 0]
        return KeysValues(t + 1, keys, values)

    def copy_rows_inplace(self, source: Array, to: Array) -> None:
        """Row source[i] becomes row to[i], for all i at once."""
        xp = ops_of(self.keys).xp
        source, to = xp.asarray(source), xp.asarray(to)
        for x in (self.keys, self.values):
            x[to, : self.t] = x[source, : self.t]
