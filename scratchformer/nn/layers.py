"""The position-wise layers: everything in the Transformer but attention works on one position at a time.

Shapes, here and in all of `nn`: B batch, S source length, T target length, D d_model, H heads, K d_k, F d_ff,
V vocabulary; `...` stands for any leading axes. Weights are (in, out), so `x @ W` is the paper's xW.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import ops_of, rows_of
from scratchformer.nn.parameter import Array, Layer, Parameter


class Linear(Layer):
    """An affine map, the building block of equation 2 and of every projection.

        y = x W + b

    W (d_in, d_out), Glorot uniform: limit sqrt(6 / (d_in + d_out)); b (d_out,), zeros.

    forward(x (..., d_in)) -> y (..., d_out), cache
    backward(dy (..., d_out), cache) -> dx (..., d_in)

    Keeps:  x.
    """

    def __init__(
        self, d_in: int, d_out: int, init: np.random.Generator, dtype: str = "float32", bias: bool = True
    ) -> None:
        limit = math.sqrt(6 / (d_in + d_out))
        self.weight = Parameter(init.uniform(-limit, limit, (d_in, d_out)).astype(dtype))
        self.bias = Parameter(np.zeros(d_out, dtype)) if bias else None

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        y = ops_of(x).linear(x, self.weight.data, self.bias and self.bias.data)
        return y, (x,)

    def backward(self, dy: Array, cache: Any) -> Array:
        (x,) = cache
        # y = x W + b
        return ops_of(dy).linear_backward(dy, x, self.weight.data, self.weight.grad, self.bias and self.bias.grad)


class Embedding(Layer):
    """Learned vectors for words (paper §3.4).

        x = sqrt(d_model) E[ids],   and 0 where ids is padding

    E (V, D), normal with standard deviation d_model^-0.5, so that x has unit variance. `weight` is given from outside
    where several layers share it.

    forward(ids (B, T) int) -> x (B, T, D), cache
    backward(dx (B, T, D), cache) -> None: ids have no gradient

    Keeps:  ids.
    """

    def __init__(self, weight: Parameter) -> None:
        self.weight = weight
        self.scale = math.sqrt(weight.shape[1])

    @staticmethod
    def new_weight(vocab_size: int, d_model: int, init: np.random.Generator, dtype: str = "float32") -> Parameter:
        """A new E, (vocab_size, d_model)."""
        return Parameter(init.normal(0, d_model**-0.5, (vocab_size, d_model)).astype(dtype))

    def forward(self, ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        x = ops_of(self.weight.data).embedding(ids, self.weight.data, self.scale)
        return x, (ids,)

    def backward(self, dx: Array, cache: Any) -> None:
        (ids,) = cache
        # x = scale E[ids]
        ops_of(dx).embedding_backward(dx, ids, self.scale, self.weight.grad)


class Unembedding(Layer):
    """From vectors back to words (paper §3.4): the score of a word is the product with its embedding, unscaled.

        logits = y E^T

    E (V, D), often the Parameter of an Embedding: its gradient then has a share from each use.

    forward(y (..., D)) -> logits (..., V), cache
    backward(dlogits (..., V), cache) -> dy (..., D)

    Keeps:  y.
    """

    def __init__(self, weight: Parameter) -> None:
        self.weight = weight

    def forward(self, y: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        logits = ops_of(y).linear(y, self.weight.data.T, None)
        return logits, (y,)

    def backward(self, dlogits: Array, cache: Any) -> Array:
        (y,) = cache
        ops, rows = ops_of(dlogits), rows_of(dlogits)
        # logits = y E^T
        ops.add_product_inplace(self.weight.grad, rows.T, rows_of(y))
        return ops.matmul(rows, self.weight.data).reshape(y.shape)


class PositionalEncoding(Layer):
    """Sinusoids that encode the position, added to the embedding (paper §3.5), and dropout on the sum (§5.4).

        PE(pos, 2i) = sin(pos / 10000^(2i / d_model)),   PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))
        y = dropout(x + PE)

    forward(x (B, T, D), first=0) -> y (B, T, D), cache;   `first` is the position of x[:, 0]
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:  the dropout mask.
    """

    def __init__(self, P_drop: float = 0.0) -> None:
        self.P_drop = P_drop
        self.table: Array | None = None

    def forward(self, x: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        y, kept = ops_of(x).dropout(x + self.encoding(x, first), self.P_drop, rng)
        return y, (kept,)

    def encoding(self, x: Array, first: int) -> Array:
        """The encoding of x's positions (T, D), from a table that is made once and doubles when it is too short."""
        table, end = self.table, first + x.shape[1]
        kind = type(x), x.dtype, x.shape[2]
        if table is None or (type(table), table.dtype, table.shape[1]) != kind or len(table) < end:
            rows = max(128, 1 << (end - 1).bit_length())
            table = self.table = ops_of(x).xp.asarray(sinusoids(0, rows, x.shape[2]).astype(x.dtype))
        return table[first:end]

    def backward(self, dy: Array, cache: Any) -> Array:
        (kept,) = cache
        # y = dropout(x + PE)
        return ops_of(dy).dropout_backward(dy, kept, self.P_drop)


