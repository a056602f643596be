"""Attention: masks, scaled dot-product attention (equation 1), and the two ways in which a Transformer uses it.

Queries, keys and values are (B, ., H, K). To split a projection's output into heads is to reshape its last axis, which
copies nothing; matrix products then run over (B, H, ., .) views.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.ops import allowed, by_head, ops_of
from scratchformer.nn.parameter import Array, Layer


class Mask(NamedTuple):
    """The mask of attention: the keys that each query may attend to (paper §3.2.3).

    key_lengths  (B,) int: number of real keys of each sequence, the others being padding; None = all
    causal       True keeps a query from attending to later keys
    """

    key_lengths: Array | None = None
    causal: bool = False

    def as_array(self, T: int, S: int) -> Array:
        """The mask as an array: bool (B or 1, 1, T, S), True = may attend."""
        return allowed(np, T, S, self.key_lengths, self.causal)


class ScaledDotProductAttention(Layer):
    """Scaled dot-product attention in all heads at once (paper §3.2.1, equation 1).

        Attention(Q, K, V) = dropout(softmax(Q K^T / sqrt(d_k))) V

    forward(q (B, T, H, K), k (B, S, H, K), v (B, S, H, d_v), mask) -> y (B, T, H, d_v), cache
    backward(dy (B, T, H, d_v), cache) -> dq (B, T, H, K), dk (B, S, H, K), dv (B, S, H, d_v)

    Keeps:    q, k, v, the weights (B, H, T, S), and the weights after dropout if attention_dropout is not 0.
    Raises:   ValueError if there are no queries, keys or values.
    Differs:  `attention_dropout` drops weights; the paper's value for translation is 0.
    """

    def __init__(self, attention_dropout: float = 0.0) -> None:
        self.attention_dropout = attention_dropout

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        if not (q.size and k.size and v.size):
            raise ValueError(f"attention to an empty array: queries {q.shape}, keys {k.shape}, values {v.shape}")
        scale = 1 / math.sqrt(q.shape[-1])
        y, *saved = ops_of(q).attention(q, k, v, scale, mask.key_lengths, mask.causal, self.attention_dropout, rng)
        return y, AttentionCache(q, k, v, scale, *saved)

    def backward(self, dy: Array, cache: AttentionCache) -> tuple[Array, Array, Array]:
        return ops_of(dy).attention_backward(dy, *cache, self.attention_dropout)


class AttentionCache(NamedTuple):
    """The cache of attention for backward: its inputs, the weights (B, H, T, S), and the weights after dropout."""

    q: Array
    k: Array
    v: Array
    scale: float
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


def split_heads(x: Array, h: int, *widths: int) -> list[Array]:
    """Cut (B, T, h (w_1 + w_2 + ...)) into views (B, T, h, w_1), (B, T, h, w_2), ..."""
    parts, start = [], 0
    for width in widths:
        end = start + h * width
        parts.append(x[..., start:end].reshape(*x.shape[:-1], h, width))
        start = end
    return parts


def join_heads(*parts: Array) -> Array:
    """Undo `split_heads`: (B, T, h, w_1), (B, T, h, w_2), ... side by side as (B, T, h (w_1 + w_2 + ...))."""
    rows = [part.reshape(*part.shape[:2], -1) for part in parts]
    return rows[0] if len(rows) == 1 else ops_of(rows[0]).side_by_side(rows)


def head_sizes(d_model: int, h: int, d_k: int | None, d_v: int | None) -> tuple[int, int]:
    """d_k and d_v; by default d_model / h. Raises ValueError if that is not a whole number."""
    if (d_k is None or d_v is None) and d_model % h:
        raise ValueError(f"d_model={d_model} is not a multiple of h={h}: give d_k and d_v")
    return d_k or d_model // h, d_v or d_model // h


class KeyValueCache:
    """The keys and values of the positions read so far: a new position needs no other work than its own.

    keys (R, t, H, d_k) and values (R, t, H, d_v) of R sequences are the first rows and positions of arrays that have
    room for more. Methods change the cache in place.
    """

    INITIAL_POSITIONS = 32
    """A new cache has room for this many positions. It doubles when it is full."""

    def __init__(self, keys: Array, values: Array, rows: int, t: int) -> None:
        self.arrays = keys, values
        self.rows, self.t = rows, t

    @property
    def keys_and_values(self) -> tuple[Array, Array]:
        """Those in use."""
        keys, values = self.arrays
        return keys[: self.rows, : self.t], values[: self.rows, : self.t]

    def extend(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Append n positions, k (R, n, H, d_k) and v (R, n, H, d_v) -> all keys and values"""
        start, (self.rows, n) = self.t, k.shape[:2]
        self.t = start + n
        while self.t > self.arrays[0].shape[1]:
            xp = ops_of(k).xp
            self.arrays = tuple(xp.concatenate([x, xp.empty_like(x)], axis=1) for x in self.arrays)
        for array, new in zip(self.arrays, (k, v)):
            array[: self.rows, start : self.t] = new
        return self.keys_and_values


