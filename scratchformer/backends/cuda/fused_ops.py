"""The operations of `nn/ops.py` on a GPU: each in one kernel or one matrix product, where the reference takes many.

A GPU waits for memory more than for arithmetic, and for the host to say what comes next. So a kernel reads each number
once and writes it once, and nothing here asks for a result. What the kernels do stands in kernels.cu; here stands how
they are launched.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from scratchformer.backends.cuda.gemm import Gemm
from scratchformer.backends.cuda.kernels import FLOAT32, STEPS, Kernels
from scratchformer.nn.dropout import DropoutKey, drop_threshold, keep_scale
from scratchformer.nn.ops import PAD, Ops, rows_of
from scratchformer.nn.parameter import Array

WARP = 32
WARPS = 4
"""Rows that a block works on, where a warp takes a row."""

THREADS = 256
"""In a block, where a thread takes a number."""

STRETCH = 512
"""Numbers of an array that a warp draws dropout for at once."""

SHARES = 2048
"""Warps among which the rows of a gradient are divided where all rows have a share in it."""

SUMMING = 1 << 16
"""Threads among which the numbers of the flat gradient are divided."""


class FusedOps(Ops):
    """On the arrays of `xp`, which are CuPy's, with kernels and matrix products that work on such arrays.

    accurate    matrix products for sums, which are never rounded more than their terms
    loss_scale  (2,) float32 or None: with fp16, `cross_entropy` multiplies the gradient of the loss by [0], so that
                small numbers in what follows from it do not become 0, and `mean_inplace` divides that of the weights

    Dropout saves its key instead of a mask, and draws again in backward.
    """

    logits_at_once = 2**28  # half a gigabyte in bf16: a launch must have enough to do
    part = 2**62  # flat arrays as a whole: there are no threads to share them

    def __init__(
        self, xp: ModuleType, kernels: Kernels, gemm: Gemm, accurate: Gemm, loss_scale: Array | None = None
    ) -> None:
        super().__init__(xp)
        self.kernels, self.gemm, self.accurate, self.loss_scale = kernels, gemm, accurate, loss_scale

    # Products ---------------------------------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        if out is None:
            stack = a.shape[:-2] if a.ndim >= b.ndim else b.shape[:-2]
            out = self.xp.empty((*stack, a.shape[-2], b.shape[-1]), a.dtype)
        self.gemm(a, b, out)
        return out

    def add_product(self, total: Array, a: Array, b: Array) -> None:
        self.gemm(a, b, total, add=True)

    def linear(self, x: Array, W: Array, b: Array | None) -> Array:
        y = self.matmul(rows_of(x), W)
        if b is not None and y.size:
            rows, columns = y.shape
            self.kernels(
                "add_bias",
                (-(-columns // THREADS), min(rows, 1 << 15)),
                (THREADS,),
                y,
                b,
                rows,
                columns,
                stored=y.dtype,
            )
        return y.reshape(*x.shape[:-1], W.shape[1])

    def linear_backward(self, dy: Array, x: Array, W: Array, dW: Array, db: Array | None) -> Array:
        x_rows, dy_rows = rows_of(x), rows_of(dy)
        self.gemm(x_rows.T, dy_rows, dW, add=True)
        if db is not None:
            self._add_rows(db, dy_rows)
        return self.matmul(dy_rows, W.T).reshape(x.shape)

    def _add_rows(self, total: Array, rows: Array) -> None:
        """total (n,) += the sum of rows (m, n): a product with ones, whose order of summation is always the same."""
        self.accurate(self.xp.ones((1, len(rows)), rows.dtype), rows, total[None], add=True)

    # Activation and dropout -------------------------------------------------------------------------------------------

    def relu_backward(self, dy: Array, y: Array) -> Array:
        dx = self.xp.empty(y.shape, y.dtype)
        self._by_number("relu_backward", y.size, self._whole(dy), self._whole(y), dx, y.size, stored=y.dtype)
        return dx

    def dropout(self, x: Array, P_drop: float, rng: DropoutKey | None) -> tuple[Array, DropoutKey | None]:
        if rng is None or P_drop == 0:
            return x, None
        return self.dropout_backward(x, rng, P_drop), rng

    def dropout_backward(self, dy: Array, kept: DropoutKey | None, P_drop: float) -> Array:
        if kept is None:
            return dy
        dx = self.xp.empty(dy.shape, dy.dtype)
        self._by_row(
            "dropout", -(-dy.size // STRETCH), self._whole(dy), dx, dy.size, *drawing(kept, P_drop), stored=dy.dtype
        )
        return dx

    # Residual and normalisation ---------------------------------------------------------------------------------------

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, tuple]:
        return self._norm(x, None, gamma, beta, eps, drawing(None, 0.0))

    def layer_norm_backward(self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array) -> Array:
        return self._norm_backward(dy, saved, gamma, dgamma, dbeta, None, drawing(None, 0.0))

    def add_norm(
        self, x: Array, update: Array, gamma: Array, beta: Array, eps: float, P_drop: float, rng: DropoutKey | None
    ) -> tuple[Array, tuple]:
        y, saved = self._norm(x, self._whole(update), gamma, beta, eps, drawing(rng, P_drop))
        return y, (rng, saved)

    def add_norm_backward(
        self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array, P_drop: float
    ) -> tuple[Array, Array]:
        key, norm_saved = saved
        dupdate = None if key is None or P_drop == 0 else self.xp.empty(dy.shape, dy.dtype)
        dx = self._norm_backward(dy, norm_saved, gamma, dgamma, dbeta, dupdate, drawing(key, P_drop))
        return dx, dx if dupdate is None else dupdate

    def _norm(
        self, x: Array, update: Array | None, gamma: Array, beta: Array, eps: float, drawing: tuple
    ) -> tuple[Array, tuple]:
        D = x.shape[-1]
        y, normalized = self.xp.empty(x.shape, x.dtype), self.xp.empty(x.shape, x.dtype)
        inverse_std = self.xp.empty((*x.shape[:-1], 1), np.float32)
        self._by_row(
            "add_norm",
            inverse_std.size,
            self._whole(x),
            update,
            gamma,
            beta,
            y,
            normalized,
            inverse_std,
            inverse_std.size,
            D,
            eps,
            *drawing,
            stored=x.dtype,
            steps=steps_for(D),
        )
        return y, (normalized, inverse_std)

    def _norm_backward(
        self, dy: Array, saved: tuple, gamma: Array, dgamma: Array, dbeta: Array, dupdate: Array | None, drawing: tuple
    ) -> Array:
        normalized, inverse_std = saved
        rows, D = inverse_std.size, dy.shape[-1]
        dx, warps = self.xp.empty(dy.shape, dy.dtype), min(rows, SHARES)
        shares = self.xp.empty((warps, 2 * D), np.float32)
        self._by_row(
            "add_norm_backward",
            warps,
            self._whole(dy),
            normalized,
            inverse_std,
            gamma,
            dx,
            dupdate,
            shares,
            rows,
            D,
            warps,
            *drawing,
            stored=dy.dtype,
            steps=steps_for(D),
        )
        self._add_rows(dgamma, shares[:, :D])
        self._add_rows(dbeta, shares[:, D:])
        return dx

    # Attention --------------------------------------------------------------------------------------------------------

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Array | None, causal: bool) -> Array:
        B, H, T, S = scores.shape
        weights = self.xp.empty(scores.shape, scores.dtype)
        lengths = None if key_lengths is None else self._sent(key_lengths)
        self._by_row(
            "masked_softmax",
            B * H * T,
            self._whole(scores),
            weights,
            lengths,
            B * H * T,
            H * T,
            T,
            S,
            scale,
            causal,
            stored=scores.dtype,
        )
        return weights

    def masked_softmax_backward(self, dweights: Array, weights: Array, scale: float) -> Array:
        keys = weights.shape[-1]
        dscores, rows = self.xp.empty(weights.shape, weights.dtype), weights.size // max(keys, 1)
        self._by_row(
            "masked_softmax_backward",
            rows,
            self._whole(dweights),
            self._whole(weights),
            dscores,
            rows,
            keys,
            scale,
            stored=weights.dtype,
        )
        return dscores

    # Words ------------------------------------------------------------------------------------------------------------

    def embedding(self, ids: Array, E: Array, scale: float) -> Array:
        x = self.xp.empty((*ids.shape, E.shape[1]), E.dtype)
        self._by_block("embedding", ids.size, self._sent(ids), E, x, E.shape[1], scale, stored=E.dtype)
        return x

    def embedding_backward(self, dx: Array, ids: Array, scale: float, dE: Array) -> None:
        words, starts, rows = occurrences(ids)
        if len(words):
            D = dE.shape[1]
            self.kernels(
                "embedding_backward",
                (len(words), -(-D // WARP)),
                (WARP, 2 * WARPS),
                self._whole(dx),
                self._sent(words),
                self._sent(starts),
                self._sent(rows),
                dE,
                D,
                scale,
                stored=dx.dtype,
            )

    def cross_entropy(
        self, logits: Array, targets: Array, on_target: float, everywhere: float, out: Array | None = None
    ) -> tuple[Array, Array]:
        n, V = logits.shape
        dlogits = self.xp.empty(logits.shape, logits.dtype) if out is None else out
        losses = self.xp.empty(n, np.float32)
        self._by_block(
            "cross_entropy",
            n,
            self._whole(logits),
            self._sent(targets),
            dlogits,
            losses,
            V,
            on_target,
            everywhere,
            self.loss_scale,
            stored=logits.dtype,
        )
        return losses.sum(dtype=np.float64), dlogits

    # Rows -------------------------------------------------------------------------------------------------------------

    def take_rows(self, x: Array, index: Array) -> Array:
        rows = self.xp.empty((len(index), x.shape[-1]), x.dtype)
        self._by_block("take_rows", len(index), self._whole(x), self._sent(index), rows, x.shape[-1], stored=x.dtype)
        return rows

    def take_rows_backward(self, drows: Array, index: Array, shape: tuple[int, ...]) -> Array:
        dx = self.xp.zeros(shape, drows.dtype)
        self._by_block(
            "take_rows_backward", len(index), self._whole(drows), self._sent(index), dx, shape[-1], stored=drows.dtype
        )
        return dx

    def on_host(self, x: Array) -> np.ndarray:
        return x.get()

    # Optimizer --------------------------------------------------------------------------------------------------------

    def mean_inplace(self, total: Array, n: int) -> Array:
        threads = min(SUMMING, -(-total.size // THREADS) * THREADS)
        squares = self.xp.empty(threads, np.float64)
        self.kernels(
            "mean_inplace", (threads // THREADS,), (THREADS,), total, squares, total.size, 1 / n, self.loss_scale
        )
        return squares.sum()

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
        self._by_number("adam", w.size, w, dw, m, v, w.size, step_size, beta1, beta2, eps, norm)

    # Launching --------------------------------------------------------------------------------------------------------

    def _by_number(self, name: str, n: int, *arguments: object, stored: np.dtype = FLOAT32) -> None:
        """A thread for each of n numbers."""
        if n:
            self.kernels(name, (-(-n // THREADS),), (THREADS,), *arguments, stored=stored)

    def _by_row(self, name: str, rows: int, *arguments: object, stored: np.dtype, steps: int = STEPS[0]) -> None:
        """A warp for each row."""
        if rows:
            self.kernels(name, (-(-rows // WARPS),), (WARP, WARPS), *arguments, stored=stored, steps=steps)

    def _by_block(self, name: str, rows: int, *arguments: object, stored: np.dtype) -> None:
        """A block for each row."""
        if rows:
            self.kernels(name, (rows,), (THREADS,), *arguments, stored=stored)

    def _whole(self, x: Array) -> Array:
        """As it must lie in memory for a kernel; a copy only if it does not."""
        return self.xp.ascontiguousarray(x)

    def _sent(self, numbers: np.ndarray) -> Array:
        """From the host: ids, lengths, numbers of rows."""
        return self.xp.asarray(np.ascontiguousarray(numbers, np.int32))


def drawing(key: DropoutKey | None, P_drop: float) -> tuple:
    """What kernels take to draw: threshold, scale, seed, step, shard, site. A threshold of 0 keeps everything."""
    if key is None or P_drop == 0:
        return 0, 1.0, 0, 0, 0, 0
    return drop_threshold(P_drop), keep_scale(P_drop), *key


def steps_for(D: int) -> int:
    """How many of its row's numbers a lane has to hold. Raises ValueError if there is no kernel for so many."""
    for steps in STEPS:
        if D <= WARP * steps:
            return steps
    raise ValueError(f"d_model={D}: the kernels normalise rows of at most {WARP * STEPS[-1]} numbers")


def occurrences(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each word stands: words (k,), in rows[starts[i]:starts[i + 1]] the places of words[i], first to last.

    Padding is left out.
    """
    flat = ids.reshape(-1)
    rows = np.argsort(flat, kind="stable")
    rows = rows[np.count_nonzero(flat == PAD) :]  # no id is negative: it comes first
    in_order = flat[rows]
    starts = np.flatnonzero(np.diff(in_order, prepend=PAD))  # where another word begins
    return in_order[starts], np.append(starts, len(rows)), rows
