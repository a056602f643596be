"""The operations of `nn/ops.py`, faster with NumPy on a CPU. They are in use where a `Device` computes in float32.

Matrix products take about the same time whoever calls them. The rest of a step is limited by memory: each NumPy call
reads its arguments and writes its result, and an array of some megabytes has left the cache when it is read next. So
these versions make fewer calls, on blocks of rows that stay in a core's cache from the first call to the last, and they
write sums as matrix products with ones, which are several times as fast as `sum`. Results differ in the last bits.

What each operation gains in a whole step, and what did not help: docs/performance.md.
"""

from __future__ import annotations

import ctypes
from typing import Iterator

import numpy as np

from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.ops import GELU_CUBIC, GELU_SLOPE, PAD, Ops, chunks, rows_of
from scratchformer.nn.parameter import Array

BLOCK = 1 << 16
"""Elements of a block, 256 KB in float32: a few blocks fit into the second-level cache of a core (1 to 2 MB)."""

PRODUCT_BLOCK = 1 << 20
"""Elements of a matrix product that are computed at once, 4 MB: large enough not to slow the product down."""

MANY_KEYS = 64
"""With more keys than this, `masked_softmax` is that of the reference."""


def blocks(rows: Array, elements: int | None = None) -> Iterator[slice]:
    """Slices that cut the rows of a matrix (n, d) into blocks of about so many elements (default: BLOCK)."""
    return chunks(len(rows), max(1, (elements or BLOCK) // rows.shape[1]))


class FastOps(Ops):
    """The reference operations, some of them in fewer passes over memory."""

    def add_product_inplace(self, total: Array, a: Array, b: Array) -> None:
        """In blocks, so that the product never exists as a whole: for the gradient of the embedding it is large."""
        for block in blocks(total, PRODUCT_BLOCK):
            total[block] += self.matmul(a[block], b)

    def add_rows_inplace(self, total: Array, rows: Array) -> None:
        total += np.ones(len(rows), rows.dtype) @ rows

    def gelu(self, x: Array) -> Array:
        """With (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), since `exp` takes half the time of `tanh`."""
        y, rows = np.empty(x.shape, x.dtype), rows_of(x)
        for block in blocks(rows):
            np.multiply(rows[block], gelu_gate(rows[block]), out=rows_of(y)[block])
        return y

    def gelu_backward(self, dy: Array, x: Array) -> Array:
        dx, rows, dy_rows = np.empty(x.shape, x.dtype), rows_of(x), rows_of(dy)
        for block in blocks(rows):
            x_block, d, gate = rows[block], rows_of(dx)[block], gelu_gate(rows[block])
            # d = dy gate (1 + x (1 - gate) 2 u')
            np.multiply(x_block, x_block, out=d)
            d *= 6 * GELU_SLOPE * GELU_CUBIC
            d += 2 * GELU_SLOPE
            d *= x_block
            d *= 1 - gate
            d += 1
            d *= gate
            d *= dy_rows[block]
        return dx

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, tuple]:
        y, (_, saved) = self.add_norm(x, None, gamma, beta, eps, 0.0, None)
        return y, saved

    def layer_norm_backward(self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array) -> Array:
        return self.add_norm_backward(dy, (None, saved), gamma, dgamma, dbeta, 0.0)[0]

    def add_norm(
        self, x: Array, update: Array, gamma: Array, beta: Array, eps: float, P_drop: float, rng: DropoutKey | None
    ) -> tuple[Array, tuple]:
        """LayerNorm(x + dropout(update)), or LayerNorm(x) if the update is None."""
        x_rows, update_rows = rows_of(x), None if update is None else rows_of(update)
        kept = None if rng is None or P_drop == 0 else rng.keep(x_rows.shape, P_drop)
        D = x.shape[-1]
        averaging = np.full(D, 1 / D, x.dtype)  # x @ averaging: the mean of each row
        y, normalized = np.empty(x_rows.shape, x.dtype), np.empty(x_rows.shape, x.dtype)
        inverse_std = np.empty((len(x_rows), 1), x.dtype)
        for block in blocks(x_rows):
            n, inverse = normalized[block], inverse_std[block]
            # n = x + dropout(update)
            if update_rows is None:
                n[...] = x_rows[block]
            elif kept is None:
                np.add(x_rows[block], update_rows[block], out=n)
            else:
                np.multiply(update_rows[block], kept[block], out=n)
                n *= keep_scale(P_drop)
                n += x_rows[block]
            # n = (n - mean(n)) / sqrt(variance(n) + eps)
            n -= (n @ averaging)[:, None]
            inverse[:, 0] = np.einsum("nd,nd->n", n, n)
            inverse /= D
            inverse += eps
            np.sqrt(inverse, out=inverse)
            np.reciprocal(inverse, out=inverse)
            n *= inverse
            # y = gamma n + beta
            np.multiply(n, gamma, out=y[block])
            y[block] += beta
        normalized, inverse_std = normalized.reshape(x.shape), inverse_std.reshape(*x.shape[:-1], 1)
        return y.reshape(x.shape), (None if kept is None else kept.reshape(x.shape), (normalized, inverse_std))

    def add_norm_backward(
        self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array, P_drop: float
    ) -> tuple[Array, Array]:
        kept, (normalized, inverse_std) = saved
        dy_rows, normalized, inverse_std, D = rows_of(dy), rows_of(normalized), rows_of(inverse_std), dy.shape[-1]
        averaging = np.full(D, 1 / D, dy.dtype)
        dx = np.empty(dy_rows.shape, dy.dtype)
        dupdate = dx if kept is None else np.empty(dy_rows.shape, dy.dtype)
        kept = None if kept is None else rows_of(kept)
        for block in blocks(dy_rows):
            g, n, d = dy_rows[block], normalized[block], dx[block]
            ones = np.ones(len(g), g.dtype)
            share = g * n
            dgamma += ones @ share
            dbeta += ones @ g
            # d = (dn - mean(dn) - n mean(dn n)) / sqrt(variance + eps),   dn = gamma dy
            np.multiply(g, gamma, out=d)
            along_itself = np.einsum("nd,nd->n", d, n)[:, None] / D
            d -= (d @ averaging)[:, None]
            d -= np.multiply(n, along_itself, out=share)
            d *= inverse_std[block]
            # dupdate = dropout_backward(dx)
            if kept is not None:
                np.multiply(d, kept[block], out=dupdate[block])
                dupdate[block] *= keep_scale(P_drop)
        return dx.reshape(dy.shape), dupdate.reshape(dy.shape)

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Array | None, causal: bool) -> Array:
        """With the keys as the first axis, so that `max` and `sum` add up long rows instead of a few numbers each.

        With many keys this gains nothing, and the copy into the other layout costs time.
        """
        B, H, T, S = scores.shape
        if S > MANY_KEYS:
            return super().masked_softmax(scores, scale, key_lengths, causal)
        key = np.arange(S)[:, None]
        weights = np.empty(scores.shape, scores.dtype)
        for block in blocks(scores.reshape(B, H * T * S)):
            e = np.multiply(scores[block].transpose(3, 0, 1, 2), scale, order="C")  # (S, b, H, T)
            if key_lengths is not None:
                e[key >= key_lengths[block]] = -np.inf
            if causal:
                e.transpose(0, 3, 1, 2)[key > np.arange(S - T, S)] = -np.inf
            highest = e.max(axis=0)
            highest[highest == -np.inf] = 0
            e -= highest
            np.exp(e, out=e)
            total = e.sum(axis=0)
            total[total == 0] = 1
            e /= total
            weights[block] = e.transpose(1, 2, 3, 0)
        return weights

    def embedding_backward(self, dx: Array, ids: Array, scale: float, dE: Array) -> None:
        """Row by row: three to four times as fast as `np.add.at`, which goes element by element."""
        for id_, row in zip(ids.reshape(-1).tolist(), rows_of(dx * scale)):
            if id_ != PAD:
                dE[id_] += row

    def cross_entropy(
        self, logits: Array, targets: Array, on_target: float, off_target: float, out: Array | None = None
    ) -> tuple[Array, Array]:
        ones = np.ones(logits.shape[1], logits.dtype)
        dlogits = np.empty(logits.shape, logits.dtype) if out is None else out
        loss_sum = np.float64(0)
        for block in blocks(logits):
            target, p = targets[block], dlogits[block]
            row, real = np.arange(len(target)), target != PAD
            np.subtract(logits[block], logits[block].max(axis=1, keepdims=True), out=p)
            smoothed_score = on_target * p[row, target]
            if off_target:
                smoothed_score += off_target * (p @ ones)
            np.exp(p, out=p)
            total = p @ ones  # p / total are the probabilities
            loss_sum += ((np.log(total) - smoothed_score) * real).sum(dtype=np.float64)
            p *= (1 / total)[:, None]
            p -= off_target  # p - q, in place of p
            p[row, target] -= on_target
            p[~real] = 0
        return loss_sum, dlogits

    def log_sum_exp(self, logits: Array) -> Array:
        """Without the maxima, unless exp overflows or vanishes. Sums are products with ones."""
        rows = rows_of(logits)
        total, ones = np.empty(len(rows), rows.dtype), np.ones(rows.shape[1], rows.dtype)
        with np.errstate(over="ignore", divide="ignore"):
            for block in blocks(rows):
                total[block] = np.exp(rows[block]) @ ones
            result = np.log(total)
        if not (np.abs(result) < LARGEST_EXPONENT).all():
            return super().log_sum_exp(logits)
        return result.reshape(logits.shape[:-1])


