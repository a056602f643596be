"""Writing symbols backwards: through one vector, with attention, and with attention but no recurrence.

    python benchmarks/reversal.py [--quick] [--out DIR]

The models are those of `lessons/support/reversal.py`, for sequences of 4 to 32 symbols.
"""

import argparse
from typing import Any

import numpy as np
from harness import record, rounded, spread

from scratchformer.nn.layers import Linear
from support.recurrent import AdditiveAttention
from support.reversal import BATCH, LONGEST_GRADIENT, SYMBOLS, EncoderDecoder, PlainMean, right, train

LENGTHS, SEEDS, STEPS, RATE = (4, 8, 16, 32), (0, 1, 2), 300, 0.01
MODELS: dict[str, dict[str, Any]] = {
    "one vector": {},
    "attention": {"look": AdditiveAttention},
    "no recurrence": {"look": AdditiveAttention, "encoder": Linear, "decoder": Linear, "positions": "ed"},
}
CONTROLS: dict[str, tuple[int, dict[str, Any], float, int]] = {
    "one vector, rate 0.003": (16, {}, 0.003, 1),
    "one vector, 4 x the steps": (16, {}, RATE, 4),
    "one vector, 64 numbers": (16, {"d": 64}, RATE, 1),
    "one vector, 64 numbers, rate 0.003": (16, {"d": 64}, 0.003, 1),
    "one vector, with positions": (16, {"positions": "ed"}, RATE, 1),
    "plain mean": (16, {"look": PlainMean}, RATE, 1),
    "plain mean, rate 0.003": (16, {"look": PlainMean}, 0.003, 1),
    "no recurrence, no positions": (16, MODELS["no recurrence"] | {"positions": ""}, RATE, 1),
    "attention, with positions": (32, {"look": AdditiveAttention, "positions": "ed"}, RATE, 1),
    "one vector, 16 x the steps": (16, {}, RATE, 16),
    "attention, 4 x the steps": (32, {"look": AdditiveAttention}, RATE, 4),
    "attention, 8 x the steps": (32, {"look": AdditiveAttention}, RATE, 8),
    "no recurrence, no positions, 4 x the steps": (16, MODELS["no recurrence"] | {"positions": ""}, RATE, 4),
}
"""The length, what is changed, the learning rate, and how many times STEPS."""


def row(name: str, n: int, options: dict[str, Any], rate: float, steps: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Train one model at one length with all seeds."""
    models = [train(EncoderDecoder(n, seed, **options), rate, steps) for seed in seeds]
    found = np.array([right(model).mean(axis=0) for model in models])  # (seeds, positions)
    accuracy = rounded(found.mean(axis=1))
    print(f"{name}, n = {n}: {accuracy}", flush=True)
    about = {"model": name, "n": n, "learning_rate": rate, "steps": steps, "parameters": models[0].store.data.size}
    by_position = rounded(found.mean(axis=0))
    return about | {"accuracy": spread(accuracy) | {"by_seed": accuracy}, "by_position": by_position}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    seeds, steps = (SEEDS[:1], 2) if arguments.quick else (SEEDS, STEPS)
    rows = [row(name, n, options, RATE, steps, seeds) for name, options in MODELS.items() for n in LENGTHS]
    rows += [row(name, n, options, rate, times * steps, seeds) for name, (n, options, rate, times) in CONTROLS.items()]
    config = {"symbols": SYMBOLS, "batch": BATCH, "longest_gradient": LONGEST_GRADIENT}
    return {"config": config, "seeds": seeds, "results": rows}


if __name__ == "__main__":
    record("reversal", __doc__, measure)
