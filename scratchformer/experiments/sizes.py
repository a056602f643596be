"""Memory and disk that training takes, and the lines in which commands show them."""

from __future__ import annotations

import tracemalloc
from typing import Sequence

from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.model import Model
from scratchformer.nn.parameter import Array
from scratchformer.nn.sizes import FLOAT_BYTES, parameter_counts


def kept_bytes(model: Model, inputs: Sequence[Array]) -> int:
    """Measure the memory that forward keeps for backward, without the logits."""
    tracemalloc.start()
    try:
        kept = model.states(*inputs, rng=DropoutKey(0, 1))
        found, _ = tracemalloc.get_traced_memory()
        del kept
        return found
    finally:
        tracemalloc.stop()


def checkpoint_bytes(config: Config) -> int:
    """Disk for checkpoints: those of steps, with moments, and one more while it is written; the best and the average,
    without moments."""
    weights = sum(parameter_counts(config.model).values()) * FLOAT_BYTES
    return (config.training.keep + 1) * 3 * weights + 2 * weights


def format_duration(seconds: float) -> str:
    """In the unit that suits, such as "17.5 hours"."""
    for size, unit in ((365 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} seconds"


def step_summary(config: Config, nproc: int) -> list[str]:
    """Describe the parts of an optimizer step, and how many processes share it."""
    n, positions = config.training.accumulation, config.training.tokens_per_batch
    least, most = n // nproc, -(-n // nproc)
    return [
        f"{'an optimizer step, at most':30}{n * positions:>14,} padded positions a side",
        f"  {'micro-batches':28}{n:>14}  of at most {positions:,} positions",
        f"  {'processes that share them':28}{nproc:>14}  {least if least == most else f'{least} or {most}'} each",
    ]


def summary(config: Config) -> list[str]:
    """Parameters, one line for each part, and the memory that weights, gradients and Adam's two moments take."""
    counts = parameter_counts(config.model)
    total = sum(counts.values())
    return [
        f"{'parameters':30}{total:>14,}",
        *(f"  {part:28}{count:>14,}  {count / total:5.1%}" for part, count in counts.items() if count),
        f"{'weights, gradients, moments':30}{4 * FLOAT_BYTES * total / 2**20:>10,.0f} MiB",
    ]
