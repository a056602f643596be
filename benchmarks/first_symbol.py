"""Measure how far back an RNN, an LSTM and one attention remember, after equally short training.

    python benchmarks/first_symbol.py [--part first_symbol_longer] [--quick] [--out DIR]

Each reads n random symbols and is to say at the end which was the first (`lessons/support/recall.py`). README.md
here says what is recorded. The part `first_symbol_longer` asks how many steps they need until they
remember.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from small_training import number, record, spread
from threadpoolctl import threadpool_limits

from support.recall import BATCH, LONGEST_GRADIENT, READERS, SYMBOLS, accuracy, model_of, train

LENGTHS, RATES, SEEDS, STEPS = (4, 8, 16, 32, 64), (0.001, 0.003, 0.01), (0, 1, 2), 200
BLANK_LENGTHS = (16, 32, 64)


def row(
    reader: str, n: int, blank: bool, rates: tuple[float, ...], seeds: tuple[int, ...], steps: int
) -> dict[str, Any]:
    """All rates and seeds of one reader at one length."""
    by_rate = []
    for rate in rates:
        runs = []
        for seed in seeds:
            model = model_of(reader, seed)
            losses = train(model, n, rate, 100 + seed, steps, blank)
            runs.append(
                {
                    "seed": seed,
                    "accuracy": accuracy(model, n, blank=blank),
                    "last_loss": number(float(np.mean(losses[-20:]))),
                }
            )
        by_rate.append({"learning_rate": rate, "accuracy": spread([run["accuracy"] for run in runs]), "runs": runs})
    best = max(by_rate, key=lambda entry: entry["accuracy"]["mean"])
    print(f"{reader}, n = {n}{', blank' if blank else ''}: {best['accuracy']} at {best['learning_rate']}", flush=True)
    return {
        "reader": reader,
        "n": n,
        "blank": blank,
        "parameters": model_of(reader, 0).store.data.size,
        "best": {key: best[key] for key in ("learning_rate", "accuracy")},
        "by_rate": by_rate,
    }


def after_equal_steps(quick: bool) -> dict[str, Any]:
    rates, seeds, steps = (RATES[:1], SEEDS[:1], 2) if quick else (RATES, SEEDS, STEPS)
    rows = [row(reader, n, False, rates, seeds, steps) for reader in READERS for n in LENGTHS]
    recurrent = [reader for reader in READERS if reader.startswith("RNN")]
    rows += [row(reader, n, True, rates, seeds, steps) for reader in recurrent for n in BLANK_LENGTHS]
    return {"config": {"steps": steps, "learning_rates": rates}, "seeds": seeds, "results": rows}


# How many steps? ------------------------------------------------------------------------------------------------------

RATE, MOST_STEPS, EVERY, ENOUGH = 0.003, 3000, 50, 0.99
"""The accuracy is measured after every EVERY steps, until it is ENOUGH."""

CASES = (
    ("LSTM, forget bias 1", 32, False),
    ("RNN", 64, False),
    ("LSTM, forget bias 5", 64, False),
    ("RNN", 32, False),
    ("RNN, W_h x 0.8", 32, False),
    ("RNN, W_h x 0.8", 64, True),
    ("LSTM, forget bias 5", 32, False),
    ("LSTM, forget bias 1", 16, False),
    ("RNN, W_h x 0.8", 16, False),
    ("RNN", 16, False),
    ("attention", 64, False),
    ("attention", 32, False),
)
"""Reader, length, whether blank."""


class Run(NamedTuple):
    reader: str
    n: int
    blank: bool
    seed: int
    steps: int


def trained(run: Run) -> dict[str, Any]:
    """One training. -> its steps until the accuracy was ENOUGH, None if it never was; accuracies and losses"""
    accuracies: list[float] = []
    model = model_of(run.reader, run.seed)

    def enough(step: int) -> bool:
        if step % EVERY == 0:
            accuracies.append(accuracy(model, run.n, blank=run.blank))
        return step % EVERY == 0 and accuracies[-1] >= ENOUGH

    with threadpool_limits(1):
        losses = train(model, run.n, RATE, 100 + run.seed, run.steps, run.blank, enough=enough)
    done = bool(accuracies) and accuracies[-1] >= ENOUGH
    print(*run, len(losses) if done else None, accuracies[-1:], flush=True)
    return {
        "seed": run.seed,
        "steps": len(losses) if done else None,
        "accuracies": accuracies,
        "losses": [number(float(np.mean(losses[i : i + EVERY]))) for i in range(0, len(losses), EVERY)],
    }


def until_enough(quick: bool) -> dict[str, Any]:
    seeds, steps = (SEEDS[:1], EVERY) if quick else (SEEDS, MOST_STEPS)
    cases = CASES[-3:] if quick else CASES
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(trained, [Run(*case, seed, steps) for case in cases for seed in seeds]))
    rows = [
        {"reader": reader, "n": n, "blank": blank, "runs": runs[i * len(seeds) : (i + 1) * len(seeds)]}
        for i, (reader, n, blank) in enumerate(cases)
    ]
    config = {"learning_rate": RATE, "steps": steps, "every": EVERY, "enough": ENOUGH}
    return {"config": config, "seeds": seeds, "results": rows}


PARTS = {"first_symbol": after_equal_steps, "first_symbol_longer": until_enough}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", choices=PARTS, default="first_symbol")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found = PARTS[arguments.part](arguments.quick)
    found["config"] |= {"symbols": SYMBOLS, "batch": BATCH, "longest_gradient": LONGEST_GRADIENT}
    return {"name": arguments.part} | found


if __name__ == "__main__":
    record("first_symbol", __doc__, measure, options)
