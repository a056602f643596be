"""Measure how many steps of training an RNN, an LSTM and one attention need to remember the first of n symbols.

    python benchmarks/first_symbol.py [--quick] [--out DIR]

Each reads n random symbols and is to say at the end which was the first (`lessons/support/recall.py`). Some RNNs are
trained on short sequences first, and then asked at 128 symbols.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from harness import record, rounded
from threadpoolctl import threadpool_limits

from support.recall import BATCH, LONGEST_GRADIENT, SYMBOLS, accuracy, model_of, sequences, train
from support.recurrent import left_of_a_nudge

Plan = tuple[tuple[int, int], ...]

SEEDS: tuple[int, ...] = (0, 1, 2)
RATE, MOST_STEPS, EVERY, ENOUGH = 0.003, 3000, 50, 0.99
"""The accuracy is measured after every EVERY steps, until it is ENOUGH."""

CASES: tuple[tuple[str, int], ...] = (
    ("RNN, W_h x 1.2", 128),
    ("RNN", 128),
    ("LSTM, forget bias 5", 128),
    ("LSTM, forget bias 1", 32),
    ("LSTM, forget bias 5", 32),
    ("attention", 128),
)
"""Reader and length."""

PLANS: tuple[Plan, ...] = (
    ((4, 200),),
    ((16, 200),),
    ((32, 200),),
    ((128, 200),),
    ((4, 50), (8, 50), (16, 50), (32, 50)),
)
"""Pairs of length and steps, one after the other: an RNN is trained so, and then asked at LONGEST symbols."""

LONGEST = 128


def trained(reader: str, n: int, seed: int, most_steps: int) -> dict[str, Any]:
    """Train once. -> the steps until the accuracy was ENOUGH, None if it never was; accuracies and losses"""
    accuracies: list[float] = []
    model = model_of(reader, seed)

    def enough(step: int) -> bool:
        if step % EVERY == 0:
            accuracies.append(accuracy(model, n))
        return step % EVERY == 0 and accuracies[-1] >= ENOUGH

    with threadpool_limits(1):
        losses = train(model, n, RATE, 100 + seed, most_steps, enough=enough)
    steps = len(losses) if accuracies and accuracies[-1] >= ENOUGH else None
    print(reader, n, seed, steps, accuracies[-1:], flush=True)
    means = [float(np.mean(losses[i : i + EVERY])) for i in range(0, len(losses), EVERY)]
    return {"seed": seed, "steps": steps, "accuracies": accuracies, "losses": rounded(means)}


def planned(plan: Plan, seed: int) -> dict[str, Any]:
    """Train an RNN by a plan. -> its accuracies, and how much of a nudge of the first state is left at the end"""
    model, x = model_of("RNN", seed), sequences(np.random.default_rng(seed), 1, LONGEST)[0]

    def left() -> float:
        h, _ = model.reader.forward(x[:, :1])
        return left_of_a_nudge(model.reader, x[:, 1:], h[:, 0])

    before = left()
    with threadpool_limits(1):
        for i, (n, steps) in enumerate(plan):
            train(model, n, RATE, 100 + seed + 1000 * i, steps)
    accuracies = {"trained": accuracy(model, plan[-1][0]), "longest": accuracy(model, LONGEST)}
    return {"seed": seed, "accuracy": accuracies, "left": rounded({"before": before, "after": left()})}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cases, plans, seeds, most_steps = CASES, PLANS, SEEDS, MOST_STEPS
    if arguments.quick:
        cases, plans, seeds, most_steps = CASES[-3:], PLANS[:1], SEEDS[:1], EVERY
    with ProcessPoolExecutor(2) as pool:
        futures = [[pool.submit(trained, *case, seed, most_steps) for seed in seeds] for case in cases]
        rows = [
            {"reader": reader, "n": n, "runs": [each.result() for each in runs]}
            for (reader, n), runs in zip(cases, futures)
        ]
    trained_by_plan = [{"plan": plan, "runs": [planned(plan, seed) for seed in seeds]} for plan in plans]
    config = {"learning_rate": RATE, "steps": most_steps, "every": EVERY, "enough": ENOUGH}
    config |= {"symbols": SYMBOLS, "batch": BATCH, "longest_gradient": LONGEST_GRADIENT}
    return {"config": config, "seeds": seeds, "results": rows, "plans": trained_by_plan}


if __name__ == "__main__":
    record("first_symbol", __doc__, measure)