class SelfAttention(Layer):
    """Multi-head attention of a sequence to itself (paper §3.2.2 and §3.2.3): q, k and v are all projections of x.

        MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O,   head_i = Attention(x W_Q,i, x W_K,i, x W_V,i)

    W_QKV (D, H (2 d_k + d_v)): W_Q, W_K and W_V of all heads side by side; W_O (H d_v, D); biases b_QKV and b_O.

    forward(x (B, T, D), mask, kv_cache) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    With a `kv_cache`, which is for decoding only, x continues the positions in it: it attends to them and to itself,
    and its keys and values are appended.

    Keeps:    x, q, k, v, the weights (B, H, T, S) and the joined heads.
    Raises:   ValueError if d_model is not a multiple of h and d_k or d_v is not given, and if x (or memory) is empty.
    Differs:  the projections have biases, as the published parameter counts require; `bias=False` drops them. The
              projections are initialised as one matrix, as in the paper's code.
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
        self.h = h
        self.d_k, self.d_v = head_sizes(d_model, h, d_k, d_v)
        self.qkv = Linear(d_model, h * (2 * self.d_k + self.d_v), init, dtype, bias)
        self.attention = ScaledDotProductAttention(attention_dropout)
        self.output = Linear(h * self.d_v, d_model, init, dtype, bias)

    def forward(
        self, x: Array, mask: Mask = Mask(), kv_cache: KeyValueCache | None = None, rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        projected, qkv_cache = self.qkv.forward(x)  # (B, T, H (2 d_k + d_v))
        q, k, v = split_heads(projected, self.h, self.d_k, self.d_k, self.d_v)
        if kv_cache:
            k, v = kv_cache.extend(k, v)  # S positions
        heads, attention_cache = self.attention.forward(q, k, v, mask, rng=rng)  # (B, T, H, d_v)
        y, output_cache = self.output.forward(join_heads(heads))  # (B, T, D)
        return y, (qkv_cache, attention_cache, output_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        qkv_cache, attention_cache, output_cache = cache
        # y = join_heads(heads) W_O + b_O
        (dheads,) = split_heads(self.output.backward(dy, output_cache), self.h, self.d_v)
        # heads = attention(q, k, v)
        dq, dk, dv = self.attention.backward(dheads, attention_cache)
        # q, k, v = split_heads(x W_QKV + b_QKV)
        return self.qkv.backward(join_heads(dq, dk, dv), qkv_cache)

    def new_kv_cache(self, rows: int) -> KeyValueCache:
        """An empty cache with room for this many sequences."""
        weight = self.qkv.weight.data
        empty, shape = ops_of(weight).xp.empty, (rows, KeyValueCache.INITIAL_POSITIONS, self.h)
        return KeyValueCache(empty((*shape, self.d_k), weight.dtype), empty((*shape, self.d_v), weight.dtype), rows, 0)


class CrossAttention(Layer):
    """Multi-head attention of the decoder to the encoder's output, `memory` (paper §3.2.2 and §3.2.3): queries are
    projections of x, keys and values of memory.

    W_Q (D, H d_k); W_KV (D, H (d_k + d_v)): W_K and W_V of all heads side by side; W_O (H d_v, D); a bias for each.

    forward(x (B, T, D), memory (B, S, D), mask, kv_cache) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D), dmemory (B, S, D)

    With a `kv_cache`, which is for decoding only, keys and values are taken from it, and memory is not read. Several
    rows of x may belong to one row of the cache: the hypotheses of a sentence.

    Keeps:    x, memory, q, k, v, the weights (B, H, T, S) and the joined heads.
    Raises and Differs:  as SelfAttention.
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
        self.h = h
        self.d_k, self.d_v = head_sizes(d_model, h, d_k, d_v)
        self.q = Linear(d_model, h * self.d_k, init, dtype, bias)
        self.kv = Linear(d_model, h * (self.d_k + self.d_v), init, dtype, bias)
        self.attention = ScaledDotProductAttention(attention_dropout)
        self.output = Linear(h * self.d_v, d_model, init, dtype, bias)

    def forward(
        self,
        x: Array,
        memory: Array | None,
        mask: Mask = Mask(),
        kv_cache: KeyValueCache | None = None,
        rng: DropoutKey | None = None,
    ) -> tuple[Array, Any]:
        projected, q_cache = self.q.forward(x)  # (B, T, H d_k)
        (q,) = split_heads(projected, self.h, self.d_k)
        if kv_cache:
            (k, v), memory_cache = kv_cache.keys_and_values, None
            q = q.reshape(len(k), -1, *q.shape[2:])
        else:
            k, v, memory_cache = self.keys_and_values(memory)
        heads, attention_cache = self.attention.forward(q, k, v, mask, rng=rng)  # (B, T, H, d_v)
        y, output_cache = self.output.forward(join_heads(heads).reshape(*x.shape[:-1], -1))  # (B, T, D)
        return y, (q_cache, memory_cache, attention_cache, output_cache)

    def keys_and_values(self, memory: Array) -> tuple[Array, Array, Any]:
        """memory (B, S, D) -> k (B, S, H, d_k), v (B, S, H, d_v), cache"""
        projected, cache = self.kv.forward(memory)  # (B, S, H (d_k + d_v))
        k, v = split_heads(projected, self.h, self.d_k, self.d_v)
        return k, v, cache

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        q_cache, memory_cache, attention_cache, output_cache = cache
        # y = join_heads(heads) W_O + b_O
        (dheads,) = split_heads(self.output.backward(dy, output_cache), self.h, self.d_v)
        # heads = attention(q, k, v)
        dq, dk, dv = self.attention.backward(dheads, attention_cache)
        # k, v = split_heads(memory W_KV + b_KV)
        dmemory = self.kv.backward(join_heads(dk, dv), memory_cache)
        # q = split_heads(x W_Q + b_Q)
        return self.q.backward(join_heads(dq), q_cache), dmemory

    def new_kv_cache(self, memory: Array) -> KeyValueCache:
        """The keys and values of memory (B, S, D), head by head in memory: products with them are faster so."""
        k, v, _ = self.keys_and_values(memory)
        k, v = (by_head(ops_of(x).xp.ascontiguousarray(by_head(x))) for x in (k, v))
        return KeyValueCache(k, v, *memory.shape[:2])
