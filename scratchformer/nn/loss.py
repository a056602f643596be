"""Label-smoothed cross-entropy (paper §5.4), which training minimises, and its gradient.

`cross_entropy` is the loss of given logits. `batch_loss` and `batch_loss_backward` compute the loss of a whole model
without ever keeping all logits, which would be by far the largest array; training does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Unembedding
from scratchformer.nn.model import Model, check_ids
from scratchformer.nn.ops import PAD, chunks, ops_of, rows_of
from scratchformer.nn.parameter import Array, Layer

Smoothing = Literal["others", "uniform"]


def cross_entropy(
    logits: Array, target_ids: Array, smoothing: float = 0.0, spread: Smoothing = "others", out: Array | None = None
) -> tuple[Array, int, Array]:
    """The sum of the cross-entropies, the number of target tokens, and the gradient of the sum.

        loss = -sum_v q_v log softmax(logits)_v

    spread="others":   q is 1 - smoothing on the target and smoothing / (V - 1) on each other class (the paper's code).
    spread="uniform":  q is 1 - smoothing on the target, plus smoothing / V on every class (Szegedy et al. 2016).

    logits (..., V), target_ids (...) int; padded targets do not count. dlogits is written into `out`, which may be
    `logits` itself. -> loss_sum in nats, n_tokens, dlogits (..., V)

    The mean over several batches is sum(loss_sum) / sum(n_tokens), not the mean of their means.

    Raises ValueError for an invalid smoothing, spread, target or shape.
    """
    V = logits.shape[-1]
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing} is not in [0, 1)")
    if spread not in get_args(Smoothing):
        raise ValueError(f"spread={spread!r} is not one of {', '.join(get_args(Smoothing))}")
    if target_ids.size and not (0 <= target_ids.min() and target_ids.max() < V):
        raise ValueError(f"targets from {target_ids.min()} to {target_ids.max()}, but there are {V} classes")
    if logits.shape[:-1] != target_ids.shape:
        raise ValueError(f"logits {logits.shape} and targets {target_ids.shape} do not belong together")
    if out is not None and not (out.shape == logits.shape and out.flags.c_contiguous):
        raise ValueError("out must have the shape of the logits and lie in memory row after row")
    off_target = smoothing / (V - 1 if spread == "others" else V)
    on_target = 1 - smoothing - off_target if spread == "others" else 1 - smoothing
    loss_sum, dlogits = ops_of(logits).cross_entropy(
        rows_of(logits), target_ids.reshape(-1), on_target, off_target, None if out is None else rows_of(out)
    )
    return loss_sum, int((target_ids != PAD).sum()), dlogits.reshape(logits.shape)


# The loss of a model --------------------------------------------------------------------------------------------------


def batch_loss(
    model: Model, inputs: tuple[Array, ...], targets: Array, smoothing: float = 0.0, spread: Smoothing = "others"
) -> tuple[float, int]:
    """The loss without dropout and without gradients, for validation -> loss_sum in nats, n_tokens

    targets (B, T) int: for each state the id of the word or the class to predict; 0 where there is none
    Raises ValueError for targets that do not fit the model, and as the model does for its inputs.
    """
    states, _ = model.states(*inputs)
    loss_sum, n_tokens, _ = states_loss(model.unembedding, states, targets, smoothing, spread, gradient=False)
    return loss_sum, n_tokens


def batch_loss_backward(
    model: Model,
    inputs: tuple[Array, ...],
    targets: Array,
    smoothing: float = 0.0,
    rng: DropoutKey | None = None,
    spread: Smoothing = "others",
    after: Callable[[Layer], None] | None = None,
) -> tuple[float, int]:
    """Forward, loss and backward: the same as `model.forward`, `cross_entropy` and `model.backward`, with less memory.

    after  called with each layer whose gradient is complete, while backward goes on
    Other arguments, result and errors as for `batch_loss`; adds into Parameter.grad
    """
    states, cache = model.states(*inputs, rng=rng)
    loss_sum, n_tokens, dstates = states_loss(model.unembedding, states, targets, smoothing, spread)
    for layer in model.states_backward(dstates, cache):
        if after:
            after(layer)
    return loss_sum, n_tokens


def states_loss(
    unembedding: Unembedding,
    states: Array,
    target_ids: Array,
    smoothing: float,
    spread: Smoothing,
    gradient: bool = True,
) -> tuple[float, int, Array]:
    """From the model's states to the loss and back.

    states (B, T, D), target_ids (B, T) -> loss_sum, n_tokens, dstates (B, T, D)
    Logits are computed for real tokens only, some rows at a time, and their gradient overwrites them. Without
    `gradient` there is no backward, and dstates is None.
    """
    check_ids("targets", target_ids, unembedding.weight.shape[0])
    if target_ids.shape != states.shape[:2]:
        raise ValueError(f"targets has shape {target_ids.shape}, the states {states.shape}")
    ops, real = ops_of(states), np.flatnonzero(target_ids != PAD)
    rows, targets = ops.gather_rows(states, real), target_ids.reshape(-1)[real]  # (n, D), (n,)
    drows = ops.xp.empty(rows.shape, rows.dtype) if gradient else None
    loss_sum = 0.0
    for chunk in chunks(len(rows), max(1, ops.logits_at_once // unembedding.weight.shape[0])):
        logits, cache = unembedding.forward(rows[chunk])  # (chunk, V)
        loss, _, dlogits = cross_entropy(logits, targets[chunk], smoothing, spread, out=logits)
        loss_sum = loss_sum + loss
        if drows is not None:
            drows[chunk] = unembedding.backward(dlogits, cache)
    dstates = None if drows is None else ops.gather_rows_backward(drows, real, states.shape)
    return loss_sum, len(rows), dstates
