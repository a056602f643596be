"""Numbers that tell, before the first step, whether a schedule of learning rates can work."""

from __future__ import annotations

import math

from scratchformer.config import Config
from scratchformer.nn.optim import scheduled


def planned_steps(config: Config, n_targets: int, steps_per_epoch: int) -> int:
    """The number of steps until `steps` or `max_tokens` ends the training. n_targets: target tokens of an epoch"""
    steps, max_tokens = config.training.steps, config.training.max_tokens
    return min(steps, math.ceil(max_tokens * steps_per_epoch / n_targets)) if max_tokens else steps


def rates(config: Config, n_steps: int) -> tuple[float, float, float]:
    """The share of the steps in which the rate rises; the largest rate and the sum of all rates, both in units of
    d_model^-0.5, the typical size of a weight. The sum is a triangle, then an integral."""
    training, warmup = config.training, config.training.warmup
    rising, peak = min(warmup, n_steps), scheduled(config, warmup) * math.sqrt(config.model.d_model)
    if training.schedule == "cosine":
        total = peak * (rising**2 / 2 / warmup + 0.55 * (n_steps - rising))
    else:
        falling = 2 * (math.sqrt(n_steps) - math.sqrt(rising))
        total = training.lr_factor * (rising**2 / 2 * warmup**-1.5 + falling)
    return warmup / n_steps, peak, total


def contradictions(config: Config, n_steps: int) -> str:
    """Say in one line with which numbers of the schedule nothing can be learned; "" if there are none."""
    training, (share, peak, total) = config.training, rates(config, n_steps)
    found = []
    if share > LIMITS["warm-up"]:
        found.append(f"warm-up, {training.warmup:,} of {n_steps:,} steps")
    if peak > LIMITS["peak learning rate"]:
        larger = "a longer training.warmup" if training.schedule == "noam" else "a smaller training.learning_rate"
        found.append(f"peak learning rate, {peak:.2g} of the typical size of a weight; {larger} helps")
    if total < LIMITS["sum of learning rates"] and not training.pretrained:
        found.append(f"sum of learning rates, {total:.3g} times the typical size of a weight")
    return f"`scratchformer doctor` would fail this configuration: {'; '.join(found)}" if found else ""


LIMITS = {"warm-up": 1.0, "peak learning rate": 0.3, "sum of learning rates": 1.0}