def sinusoids(first: int, count: int, d_model: int) -> np.ndarray:
    """Rows PE(first) ... PE(first + count - 1) of the paper's §3.5, (count, d_model) float64."""
    position = np.arange(first, first + count)[:, None]
    channel = np.arange(d_model)
    angle = position / 10000 ** (2 * (channel // 2) / d_model)
    return np.where(channel % 2 == 0, np.sin(angle), np.cos(angle))


class LearnedPositions(Layer):
    """Learned vectors instead of sinusoids (paper §3.5 and Table 3, row E).

        y = dropout(x + P[pos])

    P (max_positions, D), normal with standard deviation d_model^-0.5.

    forward(x (B, T, D), first=0) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:  the dropout mask, and `first`.
    Raises: ValueError for a position beyond the table.
    """

    def __init__(
        self, max_positions: int, d_model: int, init: np.random.Generator, dtype: str = "float32", P_drop: float = 0.0
    ) -> None:
        self.weight = Parameter(init.normal(0, d_model**-0.5, (max_positions, d_model)).astype(dtype))
        self.P_drop = P_drop

    def forward(self, x: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        end = first + x.shape[1]
        if end > len(self.weight.data):
            raise ValueError(
                f"a sequence of {end} tokens needs {end} learned positions; "
                f"the model has max_positions={len(self.weight.data)}"
            )
        y, kept = ops_of(x).dropout(x + self.weight.data[first:end], self.P_drop, rng)
        return y, (first, kept)

    def backward(self, dy: Array, cache: Any) -> Array:
        first, kept = cache
        # y = dropout(x + P[first:end])
        dx = ops_of(dy).dropout_backward(dy, kept, self.P_drop)
        self.weight.grad[first : first + dx.shape[1]] += dx.sum(axis=0, dtype=self.weight.grad.dtype)
        return dx


class NoPositions(Layer):
    """The dropout of the embedding alone (paper §5.4): positions stand elsewhere, or the model has none.

        y = dropout(x)

    forward(x (B, T, D), first) -> y (B, T, D), cache;   `first` is not used
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:  the dropout mask.
    """

    def __init__(self, P_drop: float = 0.0) -> None:
        self.P_drop = P_drop

    def forward(self, x: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        y, kept = ops_of(x).dropout(x, self.P_drop, rng)
        return y, (kept,)

    def backward(self, dy: Array, cache: Any) -> Array:
        (kept,) = cache
        # y = dropout(x)
        return ops_of(dy).dropout_backward(dy, kept, self.P_drop)


class LayerNorm(Layer):
    """Layer normalisation (Ba et al. 2016, paper §3.1). Post-norm models, the default, run `AddNorm` instead.

        y = gamma (x - mean(x)) / sqrt(var(x) + eps) + beta     over the last axis, biased variance

    gamma (D,), ones; beta (D,), zeros.

    forward(x (..., D)) -> y (..., D), cache
    backward(dy (..., D), cache) -> dx (..., D)

    Keeps:  the normalised x, and 1 / standard deviation of each row.
    """

    def __init__(self, d_model: int, dtype: str = "float32", eps: float = 1e-6) -> None:
        self.gamma = Parameter(np.ones(d_model, dtype))
        self.beta = Parameter(np.zeros(d_model, dtype))
        self.eps = eps

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return ops_of(x).layer_norm(x, self.gamma.data, self.beta.data, self.eps)

    def backward(self, dy: Array, cache: Any) -> Array:
        return ops_of(dy).layer_norm_backward(dy, cache, self.gamma.data, self.gamma.grad, self.beta.grad)


class AddNorm(LayerNorm):
    """The "Add & Norm" box of Figure 1 (paper §3.1), with the residual dropout of §5.4 inside.

        y = LayerNorm(x + dropout(update))

    gamma (D,), ones; beta (D,), zeros.

    forward(x (..., D), update (..., D)) -> y (..., D), cache;   update is what the sublayer made of x
    backward(dy (..., D), cache) -> dx (..., D), dupdate (..., D)

    Keeps:  what LayerNorm keeps, and the dropout mask.
    """

    def __init__(self, d_model: int, dtype: str = "float32", eps: float = 1e-6, P_drop: float = 0.0) -> None:
        super().__init__(d_model, dtype, eps)
        self.P_drop = P_drop

    def forward(  # type: ignore[override]
        self, x: Array, update: Array, rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        return ops_of(x).add_norm(x, update, self.gamma.data, self.beta.data, self.eps, self.P_drop, rng)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        return ops_of(dy).add_norm_backward(dy, cache, self.gamma.data, self.gamma.grad, self.beta.grad, self.P_drop)


class FeedForward(Layer):
    """Position-wise feed-forward network (paper §3.3, equation 2).

        FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

    W_1 (D, F), b_1 (F,), W_2 (F, D), b_2 (D,).

    forward(x (..., D)) -> y (..., D), cache
    backward(dy (..., D), cache) -> dx (..., D)

    Keeps:    x and the hidden layer (..., F), which dominates; with GELU also the hidden layer before it.
    Differs:  `relu_dropout` drops hidden units; the paper's value is 0. `activation="gelu"` takes GELU (`Ops.gelu`) in
              place of max(0, .), as GPT-2 and BERT do.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        init: np.random.Generator,
        dtype: str = "float32",
        relu_dropout: float = 0.0,
        activation: Literal["relu", "gelu"] = "relu",
    ) -> None:
        self.inner = Linear(d_model, d_ff, init, dtype)
        self.outer = Linear(d_ff, d_model, init, dtype)
        self.relu_dropout = relu_dropout
        self.activation = activation

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        ops = ops_of(x)
        hidden, inner_cache = self.inner.forward(x)  # (..., F)
        if self.activation == "gelu":
            active = ops.gelu(hidden)
        else:
            active = hidden = ops.relu(hidden)  # backward needs no more than this
        dropped, kept = ops.dropout(active, self.relu_dropout, rng)
        y, outer_cache = self.outer.forward(dropped)  # (..., D)
        return y, (inner_cache, hidden, kept, outer_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        inner_cache, hidden, kept, outer_cache = cache
        ops = ops_of(dy)
        # y = dropped W_2 + b_2
        ddropped = self.outer.backward(dy, outer_cache)  # (..., F)
        # dropped = dropout(activation(hidden))
        dactive = ops.dropout_backward(ddropped, kept, self.relu_dropout)
        activation_backward = ops.gelu_backward if self.activation == "gelu" else ops.relu_backward
        dhidden = activation_backward(dactive, hidden)
        # hidden = x W_1 + b_1
        return self.inner.backward(dhidden, inner_cache)  # (..., D)
