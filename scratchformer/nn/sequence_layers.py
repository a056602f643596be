"""The layers that Table 1 of the paper compares self-attention with: convolutions, and attention to neighbours only.

All of them are called as `SelfAttention` is, with (B, T, D) and a `Mask`, and give (B, T, D). A position reads a window
around its own. With a causal mask the window ends there, and padding is read as if the sequence had ended before it.
The recurrent layer of Table 1 is not part of any model here: lessons/support/recurrent.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.ops import allowed, by_head, chunks, ops_of, rows_of, transposed
from scratchformer.nn.parameter import Array, Layer, Parameter

# Windows --------------------------------------------------------------------------------------------------------------


def padding_of(size: int, dilation: int, causal: bool) -> tuple[int, int]:
    """Count the positions that a window of `size` positions, `dilation` apart, reaches back from its own, and ahead.

    If it cannot reach equally far, it reaches one position further ahead, as in PyTorch's padding="same".
    """
    span = dilation * (size - 1)
    back = span if causal else span // 2
    return back, span - back


def padded(x: Array, back: int, ahead: int, mask: Mask) -> Array:
    """x (B, T, D) with zeros around it and in place of padding tokens -> (B, back + T + ahead, D)"""
    B, T, D = x.shape
    xp = ops_of(x).xp
    x_padded = xp.zeros((B, back + T + ahead, D), x.dtype)
    x_padded[:, back : back + T] = x if mask.key_lengths is None else x * not_padding(xp, T, mask)
    return x_padded


def padded_backward(dx_padded: Array, back: int, T: int, mask: Mask) -> Array:
    """(B, back + T + ahead, D) -> dx (B, T, D), zero for padding tokens."""
    dx = dx_padded[:, back : back + T]
    return dx if mask.key_lengths is None else dx * not_padding(ops_of(dx).xp, T, mask)


def not_padding(xp: Any, T: int, mask: Mask) -> Array:
    """bool (B, T, 1), False for padding tokens."""
    return allowed(xp, 1, T, mask.key_lengths, causal=False)[:, 0, 0, :, None]


def shifted_views(x_padded: Array, T: int, size: int, dilation: int) -> list[Array]:
    """For each place in the windows of T positions, what all of them read there: views (B, T, D) of x_padded."""
    return [x_padded[:, place * dilation : place * dilation + T] for place in range(size)]


def require_positive(name: str, size: int) -> None:
    """Raises ValueError unless the size is at least 1."""
    if size < 1:
        raise ValueError(f"{name}={size}: must be at least 1")


# Convolutions ---------------------------------------------------------------------------------------------------------


class Convolution(Layer):
    """Convolution over the positions (paper §4 and Table 1; dilated: van den Oord et al. 2016).

        y_t = b + sum over i of x_{t + dilation i - back} W_i,   i = 0 ... k - 1

    W (k, D, D), Glorot uniform: limit sqrt(6 / (2 k D)); b (D,), zeros. `back` is what `padding_of` says: the window is
    centred on t, or with a causal mask ends there. What lies before the sequence and after it is 0, and so is padding.

    forward(x (B, T, D), mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:   x padded, (B, T + dilation (k - 1), D).
    Raises:  ValueError if k or dilation is less than 1.
    """

    def __init__(
        self, d_model: int, k: int, init: np.random.Generator, dtype: str = "float32", dilation: int = 1
    ) -> None:
        require_positive("k", k)
        require_positive("dilation", dilation)
        self.k, self.dilation = k, dilation
        limit = math.sqrt(6 / (2 * k * d_model))
        self.weight = Parameter(init.uniform(-limit, limit, (k, d_model, d_model)).astype(dtype))
        self.bias = Parameter(np.zeros(d_model, dtype))

    def forward(self, x: Array, mask: Mask = Mask(), rng: DropoutKey | None = None) -> tuple[Array, Any]:
        ops = ops_of(x)
        back, ahead = padding_of(self.k, self.dilation, mask.causal)
        x_padded = padded(x, back, ahead, mask)
        y = ops.xp.zeros(x.shape, x.dtype)
        y += self.bias.data
        for view, W in zip(shifted_views(x_padded, x.shape[1], self.k, self.dilation), self.weight.data):
            y += ops.matmul(view, W)
        return y, (x_padded, back, mask)

    def backward(self, dy: Array, cache: Any) -> Array:
        x_padded, back, mask = cache
        ops, T = ops_of(dy), dy.shape[1]
        dx_padded = ops.xp.zeros(x_padded.shape, x_padded.dtype)
        views, dviews = (shifted_views(each, T, self.k, self.dilation) for each in (x_padded, dx_padded))
        for i, (view, dview) in enumerate(zip(views, dviews)):
            # y += view W_i
            ops.add_product_inplace(self.weight.grad[i], rows_of(view).T, rows_of(dy))
            dview += ops.matmul(dy, self.weight.data[i].T)
        # y += b
        self.bias.grad += rows_of(dy).sum(axis=0)
        return padded_backward(dx_padded, back, T, mask)


class SeparableConvolution(Layer):
    """Convolution of each channel by itself, then a product at each position (paper §4; Chollet 2017).

        y_t = z_t W + b,   z_t = sum over i of w_i * x_{t + dilation i - back},   i = 0 ... k - 1

    w (k, D): `weight`, uniform with limit sqrt(6 / (2 k)), which is Glorot's for k inputs and k outputs; W (D, D) and
    b (D,): `pointwise`. For `back` and what is read as 0: Convolution.

    forward(x (B, T, D), mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:   x padded, (B, T + dilation (k - 1), D), and z.
    Raises:  ValueError if k or dilation is less than 1.
    """

    def __init__(
        self, d_model: int, k: int, init: np.random.Generator, dtype: str = "float32", dilation: int = 1
    ) -> None:
        require_positive("k", k)
        require_positive("dilation", dilation)
        self.k, self.dilation = k, dilation
        limit = math.sqrt(6 / (2 * k))
        self.weight = Parameter(init.uniform(-limit, limit, (k, d_model)).astype(dtype))
        self.pointwise = Linear(d_model, d_model, init, dtype)

    def forward(self, x: Array, mask: Mask = Mask(), rng: DropoutKey | None = None) -> tuple[Array, Any]:
        back, ahead = padding_of(self.k, self.dilation, mask.causal)
        x_padded = padded(x, back, ahead, mask)
        z = ops_of(x).xp.zeros(x.shape, x.dtype)
        for view, w in zip(shifted_views(x_padded, x.shape[1], self.k, self.dilation), self.weight.data):
            z += view * w
        y, pointwise_cache = self.pointwise.forward(z)
        return y, (x_padded, back, mask, pointwise_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        x_padded, back, mask, pointwise_cache = cache
        xp, T = ops_of(dy).xp, dy.shape[1]
        # y = z W + b
        dz = self.pointwise.backward(dy, pointwise_cache)
        dx_padded = xp.zeros(x_padded.shape, x_padded.dtype)
        views, dviews = (shifted_views(each, T, self.k, self.dilation) for each in (x_padded, dx_padded))
        for i, (view, dview) in enumerate(zip(views, dviews)):
            # z += view * w_i
            self.weight.grad[i] += xp.einsum("btd,btd->d", view, dz)
            dview += dz * self.weight.data[i]
        return padded_backward(dx_padded, back, T, mask)


# Attention to neighbours ----------------------------------------------------------------------------------------------


class RestrictedAttention(ScaledDotProductAttention):
    """Scaled dot-product attention of each position to the r positions around its own (paper §4: "restricted").

    Equation 1, with a softmax over the window alone. `padding_of` says where it lies: centred, or with a causal mask
    ending at the position itself. Queries and keys are of one sequence. Queries are taken in blocks of r neighbours:
    one matrix product multiplies a block with the up to 2 r - 1 keys that it reaches, and a mask leaves each query its
    own window. This takes at most 2 n (2 r - 1) d multiplications for n positions, twice what Table 1 counts, and no
    array of n x n.

    forward(q (B, T, H, K), k (B, T, H, K), v (B, T, H, d_v), mask) -> y (B, T, H, d_v), cache
    backward(dy (B, T, H, d_v), cache) -> dq (B, T, H, K), dk (B, T, H, K), dv (B, T, H, d_v)

    Keeps:   q, k, v, and for each r queries their weights, (B, H, r, up to 2 r - 1).
    Raises:  ValueError if r is less than 1, or if there are no queries, keys or values.
    Differs: no weights are dropped: `rng` is taken only because ScaledDotProductAttention takes it, and is not used.
    """

    def __init__(self, r: int) -> None:
        require_positive("r", r)
        super().__init__()
        self.r = r

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        if not (q.size and k.size and v.size):
            raise ValueError(f"attention to an empty array: queries {q.shape}, keys {k.shape}, values {v.shape}")
        ops = ops_of(q)
        y = ops.xp.empty((*q.shape[:-1], v.shape[-1]), v.dtype)  # (B, T, H, d_v)
        kept = []
        for queries, keys in self.blocks(q.shape[1], mask.causal):
            scores = ops.matmul(by_head(q[:, queries]), transposed(by_head(k[:, keys])))  # (B, H, r, 2 r - 1)
            may = self.in_window(ops.xp, queries, keys, mask)
            scores = ops.xp.where(may, scores, -math.inf).astype(scores.dtype, copy=False)
            weights = ops.masked_softmax(scores, 1 / math.sqrt(q.shape[-1]), None, causal=False)
            ops.matmul(weights, by_head(v[:, keys]), out=by_head(y[:, queries]))
            kept.append(weights)
        return y, RestrictedCache(q, k, v, kept, mask)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array, Array]:
        q, k, v, kept, mask = cache
        ops = ops_of(dy)
        dq, dk, dv = (ops.xp.zeros(x.shape, x.dtype) for x in (q, k, v))
        for weights, (queries, keys) in zip(kept, self.blocks(q.shape[1], mask.causal)):
            # y = weights v
            dv[:, keys] += by_head(ops.matmul(transposed(weights), by_head(dy[:, queries])))
            dweights = ops.matmul(by_head(dy[:, queries]), transposed(by_head(v[:, keys])))
            # weights = softmax(scores / sqrt(d_k)), 0 outside the window
            dscores = ops.masked_softmax_backward(dweights, weights, 1 / math.sqrt(q.shape[-1]))
            # scores = q k^T
            ops.matmul(dscores, by_head(k[:, keys]), out=by_head(dq[:, queries]))
            dk[:, keys] += by_head(ops.matmul(transposed(dscores), by_head(q[:, queries])))
        return dq, dk, dv

    def blocks(self, T: int, causal: bool) -> list[tuple[slice, slice]]:
        """Blocks of r queries, each with the keys that at least one of them reaches."""
        back, ahead = padding_of(self.r, 1, causal)
        blocks = [slice(block.start, min(block.stop, T)) for block in chunks(T, self.r)]
        return [(block, slice(max(0, block.start - back), min(block.stop + ahead, T))) for block in blocks]

    def in_window(self, xp: Any, queries: slice, keys: slice, mask: Mask) -> Array:
        """The mask of these queries and keys: bool (queries, keys), with lengths (B, 1, ., .)."""
        back, ahead = padding_of(self.r, 1, mask.causal)
        query, key = xp.arange(queries.start, queries.stop)[:, None], xp.arange(keys.start, keys.stop)
        may = (key >= query - back) & (key <= query + ahead)
        if mask.key_lengths is not None:
            may = may & (key < xp.asarray(mask.key_lengths)[:, None])[:, None, None, :]
        return may


class RestrictedCache(NamedTuple):
    """The cache of RestrictedAttention: its inputs, the weights of each r queries, and the mask."""

    q: Array
    k: Array
    v: Array
    kept: list[Array]
    mask: Mask


class RestrictedSelfAttention(SelfAttention):
    """Self-attention restricted to a neighbourhood of r positions (paper §4 and Table 1).

    SelfAttention with the same parameters, but for the window: `RestrictedAttention` in place of equation 1. If r is at
    least 2 T - 1, or T with a causal mask, they are the same.

    forward(x (B, T, D), mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:   x, q, k, v, the weights in the windows (B, H, T, up to 2 r - 1) and the joined heads.
    Raises:  ValueError as SelfAttention, and if r is less than 1.
    Differs: as SelfAttention, and no weights are dropped: there is no `attention_dropout`.
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        r: int,
        init: np.random.Generator,
        dtype: str = "float32",
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, h, init, dtype, d_k, d_v, bias)
        self.attention = RestrictedAttention(r)