LARGEST_EXPONENT = 80
"""exp of this is within the range of float32, and so is exp of the opposite."""


def gelu_gate(x: Array) -> Array:
    """1 / (1 + exp(-2u)), by which GELU multiplies x."""
    gate = x * x
    gate *= -2 * GELU_SLOPE * GELU_CUBIC
    gate -= 2 * GELU_SLOPE
    gate *= x
    with np.errstate(over="ignore"):  # exp(-2u) may become infinite, and the gate 0
        np.exp(gate, out=gate)
    gate += 1
    return np.reciprocal(gate, out=gate)


FAST = FastOps(np, (np.dtype("float32"),))
"""For training and decoding; float64 stays with the reference."""


class FrozenOps(FastOps):
    """For weights that do not change any more, as in translation.

    The logits are a product with the transposed embedding, which is stored by columns. It is copied in the order of
    rows when it has served some products: with the copy such a product of 64 rows takes 0.75 to 0.93 of the time.
    """

    def __init__(self) -> None:
        super().__init__(np, (np.dtype("float32"),))
        self.uses: dict[tuple, int] = {}
        self.copies: dict[tuple, tuple[Array, Array]] = {}  # a matrix, so that no other takes its address; its copy

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        if b.ndim == 2 and b.strides[0] < b.strides[1]:
            key = (b.ctypes.data, b.shape, b.strides)
            self.uses[key] = self.uses.get(key, 0) + 1
            if self.uses[key] == USES_BEFORE_COPY:
                self.copies[key] = b, np.ascontiguousarray(b)
            _, b = self.copies.get(key, (b, b))
        return super().matmul(a, b, out)


USES_BEFORE_COPY = 32
"""To copy a weight takes as long as it gains in about ten products of 64 rows."""


def keep_freed_memory() -> None:
    """Let this process keep memory that it has freed, if the C library is glibc; call it to train or translate.

    By default glibc returns large arrays to the system, which has to clear the pages again when the next step asks for
    them: up to 15 % of a step. This cannot be undone: the process keeps its memory until it ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library
        return
    mallopt(M_TRIM_THRESHOLD, -1)  # the heap does not shrink
    mallopt(M_MMAP_MAX, 0)  # all arrays are on the heap
    mallopt(M_ARENA_MAX, 1)  # and all threads share one heap


M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # from malloc.h
