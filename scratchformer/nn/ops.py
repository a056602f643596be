"""The arithmetic under the layers: each operation `f` beside its `f_backward`, as readable NumPy.

An operation is a boundary at which a faster version may take over: another array library, or a kernel that does in one
pass what takes several here. The code below is the specification every such version is tested against, and it runs with
any module that has NumPy's interface. Layers find the operations of their data with `ops_of(x)`.

    f(...)                 -> y, or (y, saved) where backward needs more than the inputs
    f_backward(dy, ...)    -> gradients of the float inputs; gradients of weights are added into the d... arguments

Shapes: `...` any leading axes; B batch, T queries, S keys, H heads, D d_model, V vocabulary. Weights and activations
are arrays of one library. Ids, lengths and numbers of rows are NumPy arrays, whatever the library: they come from the
host, which makes decisions by them, and an operation sends them where it needs them (`xp.asarray`).
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Iterator

import numpy as np

from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.parameter import Array

PAD = 0
"""The id of padding. Its embedding is zero, and as a target it counts for nothing."""


class Ops:
    """The reference operations on the arrays of one library; `xp` is its module."""

    logits_at_once = 2**23
    """The loss is computed for about as many logits at a time (32 MB in float32)."""

    part = 1 << 20
    """Numbers of a flat array that are worked on at a time, by whichever thread is free."""

    def __init__(self, xp: ModuleType) -> None:
        self.xp = xp

    # Products ---------------------------------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Matrix product over the last two axes. Transposed and strided views are read where they lie."""
        return self.xp.matmul(a, b, out=out)

    def add_product(self, total: Array, a: Array, b: Array) -> None:
        """total += a b, in place, for matrices: how a gradient collects its shares."""
        total += self.matmul(a, b)

    def linear(self, x: Array, W: Array, b: Array | None) -> Array:
        """y = x W + b.   x (..., in), W (in, out), b (out,) or None -> y (..., out)"""
        y = self.matmul(rows_of(x), W)
        if b is not None:
            y += b
        return y.reshape(*x.shape[:-1], W.shape[1])

    def linear_backward(self, dy: Array, x: Array, W: Array, dW: Array, db: Array | None) -> Array:
        """dy (..., out) -> dx (..., in); adds into dW and db, in which every row of x has a share."""
        x_rows, dy_rows = rows_of(x), rows_of(dy)
        self.add_product(dW, x_rows.T, dy_rows)
        if db is not None:
            db += dy_rows.sum(axis=0)
        return self.matmul(dy_rows, W.T).reshape(x.shape)

    # Activation and dropout -------------------------------------------------------------------------------------------

    def relu(self, x: Array) -> Array:
        """y = max(x, 0)."""
        return self.xp.maximum(x, 0)

    def relu_backward(self, dy: Array, y: Array) -> Array:
        """The gradient passes where the output is positive. At exactly 0 it is taken to be 0."""
        return dy * (y > 0)

    def dropout(self, x: Array, P_drop: float, rng: DropoutKey | None) -> tuple[Array, Array | None]:
        """Zero each element with probability P_drop and scale the others up. -> y, saved (the kept ones, None = all)"""
        if rng is None or P_drop == 0:
            return x, None
        kept = self.xp.asarray(rng.keep(x.shape, P_drop))
        return self.dropout_backward(x, kept, P_drop), kept

    def dropout_backward(self, dy: Array, kept: Array | None, P_drop: float) -> Array:
        """Dropout is a product with a constant mask, so backward is the same product."""
        if kept is None:
            return dy
        dx = dy * kept
        dx *= keep_scale(P_drop)
        return dx

    # Residual and normalisation ---------------------------------------------------------------------------------------

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, tuple]:
        """y = gamma (x - mean) / sqrt(variance + eps) + beta over the last axis, with the biased variance.

        x (..., D); gamma, beta (D,) -> y (..., D), saved
        """
        normalized = x - x.mean(axis=-1, keepdims=True)
        variance = self.xp.einsum("...d,...d->...", normalized, normalized)[..., None] / x.shape[-1]
        inverse_std = 1 / self.xp.sqrt(variance + eps)
        normalized *= inverse_std
        y = normalized * gamma
        y += beta
        return y, (normalized, inverse_std)

    def layer_norm_backward(self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array) -> Array:
        """dy (..., D) -> dx (..., D); adds into dgamma and dbeta (D,). With n the normalised x and means over D,

            dn = gamma dy,   dx = (dn - mean(dn) - n mean(dn n)) / sqrt(variance + eps)

        To shift or to stretch x hardly changes n. So the share of dn along the all-ones direction and the share along n
        are taken out.
        """
        normalized, inverse_std = saved
        dbeta += rows_of(dy).sum(axis=0)
        dgamma += self.xp.einsum("nd,nd->d", rows_of(dy), rows_of(normalized))
        dnormalized = dy * gamma
        along_itself = self.xp.einsum("...d,...d->...", dnormalized, normalized)[..., None] / dy.shape[-1]
        dx = dnormalized - dnormalized.mean(axis=-1, keepdims=True)
        dx -= normalized * along_itself
        dx *= inverse_std
        return dx

    def add_norm(
        self, x: Array, update: Array, gamma: Array, beta: Array, eps: float, P_drop: float, rng: DropoutKey | None
    ) -> tuple[Array, tuple]:
        """y = LayerNorm(x + dropout(update)).   x, update (..., D) -> y (..., D), saved"""
        dropped, kept = self.dropout(update, P_drop, rng)
        y, saved = self.layer_norm(x + dropped, gamma, beta, eps)
        return y, (kept, saved)

    def add_norm_backward(
        self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array, P_drop: float
    ) -> tuple[Array, Array]:
        """dy (..., D) -> dx, dupdate (..., D); adds into dgamma and dbeta."""
        kept, norm_saved = saved
        dx = self.layer_norm_backward(dy, norm_saved, gamma, dgamma, dbeta)
        return dx, self.dropout_backward(dx, kept, P_drop)

    # Attention --------------------------------------------------------------------------------------------------------

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Array | None, causal: bool) -> Array:
        """weights = softmax(scale * scores) over the keys a query may attend to; every other weight is exactly 0.

        scores       (B, H, T, S)
        key_lengths  (B,) int on the host, or None: sequence b has key_lengths[b] real keys, then padding
        causal       the last query sees all keys, each query before it one key less
        A query that may attend to nothing gets zeros.
        """
        xp = self.xp
        scores = scores * scale
        if key_lengths is not None or causal:
            T, S = scores.shape[-2:]
            scores += xp.where(allowed(xp, T, S, key_lengths, causal), 0, -math.inf).astype(scores.dtype)
        highest = scores.max(axis=-1, keepdims=True)  # -inf where nothing is allowed
        scores -= xp.where(highest == -math.inf, 0, highest)  # so that exp cannot overflow
        weights = xp.exp(scores, out=scores)
        total = weights.sum(axis=-1, keepdims=True)
        weights /= xp.where(total == 0, 1, total)
        return weights

    def masked_softmax_backward(self, dweights: Array, weights: Array, scale: float) -> Array:
        """dweights -> dscores, (B, H, T, S) both. Zero wherever the weight is zero, so the mask is not needed.

        dscores = scale weights (dweights - sum_s dweights weights)
        """
        dscores = dweights - self.xp.einsum("...s,...s->...", dweights, weights)[..., None]
        dscores *= weights
        dscores *= scale
        return dscores

    # Words ------------------------------------------------------------------------------------------------------------

    def embedding(self, ids: Array, E: Array, scale: float) -> Array:
        """x = scale E[ids], and zero for padding.   ids (B, T) int, E (V, D) -> x (B, T, D)"""
        ids = self.xp.asarray(ids)
        x = E[ids]
        x *= (ids != PAD)[..., None] * x.dtype.type(scale)
        return x

    def embedding_backward(self, dx: Array, ids: Array, scale: float, dE: Array) -> None:
        """Adds scale dx into the rows of dE (V, D). `dE[ids] += dx` would lose all but one of a repeated id."""
        ids = self.xp.asarray(ids)
        real = ids != PAD
        self.xp.add.at(dE, ids[real], dx[real] * scale)

    def cross_entropy(
        self, logits: Array, targets: Array, on_target: float, everywhere: float, out: Array | None = None
    ) -> tuple[Array, Array]:
        """Cross-entropy against a smoothed target, and its gradient in the same pass.

        The target distribution q is `everywhere` on each class and `on_target` more on the right one, and sums to 1.

            loss = -sum_v q_v log p_v,   p = softmax(logits),   dloss / dlogits = p - q

        logits (n, V), targets (n,) int -> sum of the losses in nats, dlogits (n, V). A padded target adds nothing to
        either. `out` receives dlogits and may be `logits` itself.
        """
        xp = self.xp
        targets = xp.asarray(targets)
        row, real = xp.arange(len(targets)), targets != PAD
        dlogits = xp.subtract(logits, logits.max(axis=-1, keepdims=True), out=out)
        smoothed_score = on_target * dlogits[row, targets]
        if everywhere:
            smoothed_score += everywhere * dlogits.sum(axis=-1)
        p = xp.exp(dlogits, out=dlogits)
        total = p.sum(axis=-1, keepdims=True)
        losses = xp.log(total[:, 0]) - smoothed_score
        p /= total
        dlogits -= everywhere  # p - q, in place of p
        dlogits[row, targets] -= on_target
        dlogits *= real[:, None]
        return (losses * real).sum(dtype=xp.float64), dlogits

    def log_sum_exp(self, logits: Array) -> Array:
        """log sum_v exp(logits), (..., V) -> (...): logits minus this are log probabilities."""
        highest = logits.max(axis=-1)
        return highest + self.xp.log(self.xp.exp(logits - highest[..., None]).sum(axis=-1))

    # Rows -------------------------------------------------------------------------------------------------------------

    def take_rows(self, x: Array, index: Array) -> Array:
        """The rows of x (..., D) whose numbers stand in index (n,) int -> (n, D)"""
        return rows_of(x)[self.xp.asarray(index)]

    def take_rows_backward(self, drows: Array, index: Array, shape: tuple[int, ...]) -> Array:
        """drows (n, D) -> dx (..., D) of this shape. A row that was not taken has no gradient; none was taken twice."""
        dx = self.xp.zeros(shape, drows.dtype)
        rows_of(dx)[self.xp.asarray(index)] = drows
        return dx

    def on_host(self, x: Array) -> np.ndarray:
        """The same numbers as a NumPy array. From another device this waits until they are computed."""
        return np.asarray(x)

    # Optimizer --------------------------------------------------------------------------------------------------------

    def mean_inplace(self, total: Array, n: int) -> Array:
        """total /= n, in place, for a flat array -> the sum of its squares then, 0-d float64"""
        total /= n
        return (total @ total).astype(self.xp.float64)

    def adam(
        self,
        w: Array,
        dw: Array,
        m: Array,
        v: Array,
        step_size: float,
        beta1: float,
        beta2: float,
        eps: float,
        norm: Array | None = None,
    ) -> None:
        """One step of Adam on flat arrays (n,), in place: w, m and v change, dw does not.

        norm  of the whole gradient, 0-d: if it is given and not finite, nothing changes
        """
        if norm is not None and not self.xp.isfinite(norm):
            return
        for block in chunks(w.size, ADAM_BLOCK):  # a block stays in the cache
            g, m_block, v_block = dw[block], m[block], v[block]
            m_block *= beta1
            m_block += (1 - beta1) * g
            v_block *= beta2
            v_block += (1 - beta2) * (g * g)
            denominator = self.xp.sqrt(v_block)
            denominator += eps
            w[block] -= step_size * (m_block / denominator)


