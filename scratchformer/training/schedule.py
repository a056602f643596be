"""Numbers that tell, before the first step, whether a schedule of learning rates can work."""

from __future__ import annotations

import math

from scratchformer.config import Config
from scratchformer.nn.optim import scheduled


def planned_steps(config: Config, n_targets: int, steps_per_epoch: int) -> int:
    """The number of steps until `steps` or `max_tokens` ends the training. n_targets: target tokens of an epoch"""
    steps, max_tokens = config.training.steps, config.training.max_tokens
    return min(steps, math.ceil(max_tokens * steps_per_epoch / n_targets)) if max_tokens else steps


def warmup_share(config: Config, n_steps: int) -> float:
    """The part of the training in which the learning rate rises."""
    return config.training.warmup / n_steps


def peak_rate(config: Config) -> float:
    """The largest learning rate."""
    return scheduled(config, config.training.warmup)


def relative_peak(config: Config) -> float:
    """The largest learning rate, compared with the typical size of a weight.

    Weights are of size d_model^-0.5 (embeddings; Glorot's are similar), and a step of Adam moves each by up to lr.
    """
    return peak_rate(config) * math.sqrt(config.model.d_model)


def sum_of_rates(config: Config, n_steps: int) -> float:
    """The sum of all learning rates, in units of d_model^-0.5: a triangle, then an integral."""
    warmup = config.training.warmup
    rising = min(warmup, n_steps)
    if config.training.schedule == "cosine":
        return relative_peak(config) * (rising**2 / 2 / warmup + 0.55 * (n_steps - rising))
    falling = 2 * (math.sqrt(n_steps) - math.sqrt(rising))
    return config.training.lr_factor * (rising**2 / 2 * warmup**-1.5 + falling)


def contradictions(config: Config, n_steps: int) -> str:
    """Say in one line with which numbers of the schedule nothing can be learned; "" if there are none."""
    share, peak, total = warmup_share(config, n_steps), relative_peak(config), sum_of_rates(config, n_steps)
    found = []
    if share > LIMITS["warm-up"]:
        found.append(f"warm-up, {config.training.warmup:,} of {n_steps:,} steps ({share:.0%})")
    if peak > LIMITS["peak learning rate"]:
        found.append(f"peak learning rate, {peak:.2g} of the typical size of a weight")
    if total < LIMITS["sum of learning rates"] and not config.training.pretrained:
        found.append(f"sum of learning rates, {total:.3g} times the typical size of a weight")
    return f"`scratchformer doctor` would fail this configuration: {'; '.join(found)}" if found else ""


LIMITS = {"warm-up": 1.0, "peak learning rate": 0.3, "sum of learning rates": 1.0}
