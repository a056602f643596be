"""Positions of words: a shift of sinusoids; rotary positions and ALiBi, and how a model gets them.

Sinusoids and learned tables add the position to the word, below the first layer. Rotary positions and ALiBi leave the
words alone and change the scores of every self-attention:

    rotary (RoPE)  score(t, s) = <R_t q_t, R_s k_s>           R_p turns neighbours, channels 2i and 2i + 1, by p omega_i
    ALiBi          score(t, s) = <q_t, k_s> - penalty         penalty = slope |t - s|, a slope for each head

Both depend on the distance t - s only. T queries stand at the last T of S positions, as in `nn.attention`: so a model
writes word by word as it was trained. Cross-attention has no common line on which to measure a distance, and is left
as it is.

Sources: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding"; Press, Smith and Lewis 2022,
"Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scratchformer.nn.attention import AttentionCache, Mask, ScaledDotProductAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import NoPositions, sinusoids
from scratchformer.nn.ops import by_head, ops_of, transposed
from scratchformer.nn.parameter import Array, Layer
from scratchformer.nn.transformer import Transformer

# Sinusoids ------------------------------------------------------------------------------------------------------------


def shift_matrix(k: int, d_model: int) -> np.ndarray:
    """The rotation that leads from each position to the one k further on, for k < 0 to one before.

        PE(pos + k) = PE(pos) M   for every pos, PE a row         (paper §3.5)

    M (d_model, d_model) float64, of d_model / 2 blocks [[cos, -sin], [sin, cos]] of the angle by which the pair turns
    in k positions: PE(k) holds their sines and cosines.
    """
    sin, cos = sinusoids(k, 1, d_model).reshape(-1, 2).T  # (d_model / 2,) each
    M = np.zeros((d_model, d_model))
    even = np.arange(0, d_model, 2)
    M[even, even] = M[even + 1, even + 1] = cos
    M[even, even + 1], M[even + 1, even] = -sin, sin
    return M


# Rotary positions -----------------------------------------------------------------------------------------------------


def rotated(x: Array, positions: Array) -> Array:
    """Turn channels 2i and 2i + 1 of the vector at position p, a point in a plane, by the angle p 10000^(-2i / K).

    x (B, T, H, K), positions (T,), which may be negative -> (B, T, H, K)

    The gradient of x is that of the result, turned back: `rotated(dy, -positions)`.
    """
    K = x.shape[-1]
    xp = ops_of(x).xp
    angle = xp.asarray(positions)[:, None, None] * 10000.0 ** (-xp.arange(0, K, 2) / K)  # (T, 1, K/2)
    cos, sin = xp.cos(angle).astype(x.dtype), xp.sin(angle).astype(x.dtype)
    y = xp.empty(x.shape, x.dtype)
    y[..., 0::2] = cos * x[..., 0::2] - sin * x[..., 1::2]
    y[..., 1::2] = sin * x[..., 0::2] + cos * x[..., 1::2]
    return y


class RotaryAttention(ScaledDotProductAttention):
    """Attention whose queries and keys are turned by their positions (Su et al. 2021, section 3.2.2).

        q'_t = R_t q_t,   k'_s = R_s k_s,   then as ScaledDotProductAttention does

    forward and backward as there; values are not turned.

    Keeps:  q' and k' in place of q and k.
    """

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        of_queries, of_keys = places(q.shape[1], k.shape[1])
        return super().forward(rotated(q, of_queries), rotated(k, of_keys), v, mask, rng)

    def backward(self, dy: Array, cache: AttentionCache) -> tuple[Array, Array, Array]:
        of_queries, of_keys = places(cache.q.shape[1], cache.k.shape[1])
        drotated_q, drotated_k, dv = super().backward(dy, cache)
        # q' = R q, and the transpose of a rotation turns back
        return rotated(drotated_q, -of_queries), rotated(drotated_k, -of_keys), dv


def places(T: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions of T queries, which are the last, and of S keys."""
    return np.arange(S - T, S), np.arange(S)


# ALiBi ----------------------------------------------------------------------------------------------------------------


def alibi_slopes(h: int) -> np.ndarray:
    """2^(-8/h), 2^(-16/h), ..., 2^-8: from the head that sees nearest to the one that sees furthest. (h,)"""
    return 2.0 ** (-8 * np.arange(1, h + 1) / h)


def alibi_bias(T: int, S: int, h: int) -> np.ndarray:
    """Build the bias that each head adds to its scaled scores: -slope |t - s|, (h, T, S).

    Under a causal mask no key lies ahead and this is the published form; without, both directions cost the same.
    """
    of_queries, of_keys = places(T, S)
    return -alibi_slopes(h)[:, None, None] * np.abs(of_queries[:, None] - of_keys)


class AlibiAttention(ScaledDotProductAttention):
    """Attention with linear biases (Press et al. 2022).

        Attention(Q, K, V) = dropout(softmax(Q K^T / sqrt(d_k) - slope |t - s|)) V

    forward and backward as ScaledDotProductAttention: the bias is a constant, so nothing flows into it, and backward
    knows all that it needs from the weights.

    Differs:  Press et al. have decoders only. The penalty of keys ahead, which an encoder needs, is the symmetric one:
              such an encoder could not tell a sentence from its mirror image, but for the EOS at its end.
    """

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        ops, scale = ops_of(q), 1 / math.sqrt(q.shape[-1])
        bias = ops.xp.asarray(alibi_bias(q.shape[1], k.shape[1], q.shape[2]) / scale).astype(q.dtype)
        scores = ops.matmul(by_head(q), transposed(by_head(k))) + bias  # (B, H, T, S)
        weights = ops.masked_softmax(scores, scale, mask.key_lengths, mask.causal)
        dropped, kept = ops.dropout(weights, self.attention_dropout, rng)
        y = by_head(ops.matmul(dropped, by_head(v)))  # (B, T, H, d_v)
        return y, AttentionCache(q, k, v, scale, weights, dropped, kept)


# In a model -----------------------------------------------------------------------------------------------------------


class Shifted(Layer):
    """Positions that begin at `by` instead of 0, as if so many words stood before the sentence.

    forward(x (B, T, D), first=0) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)
    """

    def __init__(self, positions: Layer, by: int) -> None:
        self.positions, self.by = positions, by

    def forward(self, x: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return self.positions.forward(x, self.by + first, rng=rng)

    def backward(self, dy: Array, cache: Any) -> Array:
        return self.positions.backward(dy, cache)


IN_ATTENTION: dict[str, type[ScaledDotProductAttention]] = {
    "none": ScaledDotProductAttention,
    "alibi": AlibiAttention,
    "rotary": RotaryAttention,
}
"""Kinds that add nothing to the words -> the self-attention that they use."""


def give_positions(model: Transformer, kind: str) -> None:
    """Make of a model with sinusoids, before its training, one of another kind: none, alibi or rotary."""
    model.source_positions = model.target_positions = NoPositions(model.config.P_drop)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.self_attention.sublayer.attention = IN_ATTENTION[kind](model.config.attention_dropout)
