"""The operations of `nn/ops.py` on a GPU, most of them in one kernel or one matrix product.

On a GPU, memory access and launches cost more than arithmetic. So a kernel passes over memory once or twice, and
nothing here waits for a result. The kernels are in kernels.cu; this file launches them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from scratchformer.backends.cuda.gemm import Gemm
from scratchformer.backends.cuda.kernels import FLOAT32, STEPS, Kernels, Shape
from scratchformer.nn.dropout import DropoutKey, drop_threshold, keep_scale
from scratchformer.nn.ops import PAD, Ops
from scratchformer.nn.parameter import Array

WARP = 32
WARPS = 4
"""Warps in a block, where each warp works on a row."""

THREADS = 256
"""Threads in a block, where each thread works on a number or the whole block on a row."""

DROPOUT_CHUNK = 512
"""Numbers that a warp draws dropout bits for at a time."""

MAX_PARTIAL_SUMS = 2048
"""Warps among which the rows are divided when a gradient is a sum over all rows; each leaves a partial sum."""

NORM_THREADS = 1 << 16
"""Threads among which the flat gradient is divided to sum its squares."""

MOST_KEYS, MOST_KEYS_BACKWARD, MOST_COLUMNS, MOST_WARPS = 96, 64, 64, 8
"""The limits of the kernels `attention` and `attention_backward`, and the warps of their blocks, as in kernels.cu."""


class FusedOps(Ops):
    """The operations on the arrays of `xp`, which is CuPy, with kernels and matrix products for such arrays.

    accurate    matrix products for sums, which must not round their terms as tf32 does
    loss_scale  (2,) float32 or None: with fp16, `cross_entropy` multiplies the gradient of the loss by [0], so that
                small numbers do not become 0 in backward, and `divide_inplace` divides the weights' gradient by it
    dtypes      of the arrays that these operations work on; None means all

    Dropout saves its key instead of a mask, and draws the same bits again in backward.
    """

    logits_at_once = 2**30  # 2 GB in bf16, 4 GB in float32: large, to limit kernel launches
    elements_at_once = 2**62  # flat arrays are not divided among threads of the host

    def __init__(
        self,
        xp: ModuleType,
        kernels: Kernels,
        gemm: Gemm,
        accurate: Gemm,
        loss_scale: Array | None = None,
        dtypes: tuple[np.dtype, ...] | None = None,
    ) -> None:
        super().__init__(xp, dtypes)
        self.kernels, self.gemm, self.accurate, self.loss_scale = kernels, gemm, accurate, loss_scale
        self._ones: dict[np.dtype, Array] = {}
        self._whole: Array | None = None
        self._lengths: tuple[Any, Any] = None, None

    # Products ---------------------------------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        if out is None:
            stack = a.shape[:-2] if a.ndim >= b.ndim else b.shape[:-2]
            out = self.xp.empty((*stack, a.shape[-2], b.shape[-1]), a.dtype)
        self.gemm(a, b, out)
        return out

    def add_product_inplace(self, total: Array, a: Array, b: Array) -> None:
        self.gemm(a, b, total, add=True)

    def add_to_rows_inplace(self, rows: Array, b: Array) -> None:
        n, columns = rows.shape
        if rows.size:
            grid = -(-columns // THREADS), min(n, 1 << 15)
            self.kernels("add_to_rows_inplace", grid, (THREADS,), rows, b, n, columns, dtype=rows.dtype)

    def add_rows_inplace(self, total: Array, rows: Array) -> None:
        """As a product with ones, which always adds in the same order."""
        ones = self._ones.get(rows.dtype)
        if ones is None or ones.size < len(rows):
            ones = self._ones[rows.dtype] = self.xp.ones((1, len(rows)), rows.dtype)
        self.accurate(ones[:, : len(rows)], rows, total[None], add=True)

    # Activation and dropout -------------------------------------------------------------------------------------------

    def relu_backward(self, dy: Array, y: Array) -> Array:
        dx = self.xp.empty(y.shape, y.dtype)
        self._thread_per_number("relu_backward", y.size, y.dtype, self._contiguous(dy), self._contiguous(y), dx, y.size)
        return dx

    def gelu(self, x: Array) -> Array:
        y = self.xp.empty(x.shape, x.dtype)
        self._thread_per_number("gelu", x.size, x.dtype, self._contiguous(x), y, x.size)
        return y

    def gelu_backward(self, dy: Array, x: Array) -> Array:
        dx = self.xp.empty(x.shape, x.dtype)
        self._thread_per_number("gelu_backward", x.size, x.dtype, self._contiguous(dy), self._contiguous(x), dx, x.size)
        return dx

    def dropout(self, x: Array, P_drop: float, rng: DropoutKey | None) -> tuple[Array, DropoutKey | None]:
        if rng is None or P_drop == 0:
            return x, None
        return self.dropout_backward(x, rng, P_drop), rng

    def dropout_backward(self, dy: Array, kept: DropoutKey | None, P_drop: float) -> Array:
        if kept is None:
            return dy
        dx = self.xp.empty(dy.shape, dy.dtype)
        arguments = self._contiguous(dy), dx, dy.size, *dropout_arguments(kept, P_drop)
        self._warp_per_row("dropout", -(-dy.size // DROPOUT_CHUNK), dy.dtype, *arguments)
        return dx

    # Residual and normalisation ---------------------------------------------------------------------------------------

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, tuple]:
        y, (_, saved) = self.add_norm(x, None, gamma, beta, eps, 0.0, None)
        return y, saved

    def layer_norm_backward(self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array) -> Array:
        return self.add_norm_backward(dy, (None, saved), gamma, dgamma, dbeta, 0.0)[0]

    def add_norm(
        self, x: Array, update: Array, gamma: Array, beta: Array, eps: float, P_drop: float, rng: DropoutKey | None
    ) -> tuple[Array, tuple]:
        """LayerNorm(x + dropout(update)), or LayerNorm(x) if the update is None."""
        D = x.shape[-1]
        y, normalized = self.xp.empty(x.shape, x.dtype), self.xp.empty(x.shape, x.dtype)
        inverse_std = self.xp.empty((*x.shape[:-1], 1), np.float32)
        rows, update = inverse_std.size, None if update is None else self._contiguous(update)
        arrays = self._contiguous(x), update, gamma, beta, y, normalized, inverse_std
        drop = dropout_arguments(rng, P_drop)
        self._warp_per_row("add_norm", rows, x.dtype, *arrays, rows, D, eps, *drop, steps=steps_for(D))
        return y, (rng, (normalized, inverse_std))

    def add_norm_backward(
        self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array, P_drop: float
    ) -> tuple[Array, Array]:
        key, (normalized, inverse_std) = saved
        rows, D = inverse_std.size, dy.shape[-1]
        warps, drop = min(rows, MAX_PARTIAL_SUMS), dropout_arguments(key, P_drop)
        dx, partial_sums = self.xp.empty(dy.shape, dy.dtype), self.xp.empty((warps, 2 * D), np.float32)
        dupdate = None if key is None or P_drop == 0 else self.xp.empty(dy.shape, dy.dtype)
        arrays = self._contiguous(dy), normalized, inverse_std, gamma, dx, dupdate, partial_sums
        self._warp_per_row("add_norm_backward", warps, dy.dtype, *arrays, rows, D, warps, *drop, steps=steps_for(D))
        if rows:
            grid, block = (-(-2 * D // WARP),), (WARP, 4 * WARPS)
            self.kernels("add_partial_sums", grid, block, partial_sums, dgamma, dbeta, warps, D)
        return dx, dx if dupdate is None else dupdate

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
    ) -> tuple[Array, Array, Array, DropoutKey | None]:
        """In one kernel for short sequences without dropout. Otherwise it scales the queries first: with fp16 their
        product with the keys could overflow."""
        (B, T, H, d_k), (_, S, _, d_v) = q.shape, v.shape
        heads = distances(q.strides, k.strides, v.strides, q.itemsize)
        drops = rng is not None and P_drop > 0
        if heads is None or drops or S > MOST_KEYS or max(d_k, d_v) > MOST_COLUMNS:
            power = 2.0 ** math.floor(math.log2(scale))  # which changes no digit of a query
            return super().attention(q * q.dtype.type(power), k, v, scale / power, key_lengths, causal, P_drop, rng)
        weights, y = self.xp.empty((B, H, T, S), q.dtype), self.xp.empty((B, T, H, d_v), q.dtype)
        lengths = None if key_lengths is None else self._lengths_on_device(key_lengths)
        arrays, sizes, block = (q, k, v, lengths, weights, y), (H, T, S, d_k, d_v), (WARP, MOST_WARPS)
        self.kernels("attention", (B * H,), block, *arrays, *sizes, scale, causal, *heads, dtype=q.dtype)
        return y, weights, weights, None

    def attention_backward(
        self,
        dy: Array,
        q: Array,
        k: Array,
        v: Array,
        scale: float,
        weights: Array,
        dropped: Array,
        kept: DropoutKey | None,
        P_drop: float,
    ) -> tuple[Array, Array, Array]:
        """In one kernel for short sequences without dropout."""
        (B, T, H, d_k), (_, S, _, d_v) = q.shape, v.shape
        is_small = kept is None and S <= MOST_KEYS_BACKWARD and max(d_k, d_v) <= MOST_COLUMNS
        heads = distances(q.strides, k.strides, v.strides, q.itemsize) if is_small else None
        gradients = None if heads is None else self._laid_out_as(q, k, v, heads)
        if heads is None or gradients is None:
            return super().attention_backward(dy, q, k, v, scale, weights, dropped, kept, P_drop)
        dq, dk, dv = gradients
        arrays, sizes = (self._contiguous(dy), q, k, v, weights, dq, dk, dv), (H, T, S, d_k, d_v)
        self.kernels("attention_backward", (B * H,), (WARP, MOST_WARPS), *arrays, *sizes, scale, *heads, dtype=q.dtype)
        return dq, dk, dv

    def _laid_out_as(self, q: Array, k: Array, v: Array, heads: tuple[int, ...]) -> list[Array] | None:
        """New arrays dq, dk and dv with the `distances` of q, k and v, so that `side_by_side` need not copy them.

        None if q, k and v are neither contiguous nor parts of one array.
        """
        (B, T, H, d_k), (_, S, _, d_v) = q.shape, v.shape
        widths = (H * d_k, H * d_k, H * d_v)
        if S == T and heads[:2] == heads[3:5] == heads[6:8] and heads[1] == sum(widths):  # all parts of one array
            return self._parts((B, T), widths, H, q.dtype)
        if heads[3:5] == heads[6:8] and heads[4] == sum(widths[1:]) and q.flags.c_contiguous:
            return [self.xp.empty(q.shape, q.dtype), *self._parts((B, S), widths[1:], H, q.dtype)]
        if q.flags.c_contiguous and k.flags.c_contiguous and v.flags.c_contiguous:
            return [self.xp.empty(x.shape, x.dtype) for x in (q, k, v)]
        return None

    def _parts(self, shape: tuple[int, int], widths: tuple[int, ...], H: int, dtype: np.dtype) -> list[Array]:
        """New arrays (B, T, H, width / H) that are parts of one array (B, T, sum of the widths)."""
        whole, ends = self.xp.empty((*shape, sum(widths)), dtype), np.cumsum(widths).tolist()
        self._whole = whole
        return [whole[..., end - width : end].reshape(*shape, H, width // H) for width, end in zip(widths, ends)]

    def side_by_side(self, rows: list[Array]) -> Array:
        """Without a copy if these are all parts of the array that `attention_backward` has made last."""
        whole, self._whole = self._whole, None
        if whole is not None and whole.shape[-1] == sum(part.shape[-1] for part in rows):
            address = self.kernels.address(whole)
            for part in rows:
                if self.kernels.address(part) != address or part.strides != whole.strides:
                    break
                address += part.shape[-1] * part.itemsize
            else:
                return whole
        return super().side_by_side(rows)

    def _lengths_on_device(self, lengths: np.ndarray) -> Array:
        """A copy of the lengths, which all layers share."""
        before, there = self._lengths
        content = lengths.dtype, lengths.tobytes()
        if content != before:
            there = self._to_device(lengths)
            self._lengths = content, there
        return there

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Array | None, causal: bool) -> Array:
        B, H, T, S = scores.shape
        weights = self.xp.empty(scores.shape, scores.dtype)
        lengths = None if key_lengths is None else self._lengths_on_device(key_lengths)
        arguments = self._contiguous(scores), weights, lengths, B * H * T, H * T, T, S, scale, causal
        self._warp_per_row("masked_softmax", B * H * T, scores.dtype, *arguments)
        return weights

    def masked_softmax_backward(self, dweights: Array, weights: Array, scale: float) -> Array:
        keys = weights.shape[-1]
        dscores, rows = self.xp.empty(weights.shape, weights.dtype), weights.size // max(keys, 1)
        arguments = self._contiguous(dweights), self._contiguous(weights), dscores, rows, keys, scale
        self._warp_per_row("masked_softmax_backward", rows, weights.dtype, *arguments)
        return dscores

    # Words ------------------------------------------------------------------------------------------------------------

    def embedding(self, ids: Array, E: Array, scale: float) -> Array:
        x = self.xp.empty((*ids.shape, E.shape[1]), E.dtype)
        self._block_per_row("embedding", ids.size, E.dtype, self._to_device(ids), E, x, E.shape[1], scale)
        return x

    def embedding_backward(self, dx: Array, ids: Array, scale: float, dE: Array) -> None:
        words, starts, rows = group_by_id(ids)
        if len(words):
            D = dE.shape[1]
            grid, block = (len(words), -(-D // WARP)), (WARP, 2 * WARPS)
            arrays = self._contiguous(dx), *(self._to_device(numbers) for numbers in (words, starts, rows)), dE
            self.kernels("embedding_backward", grid, block, *arrays, D, scale, dtype=dx.dtype)

    def cross_entropy(
        self, logits: Array, targets: Array, on_target: float, off_target: float, out: Array | None = None
    ) -> tuple[Array, Array]:
        n, V = logits.shape
        dlogits = self.xp.empty(logits.shape, logits.dtype) if out is None else out
        losses = self.xp.empty(n, np.float32)
        arrays = self._contiguous(logits), self._to_device(targets), dlogits, losses
        self._block_per_row("cross_entropy", n, logits.dtype, *arrays, V, on_target, off_target, self.loss_scale)
        return losses.sum(dtype=np.float64), dlogits

    def log_sum_exp(self, logits: Array) -> Array:
        sums = self.xp.empty(logits.shape[:-1], logits.dtype)
        self._block_per_row("log_sum_exp", sums.size, logits.dtype, self._contiguous(logits), sums, logits.shape[-1])
        return sums

    def top_indices(self, x: Array, n: int) -> Array:
        rows, m = x.shape
        indices = self.xp.empty((rows, n), np.int32)
        self._block_per_row("top_indices", rows, FLOAT32, self._contiguous(x), indices, m, n)
        return indices

    # Rows -------------------------------------------------------------------------------------------------------------

    def gather_rows(self, x: Array, index: Array) -> Array:
        n, D = len(index), x.shape[-1]
        rows = self.xp.empty((n, D), x.dtype)
        self._block_per_row("gather_rows", n, x.dtype, self._contiguous(x), self._to_device(index), rows, D)
        return rows

    def gather_rows_backward(self, drows: Array, index: Array, shape: tuple[int, ...]) -> Array:
        dx = self.xp.zeros(shape, drows.dtype)
        arguments = self._contiguous(drows), self._to_device(index), dx, shape[-1]
        self._block_per_row("gather_rows_backward", len(index), drows.dtype, *arguments)
        return dx

    def on_host(self, x: Array) -> np.ndarray:
        return x.get()

    # Optimizer --------------------------------------------------------------------------------------------------------

    def divide_inplace(self, total: Array, n: int) -> Array:
        threads = min(NORM_THREADS, -(-total.size // THREADS) * THREADS)
        squares = self.xp.empty(threads, np.float64)
        arguments = total, squares, total.size, 1 / n, self.loss_scale
        self.kernels("divide_inplace", (threads // THREADS,), (THREADS,), *arguments)
        return squares.sum()

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
        self._thread_per_number(
            "adam_inplace", w.size, FLOAT32, w, dw, m, v, w.size, step_size, beta1, beta2, eps, norm
        )

    # Launches ---------------------------------------------------------------------------------------------------------

    def _thread_per_number(self, name: str, n: int, dtype: np.dtype, *arguments: object) -> None:
        if n:
            self.kernels(name, (-(-n // THREADS),), (THREADS,), *arguments, dtype=dtype)

    def _warp_per_row(self, name: str, rows: int, dtype: np.dtype, *arguments: object, steps: int = STEPS[0]) -> None:
        if rows:
            self.kernels(name, (-(-rows // WARPS),), (WARP, WARPS), *arguments, dtype=dtype, steps=steps)

    def _block_per_row(self, name: str, rows: int, dtype: np.dtype, *arguments: object) -> None:
        if rows:
            self.kernels(name, (rows,), (THREADS,), *arguments, dtype=dtype)

    def _contiguous(self, x: Array) -> Array:
        """x, or a copy if it is not contiguous, as kernels need it."""
        return self.xp.ascontiguousarray(x)

    def _to_device(self, numbers: np.ndarray) -> Array:
        """Copy ids, lengths or row numbers from the host, as int32."""
        return self.xp.asarray(np.ascontiguousarray(numbers, np.int32))


def dropout_arguments(key: DropoutKey | None, P_drop: float) -> tuple:
    """The arguments DROPOUT of kernels: threshold, scale, seed, step, shard, site. With threshold 0 all is kept."""
    if key is None or P_drop == 0:
        return 0, 1.0, 0, 0, 0, 0
    return drop_threshold(P_drop), keep_scale(P_drop), *key


@lru_cache(maxsize=1 << 12)
def distances(q: Shape, k: Shape, v: Shape, itemsize: int) -> tuple[int, ...] | None:
    """The arguments Q_HEADS, K_HEADS and V_HEADS of kernels, from strides in bytes.

    None if the numbers of a head are not neighbours.
    """
    if any(strides[-1] != itemsize for strides in (q, k, v)):
        return None
    return tuple(stride // itemsize for strides in (q, k, v) for stride in strides[:-1])


def steps_for(D: int) -> int:
    """The template argument STEPS for rows of D numbers. Raises ValueError if D is too large for the kernels."""
    for steps in STEPS:
        if D <= WARP * steps:
            return steps
    raise ValueError(f"d_model={D}: the kernels normalise rows of at most {WARP * STEPS[-1]} numbers")


def group_by_id(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group the positions of the ids -> words (k,), starts (k + 1,), rows, without padding.

    words[i] is at the positions rows[starts[i]:starts[i + 1]], ascending.
    """
    flat = ids.reshape(-1)
    small = flat.astype(np.uint16) if flat.size and flat.max() < 2**16 else flat  # NumPy sorts these four times as fast
    rows = np.argsort(small, kind="stable")
    rows = rows[np.count_nonzero(flat == PAD) :]  # padding comes first, since no id is negative
    in_order = flat[rows]
    starts = np.flatnonzero(np.diff(in_order, prepend=PAD))  # where the next word begins
    return in_order[starts], np.append(starts, len(rows)), rows
