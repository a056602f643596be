"""The arithmetic under the layers: each operation `f` beside its `f_backward`, as readable NumPy.

This is the specification. A faster version of an operation, such as a CUDA kernel, overrides the method of the same
name and is tested against the one here. Layers call `ops_of(x)` to get the operations in use for their arrays: those
of this module, unless faster ones were chosen, by `use_by_default` for good or by `using` for a block.

    f(...)                 -> y, or (y, saved) where backward needs more than the inputs
    f_backward(dy, ...)    -> gradients of the float inputs; gradients of weights are added into the d... arguments

Shapes: `...` any leading axes; B batch, T queries, S keys, H heads, D d_model, V vocabulary. Weights and activations
are arrays of one library. Ids, lengths and row numbers are always NumPy arrays: the host needs them to make decisions,
and an operation copies them to the device where it needs them (`xp.asarray`).
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Iterator

import numpy as np

from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.parameter import Array

PAD = 0
"""The id of padding, whose embedding and loss are zero. `text.tokenizer` defines it too: neither imports the other."""


class Ops:
    """The reference operations on the arrays of one library.

    xp      the library's module: numpy or cupy
    dtypes  of the arrays that these operations work on; None means all
    """

    logits_at_once = 2**23
    """The loss is computed for about this many logits at a time (32 MB in float32)."""

    elements_at_once = 1 << 20
    """Elements of a flat array that one thread works on at a time."""

    def __init__(self, xp: ModuleType, dtypes: tuple[np.dtype, ...] | None = None) -> None:
        self.xp, self.dtypes = xp, dtypes

    def __repr__(self) -> str:
        dtypes = "all dtypes" if self.dtypes is None else " and ".join(str(dtype) for dtype in self.dtypes)
        return f"{type(self).__name__} for {self.xp.__name__} arrays of {dtypes}"

    # Products ---------------------------------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Matrix product over the last two axes. Transposed and strided views are read without a copy."""
        return self.xp.matmul(a, b, out=out)

    def add_product_inplace(self, total: Array, a: Array, b: Array) -> None:
        """total += a b, in place, for matrices. This is how gradients of weights are added up."""
        total += self.matmul(a, b)

    def add_to_rows_inplace(self, rows: Array, b: Array) -> None:
        """Add b (d,) to each of the rows (n, d), in place."""
        rows += b

    def add_rows_inplace(self, total: Array, rows: Array) -> None:
        """total (d,) += the sum of rows (n, d), in place. This is how gradients of biases are added up."""
        total += rows.sum(axis=0)

    def linear(self, x: Array, W: Array, b: Array | None) -> Array:
        """y = x W + b.   x (..., in), W (in, out), b (out,) or None -> y (..., out)"""
        y = self.matmul(rows_of(x), W)
        if b is not None:
            self.add_to_rows_inplace(y, b)
        return y.reshape(*x.shape[:-1], W.shape[1])

    def linear_backward(self, dy: Array, x: Array, W: Array, dW: Array, db: Array | None) -> Array:
        """dy (..., out) -> dx (..., in); adds into dW and db, summed over all rows of x."""
        x_rows, dy_rows = rows_of(x), rows_of(dy)
        self.add_product_inplace(dW, x_rows.T, dy_rows)
        if db is not None:
            self.add_rows_inplace(db, dy_rows)
        return self.matmul(dy_rows, W.T).reshape(x.shape)

    # Activation and dropout -------------------------------------------------------------------------------------------

    def relu(self, x: Array) -> Array:
        """y = max(x, 0)."""
        return self.xp.maximum(x, 0)

    def relu_backward(self, dy: Array, y: Array) -> Array:
        """The gradient passes where the output is positive. At exactly 0 we take it to be 0."""
        return dy * (y > 0)

    def gelu(self, x: Array) -> Array:
        """y = x Phi(x), Phi the normal distribution function, approximated as in the code of GPT-2 and BERT:

        y = x (1 + tanh(u)) / 2,   u = sqrt(2 / pi) (x + 0.044715 x^3)       (Hendrycks and Gimpel 2016)
        """
        t = self.xp.tanh(GELU_SLOPE * (x + GELU_CUBIC * x * x * x))
        return 0.5 * x * (1 + t)

    def gelu_backward(self, dy: Array, x: Array) -> Array:
        """dx = dy ((1 + tanh(u)) / 2 + x (1 - tanh(u)^2) u' / 2): the factor of x, and the slope of tanh."""
        t = self.xp.tanh(GELU_SLOPE * (x + GELU_CUBIC * x * x * x))
        slope = GELU_SLOPE * (1 + 3 * GELU_CUBIC * x * x)
        return dy * 0.5 * (1 + t + x * (1 - t * t) * slope)

    def dropout(self, x: Array, P_drop: float, rng: DropoutKey | None) -> tuple[Array, Array | None]:
        """Zero each element with probability P_drop and scale up the others. -> y, saved: what was kept (None = all)"""
        if rng is None or P_drop == 0:
            return x, None
        kept = self.xp.asarray(rng.keep(x.shape, P_drop))
        return self.dropout_backward(x, kept, P_drop), kept

    def dropout_backward(self, dy: Array, kept: Array | None, P_drop: float) -> Array:
        """Dropout multiplies by a constant mask, so backward multiplies by the same mask."""
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

        n does not change when x is shifted, and hardly when x is stretched. So backward removes from dn its component
        along the all-ones direction and its component along n.
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

    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        scale: float,
        key_lengths: Array | None,
        causal: bool,
        P_drop: float,
        rng: DropoutKey | None,
    ) -> tuple[Array, Array, Array, Array | None]:
        """y = dropout(softmax(scale q k^T)) v in all heads, with the mask of `masked_softmax` (equation 1).

        q (B, T, H, K), k (B, S, H, K), v (B, S, H, d_v) -> y (B, T, H, d_v); the weights before and after dropout
        (B, H, T, S), and what dropout saves
        """
        scores = self.matmul(by_head(q), transposed(by_head(k)))  # (B, H, T, S)
        weights = self.masked_softmax(scores, scale, key_lengths, causal)
        dropped, kept = self.dropout(weights, P_drop, rng)
        y = self.xp.empty((*q.shape[:-1], v.shape[-1]), v.dtype)  # (B, T, H, d_v)
        self.matmul(dropped, by_head(v), out=by_head(y))
        return y, weights, dropped, kept

    def attention_backward(
        self,
        dy: Array,
        q: Array,
        k: Array,
        v: Array,
        scale: float,
        weights: Array,
        dropped: Array,
        kept: Array | None,
        P_drop: float,
    ) -> tuple[Array, Array, Array]:
        """dy (B, T, H, d_v) -> dq, dk, dv, of the shapes of q, k and v."""
        dq, dk, dv = (self.xp.empty(x.shape, x.dtype) for x in (q, k, v))
        # y = dropped v
        self.matmul(transposed(dropped), by_head(dy), out=by_head(dv))
        ddropped = self.matmul(by_head(dy), transposed(by_head(v)))  # (B, H, T, S)
        # dropped = dropout(weights)
        dweights = self.dropout_backward(ddropped, kept, P_drop)
        # weights = softmax(scale scores)
        dscores = self.masked_softmax_backward(dweights, weights, scale)
        # scores = q k^T
        self.matmul(dscores, by_head(k), out=by_head(dq))
        self.matmul(transposed(dscores), by_head(q), out=by_head(dk))
        return dq, dk, dv

    def side_by_side(self, rows: list[Array]) -> Array:
        """(..., m), (..., n), ... -> (..., m + n + ...)"""
        return self.xp.concatenate(rows, axis=-1)

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Array | None, causal: bool) -> Array:
        """weights = softmax(scale * scores) over the keys a query may attend to; every other weight is exactly 0.

        scores       (B, H, T, S)
        key_lengths  (B,) int NumPy array, or None: sequence b has key_lengths[b] real keys, then padding
        causal       query t sees keys 0 to t; if T < S, the queries are the last T positions
        A query that may attend to nothing gets weights of zero.
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
        """x = scale E[ids], zero for padding.   ids (B, T) int, E (V, D) -> x (B, T, D)"""
        ids = self.xp.asarray(ids)
        x = E[ids]
        x *= (ids != PAD)[..., None] * x.dtype.type(scale)
        return x

    def embedding_backward(self, dx: Array, ids: Array, scale: float, dE: Array) -> None:
        """Add scale dx into the rows of dE (V, D). `dE[ids] += dx` would keep only one share of a repeated id."""
        ids = self.xp.asarray(ids)
        real = ids != PAD
        self.xp.add.at(dE, ids[real], dx[real] * scale)

    def cross_entropy(
        self, logits: Array, targets: Array, on_target: float, off_target: float, out: Array | None = None
    ) -> tuple[Array, Array]:
        """Cross-entropy against a smoothed target, and its gradient in the same pass.

        The target distribution q is `off_target` on every class, plus `on_target` on the right one; it sums to 1.

            loss = -sum_v q_v log p_v,   p = softmax(logits),   dloss / dlogits = p - q

        logits (n, V), targets (n,) int -> sum of the losses in nats, dlogits (n, V). A padded target adds nothing to
        either. dlogits is written into `out`, which may be `logits` itself.
        """
        xp = self.xp
        targets = xp.asarray(targets)
        row, real = xp.arange(len(targets)), targets != PAD
        dlogits = xp.subtract(logits, logits.max(axis=-1, keepdims=True), out=out)
        smoothed_score = on_target * dlogits[row, targets]
        if off_target:
            smoothed_score += off_target * dlogits.sum(axis=-1)
        p = xp.exp(dlogits, out=dlogits)
        total = p.sum(axis=-1, keepdims=True)
        losses = xp.log(total[:, 0]) - smoothed_score
        p /= total
        dlogits -= off_target  # p - q, in place of p
        dlogits[row, targets] -= on_target
        dlogits *= real[:, None]
        return (losses * real).sum(dtype=xp.float64), dlogits

    def log_sum_exp(self, logits: Array) -> Array:
        """log sum_v exp(logits), (..., V) -> (...): logits minus this are log probabilities."""
        highest = logits.max(axis=-1)
        return highest + self.xp.log(self.xp.exp(logits - highest[..., None]).sum(axis=-1))

    def top_indices(self, x: Array, n: int) -> Array:
        """The indices of the n largest numbers of each row (B, m), the largest first -> (B, n)"""
        xp = self.xp
        top = xp.argpartition(x, x.shape[1] - n, axis=1)[:, -n:]
        order = xp.argsort(-xp.take_along_axis(x, top, axis=1), axis=1)
        return xp.take_along_axis(top, order, axis=1)

    # Rows -------------------------------------------------------------------------------------------------------------

    def gather_rows(self, x: Array, index: Array) -> Array:
        """The rows of x (..., D) with the numbers in index (n,) int -> (n, D)"""
        return rows_of(x)[self.xp.asarray(index)]

    def gather_rows_backward(self, drows: Array, index: Array, shape: tuple[int, ...]) -> Array:
        """drows (n, D) -> dx of `shape` (..., D), zero in all other rows. index must not repeat a row."""
        dx = self.xp.zeros(shape, drows.dtype)
        rows_of(dx)[self.xp.asarray(index)] = drows
        return dx

    def on_host(self, x: Array) -> np.ndarray:
        """The same numbers as a NumPy array. For a GPU this waits until they are computed."""
        return np.asarray(x)

    # Optimizer --------------------------------------------------------------------------------------------------------

    def divide_inplace(self, total: Array, n: int) -> Array:
        """total /= n, in place, for a flat array -> the sum of the squares of the result, 0-d float64"""
        total /= n
        return (total @ total).astype(self.xp.float64)

    def adam_inplace(
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

        norm  of the whole gradient, 0-d, or None: if it is not finite, nothing changes
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
GELU_SLOPE, GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715


def rows_of(x: Array) -> Array:
    """View (..., n) as a matrix (rows, n)."""
    return x.reshape(-1, x.shape[-1])


def by_head(x: Array) -> Array:
    """View (B, T, H, K) as (B, H, T, K)."""
    return x.swapaxes(1, 2)


def transposed(x: Array) -> Array:
    """View (..., m, n) as (..., n, m)."""
    return x.swapaxes(-1, -2)


def chunks(length: int, size: int) -> Iterator[slice]:
    """Slices that cut `length` elements into pieces of `size`."""
    return (slice(start, start + size) for start in range(0, length, size))


def allowed(xp: ModuleType, T: int, S: int, key_lengths: Array | None, causal: bool) -> Array:
    """Attention mask: bool (B or 1, 1, T, S), True = the query may attend to the key."""
    key = xp.arange(S)
    mask = xp.ones((1, 1, T, S), bool)
    if key_lengths is not None:
        key_lengths = xp.asarray(key_lengths)
        mask = mask & (key < key_lengths[:, None])[:, None, None, :]
    if causal:
        mask = mask & (key <= xp.arange(S - T, S)[:, None])
    return mask


# Which operations are in use ------------------------------------------------------------------------------------------

DEFAULT = [Ops(np)]
"""The operations in use outside all blocks of `using`, in every thread. `use_by_default` adds to them."""

_IN_USE: ContextVar[tuple[Ops, ...]] = ContextVar("operations of the blocks `using`, the innermost first", default=())


def ops_of(x: Array) -> Ops:
    """The operations that run on x: the latest given to `using`, else to `use_by_default`, that fit its type and dtype.

    To see which code runs, print the result.
    """
    kind, dtype = type(x), getattr(x, "dtype", None)
    for operations in (_IN_USE.get(), DEFAULT):
        for ops in operations:
            if kind is ops.xp.ndarray and (ops.dtypes is None or dtype in ops.dtypes):
                return ops
    raise TypeError(f"no operations in use for arrays of type {kind.__module__}.{kind.__name__} and dtype {dtype}")


def use_by_default(operations: Ops) -> None:
    """From now on, use these operations for the arrays that they fit, in every thread; a block `using` comes first."""
    if operations not in DEFAULT:
        DEFAULT.insert(0, operations)


@contextmanager
def using(*operations: Ops) -> Iterator[None]:
    """Inside the block, these operations work on the arrays that they fit. It holds for this thread only.

    Blocks may be nested: the inner one comes first, and of one block the operations named last.
    """
    token = _IN_USE.set((*reversed(operations), *_IN_USE.get()))
    try:
        yield
    finally:
        _IN_USE.reset(token)
