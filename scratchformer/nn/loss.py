"""Label-smoothed cross-entropy (paper §5.4): what training minimises, and its gradient."""

from __future__ import annotations

from typing import Literal, get_args

from scratchformer.nn.ops import PAD, ops_of, rows_of
from scratchformer.nn.parameter import Array

Smoothing = Literal["others", "uniform"]


def cross_entropy(
    logits: Array, target_ids: Array, smoothing: float = 0.0, spread: Smoothing = "others", out: Array | None = None
) -> tuple[Array, int, Array]:
    """Sum of the cross-entropies, the number of tokens it runs over, and the gradient of the sum.

        loss = -sum_v q_v log softmax(logits)_v

    spread="others":   q is 1 - smoothing on the target and smoothing / (V - 1) on each other class (the paper's code).
    spread="uniform":  q is 1 - smoothing on the target, plus smoothing / V on every class (Szegedy et al. 2016).

    logits (..., V), target_ids (...) int; a padded target counts for nothing. `out` receives dlogits and may be
    `logits` itself. -> loss_sum in nats, n_tokens, dlogits (..., V)

    The mean over any number of batches is sum(loss_sum) / sum(n_tokens), never a mean of means.

    Raises: ValueError if smoothing, spread, a target or a shape is not one of these.
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
    everywhere = smoothing / (V - 1 if spread == "others" else V)
    on_target = 1 - smoothing - everywhere if spread == "others" else 1 - smoothing
    loss_sum, dlogits = ops_of(logits).cross_entropy(
        rows_of(logits), target_ids.reshape(-1), on_target, everywhere, None if out is None else rows_of(out)
    )
    return loss_sum, int((target_ids != PAD).sum()), dlogits.reshape(logits.shape)
