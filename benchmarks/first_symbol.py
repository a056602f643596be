"""Measure how many steps of training an RNN, an LSTM and one attention need to remember the first of n symbols.

    python benchmarks/first_symbol.py [--quick] [--out DIR]

Each reads n random symbols and is to say at the end which was the first (`lessons/support/recall.py`).
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from harness import record, rounded
from threadpoolctl import threadpool_limits

from support.recall import BATCH, LONGEST_GRADIENT, SYMBOLS, accuracy, model_of, train

SEEDS = (0, 1, 2)
RATE, MOST_STEPS, EVERY, ENOUGH = 0.003, 3000, 50, 0.99
"""The accuracy is measured after every EVERY steps, until it is ENOUGH."""

CASES = (
    ("RNN, W_h x 1.2", 128, False),
    ("RNN", 128, False),
    ("LSTM, forget bias 1", 32, False),
    ("RNN", 128, True),
    ("LSTM, forget bias 5", 32, False),
    ("attention", 128, False),
)
"""Reader, length, whether blank."""


def trained(reader: str, n: int, blank: bool, seed: int, most_steps: int) -> dict[str, Any]:
    """Train once. -> the steps until the accuracy was ENOUGH, None if it never was; accuracies and losses"""
    accuracies: list[float] = []
    model = model_of(reader, seed)

    def enough(step: int) -> bool:
        if step % EVERY == 0:
            accuracies.append(accuracy(model, n, blank=blank))
        return step % EVERY == 0 and accuracies[-1] >= ENOUGH

    with threadpool_limits(1):
        losses = train(model, n, RATE, 100 + seed, most_steps, blank, enough=enough)
    steps = len(losses) if accuracies and accuracies[-1] >= ENOUGH else None
    print(reader, n, blank, seed, steps, accuracies[-1:], flush=True)
    means = [float(np.mean(losses[i : i + EVERY])) for i in range(0, len(losses), EVERY)]
    return {"seed": seed, "steps": steps, "accuracies": accuracies, "losses": rounded(means)}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cases, seeds, most_steps = (CASES[-3:], SEEDS[:1], EVERY) if arguments.quick else (CASES, SEEDS, MOST_STEPS)
    with ProcessPoolExecutor(2) as pool:
        futures = [[pool.submit(trained, *case, seed, most_steps) for seed in seeds] for case in cases]
        rows = [
            {"reader": reader, "n": n, "blank": blank, "runs": [each.result() for each in runs]}
            for (reader, n, blank), runs in zip(cases, futures)
        ]
    config = {"learning_rate": RATE, "steps": most_steps, "every": EVERY, "enough": ENOUGH}
    config |= {"symbols": SYMBOLS, "batch": BATCH, "longest_gradient": LONGEST_GRADIENT}
    return {"config": config, "seeds": seeds, "results": rows}


if __name__ == "__main__":
    record("first_symbol", __doc__, measure)
