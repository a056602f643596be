"""The block that language models use today: five small changes to the paper's layer (Touvron et al. 2023).

RMSNorm in place of LayerNorm, before each sublayer; SwiGLU in place of max(0, .); rotary positions (or ALiBi) inside
attention in place of sinusoids; heads that share keys and values; no biases in attention. A configuration chooses each
by name: norm="rms", feed_forward="swiglu", positions="rotary" or "alibi", h_kv, attention_bias=False.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.nn.attention import KeyValueCache, Mask, ScaledDotProductAttention, head_sizes, join_heads
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.ops import ops_of, rows_of
from scratchformer.nn.parameter import Array, Layer, Parameter


class RMSNorm(Layer):
    """LayerNorm without its mean and without beta (Zhang and Sennrich 2019).

        y = gamma x / sqrt(mean(x^2) + eps)     over the last axis

    gamma (D,), ones.

    forward(x (..., D)) -> y (..., D), cache
    backward(dy (..., D), cache) -> dx (..., D). With n the normalised x and the mean over D,

        dn = gamma dy,   dx = (dn - n mean(dn n)) / sqrt(mean(x^2) + eps)

    n hardly changes when x is stretched, so backward removes from dn its component along n. LayerNorm also removes
    the component along the all-ones direction, because its n does not change when x is shifted.

    Keeps:  n, and 1 / sqrt(mean(x^2) + eps) of each row.
    """

    def __init__(self, d_model: int, dtype: str = "float32", eps: float = 1e-6) -> None:
        self.gamma = Parameter(np.ones(d_model, dtype))
        self.eps = eps

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        inverse_rms = (1 / ops_of(x).xp.sqrt(mean_product(x, x) + self.eps)).astype(x.dtype)
        n = x * inverse_rms
        return n * self.gamma.data, (n, inverse_rms)

    def backward(self, dy: Array, cache: Any) -> Array:
        n, inverse_rms = cache
        # y = gamma n
        self.gamma.grad += rows_of(dy * n).sum(axis=0, dtype=self.gamma.grad.dtype)
        dn = dy * self.gamma.data
        # n = x / sqrt(mean(x^2) + eps)
        return (dn - n * mean_product(dn, n).astype(n.dtype)) * inverse_rms


def mean_product(x: Array, y: Array) -> Array:
    """The mean of x y over the last axis, (..., D) -> (..., 1), in float32 at least: a sum in bf16 loses too much."""
    product = x.astype(np.promote_types(x.dtype, np.float32), copy=False) * y
    return product.sum(axis=-1, keepdims=True) / x.shape[-1]


class SwiGLU(Layer):
    """Feed-forward network with a gate (Shazeer 2020): one product decides how much of the other passes.

        FFN(x) = (silu(x W_gate) * (x W_value)) W_outer,   silu(z) = z sigmoid(z)

    W_gate and W_value (D, F) side by side as one matrix (D, 2 F); W_outer (F, D). No biases. Three matrices instead
    of two: an F of 2/3 of the usual size gives the same number of parameters.

    forward(x (..., D)) -> y (..., D), cache
    backward(dy (..., D), cache) -> dx (..., D)

    Keeps:    x, gate and value before the product, and the product (..., F).
    Differs:  `hidden_dropout` drops units of the product, as relu_dropout does in FeedForward; Shazeer's value is 0.
    """

    def __init__(
        self, d_model: int, d_ff: int, init: np.random.Generator, dtype: str = "float32", hidden_dropout: float = 0.0
    ) -> None:
        self.hidden_dropout = hidden_dropout
        self.inner = Linear(d_model, 2 * d_ff, init, dtype, bias=False)
        self.outer = Linear(d_ff, d_model, init, dtype, bias=False)

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        ops = ops_of(x)
        both, inner_cache = self.inner.forward(x)  # (..., 2 F)
        d_ff = both.shape[-1] // 2
        gate, value = both[..., :d_ff], both[..., d_ff:]
        hidden, kept = ops.dropout(gate * sigmoid(ops.xp, gate) * value, self.hidden_dropout, rng)
        y, outer_cache = self.outer.forward(hidden)
        return y, (inner_cache, gate, value, kept, outer_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        inner_cache, gate, value, kept, outer_cache = cache
        ops = ops_of(dy)
        # y = dropout(hidden) W_outer
        dhidden = ops.dropout_backward(self.outer.backward(dy, outer_cache), kept, self.hidden_dropout)  # (..., F)
        # hidden = silu(gate) value;   silu' = s + z s (1 - s), with s = sigmoid(z)
        s = sigmoid(ops.xp, gate)
        dgate = dhidden * value * (s + gate * s * (1 - s))
        dvalue = dhidden * gate * s
        # gate, value = x W_inner
        return self.inner.backward(ops.side_by_side([dgate, dvalue]), inner_cache)


def sigmoid(xp: Any, z: Array) -> Array:
    """1 / (1 + exp(-z)), by tanh, which cannot overflow."""
    return (0.5 * (1 + xp.tanh(0.5 * z))).astype(z.dtype, copy=False)


# Positions inside attention -------------------------------------------------------------------------------------------


class RotaryPositions(Layer):
    """Rotary position embedding (Su et al. 2021): turn pairs of coordinates of q and k by an angle for their position.

        (a, b) -> (a cos - b sin, b cos + a sin),   angle = position theta^(-2i / d_k) for the pair i

    The product of a turned q and a turned k depends on the difference of their positions alone. The pair i is made of
    the coordinates i and i + d_k / 2, as in the published weights of Llama; Su et al. pair 2i and 2i + 1.

    forward(qk (B, T, H + H_kv, K), first=0) -> y of the same shape, cache: the heads of q, then those of k
    backward(dy, cache) -> dqk: the gradient turned back, by the opposite angle

    `first` is the position of qk[:, 0].

    Keeps:  the cosines and sines (T, 1, K / 2).
    Raises: ValueError if d_k is odd.
    """

    def __init__(self, d_k: int, theta: float = 10_000.0) -> None:
        if d_k % 2:
            raise ValueError(f"rotary positions turn pairs of coordinates, so d_k={d_k} must be even")
        self.d_k, self.theta = d_k, theta
        self.key_width = d_k

    def forward(self, qk: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        angle = np.arange(first, first + qk.shape[1])[:, None] * self.theta ** (-np.arange(0, self.d_k, 2) / self.d_k)
        asarray = ops_of(qk).xp.asarray
        cos, sin = (asarray(each[:, None].astype(qk.dtype)) for each in (np.cos(angle), np.sin(angle)))
        return self.turned(qk, cos, sin), (cos, sin)

    def backward(self, dy: Array, cache: Any) -> Array:
        cos, sin = cache
        # y = qk turned by the angle
        return self.turned(dy, cos, -sin)

    def turned(self, x: Array, cos: Array, sin: Array) -> Array:
        """Turn the pairs (i, i + K / 2) of x (B, T, ., K) by angles whose cosines and sines are (T, 1, K / 2)."""
        a, b = x[..., : self.d_k // 2], x[..., self.d_k // 2 :]
        return ops_of(x).side_by_side([a * cos - b * sin, b * cos + a * sin])


class AlibiPositions(Layer):
    """Attention with linear biases (Press et al. 2022): the score of a key falls with its distance, head by head.

        score = q k / sqrt(d_k) - m_h (t - s),   m_h = 2^(-8 h / H) for the heads h = 1 ... H

    softmax ignores what all keys of a query share, so m_h s can be added instead, as one more coordinate of q and k.
    The wider q and k are divided by sqrt(d_k + 1) in attention, which two factors undo:

        q -> [q sqrt((d_k + 1) / d_k), m_h sqrt(d_k + 1)],   k -> [k, s]

    forward(qk (B, T, H + H_kv, K), first=0) -> y (B, T, H + H_kv, K + 1), cache: the heads of q, then those of k
    backward(dy (B, T, H + H_kv, K + 1), cache) -> dqk (B, T, H + H_kv, K)

    Keeps:    nothing.
    Differs:  for causal attention only. If H is not a power of 2, Press et al. interleave the slopes of two powers.
              On a GPU, positions beyond 2,048 are rounded in tf32 and fp16, those beyond 256 in bf16.
    """

    def __init__(self, d_k: int, h: int) -> None:
        self.h = h
        self.key_width = d_k + 1
        self.stretch = math.sqrt(self.key_width / d_k)

    def forward(self, qk: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        xp, h = ops_of(qk).xp, self.h
        y = xp.empty((*qk.shape[:-1], self.key_width), qk.dtype)
        y[..., :-1] = qk
        y[:, :, :h, :-1] *= self.stretch
        y[:, :, :h, -1] = xp.asarray(2.0 ** (-8 * np.arange(1, h + 1) / h) * math.sqrt(self.key_width))
        y[:, :, h:, -1] = xp.arange(first, first + qk.shape[1])[:, None]
        return y, ()

    def backward(self, dy: Array, cache: Any) -> Array:
        # y = qk, the heads of q stretched, and a column of constants
        dqk = dy[..., :-1].copy()
        dqk[:, :, : self.h] *= self.stretch
        return dqk


# Attention ------------------------------------------------------------------------------------------------------------


class GroupedQueryAttention(Layer):
    """Self-attention in which several query heads share one head of keys and values (Ainslie et al. 2023), with
    positions inside.

        head_i = Attention(P(x W_Q,i), P(x W_K,j), x W_V,j),   j = i // (h / h_kv),   P: rotary, ALiBi or nothing

    W_QKV (D, H d_k + H_kv (d_k + d_v)): W_Q, W_K and W_V of all heads side by side; W_O (H d_v, D).

    forward(x (B, T, D), mask, kv_cache) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    A `kv_cache`, as in SelfAttention, has H_kv heads, and its keys have their positions already.

    Keeps:    as SelfAttention; q, k and v are kept with their positions, and k and v once for each query head.
    Raises:   ValueError if h is not a multiple of h_kv.
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        self.h, self.h_kv = config.h, config.h_kv or config.h
        if self.h % self.h_kv:
            raise ValueError(
                f"h={self.h} is not a multiple of h_kv={self.h_kv}: each shared head needs as many queries"
            )
        self.d_k, self.d_v = head_sizes(config.d_model, config.h, config.d_k, config.d_v)
        widths = self.h * self.d_k, self.h_kv * self.d_k, self.h_kv * self.d_v
        self.qkv = Linear(config.d_model, sum(widths), init, dtype, config.attention_bias)
        self.positions = inner_positions(config, self.d_k)
        self.attention = ScaledDotProductAttention(config.attention_dropout)
        self.output = Linear(self.h * self.d_v, config.d_model, init, dtype, config.attention_bias)

    def forward(
        self, x: Array, mask: Mask = Mask(), kv_cache: KeyValueCache | None = None, rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        projected, qkv_cache = self.qkv.forward(x)
        qk, v = self.heads(projected)
        positions_cache = None
        if self.positions:
            qk, positions_cache = self.positions.forward(qk, kv_cache.t if kv_cache else 0)
        q, k = qk[:, :, : self.h], qk[:, :, self.h :]
        if kv_cache:
            k, v = kv_cache.extend(k, v)  # S positions
        k, v = (self.for_each_query_head(each) for each in (k, v))  # (B, S, H, .)
        heads, attention_cache = self.attention.forward(q, k, v, mask, rng=rng)  # (B, T, H, d_v)
        y, output_cache = self.output.forward(join_heads(heads))  # (B, T, D)
        return y, (qkv_cache, positions_cache, attention_cache, output_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        qkv_cache, positions_cache, attention_cache, output_cache = cache
        # y = join_heads(heads) W_O + b_O
        dheads = self.output.backward(dy, output_cache).reshape(*dy.shape[:-1], self.h, self.d_v)
        # heads = attention(q, k, v)
        dq, dk, dv = self.attention.backward(dheads, attention_cache)
        # k, v = for_each_query_head(k), ...: a shared head gets the sum over its group
        dk, dv = (each.reshape(*each.shape[:2], self.h_kv, -1, each.shape[-1]).sum(axis=3) for each in (dk, dv))
        dqk = ops_of(dq).xp.concatenate([dq, dk], axis=2)
        if self.positions:
            dqk = self.positions.backward(dqk, positions_cache)
        # qk, v = heads(x W_QKV + b_QKV)
        return self.qkv.backward(join_heads(dqk, dv), qkv_cache)

    def heads(self, projected: Array) -> tuple[Array, Array]:
        """(B, T, (H + H_kv) d_k + H_kv d_v) -> queries and keys (B, T, H + H_kv, d_k), values (B, T, H_kv, d_v)"""
        width = (self.h + self.h_kv) * self.d_k
        qk, v = projected[..., :width], projected[..., width:]
        return qk.reshape(*qk.shape[:-1], self.h + self.h_kv, self.d_k), v.reshape(*v.shape[:-1], self.h_kv, self.d_v)

    def for_each_query_head(self, x: Array) -> Array:
        """Repeat each shared head for the query heads of its group: (B, S, H_kv, K) -> (B, S, H, K)"""
        return x if self.h == self.h_kv else ops_of(x).xp.repeat(x, self.h // self.h_kv, axis=2)

    def new_kv_cache(self, rows: int) -> KeyValueCache:
        """An empty cache with room for this many sequences."""
        weight = self.qkv.weight.data
        empty, shape = ops_of(weight).xp.empty, (rows, KeyValueCache.INITIAL_POSITIONS, self.h_kv)
        d_k = self.positions.key_width if self.positions else self.d_k
        return KeyValueCache(empty((*shape, d_k), weight.dtype), empty((*shape, self.d_v), weight.dtype), rows, 0)


def inner_positions(config: ModelConfig, d_k: int) -> RotaryPositions | AlibiPositions | None:
    """The positions inside attention, if the configuration asks for them. Raises UserError for ALiBi elsewhere."""
    if config.positions == "rotary":
        return RotaryPositions(d_k, config.rope_theta)
    if config.positions != "alibi":
        return None
    if config.architecture != "decoder":
        raise UserError("model.positions=alibi is for language models: its attention is causal")
    return AlibiPositions(d_k, config.h)