ADAM_BLOCK = 1 << 15


def rows_of(x: Array) -> Array:
    """View (..., n) as a matrix (rows, n)."""
    return x.reshape(-1, x.shape[-1])


def chunks(length: int, size: int) -> Iterator[slice]:
    """Slices that cut `length` things into pieces of `size`."""
    return (slice(start, start + size) for start in range(0, length, size))


def allowed(xp: ModuleType, T: int, S: int, key_lengths: Array | None, causal: bool) -> Array:
    """Which query may attend to which key: bool (B or 1, 1, T, S), True = may attend."""
    key = xp.arange(S)
    may = xp.ones((1, 1, T, S), bool)
    if key_lengths is not None:
        key_lengths = xp.asarray(key_lengths)
        may = may & (key < key_lengths[:, None])[:, None, None, :]
    if causal:
        may = may & (key <= xp.arange(S - T, S)[:, None])
    return may


OPS: dict[type, Ops] = {np.ndarray: Ops(np)}
"""Array type -> its operations. A backend adds its own entry when it is chosen."""

FAST: dict[tuple[type, np.dtype], Ops] = {}
"""Array type and dtype -> operations that are quicker than those of OPS and tested against them."""


def ops_of(x: Array) -> Ops:
    """The operations for this array: the data decide where they are worked on, and how."""
    kind = type(x)
    if kind not in OPS:
        raise TypeError(f"no operations for arrays of type {kind.__module__}.{kind.__name__}")
    return FAST.get((kind, x.dtype), OPS[kind])
