"""Measure how far back an RNN, an LSTM and one attention remember, after equally short training.

    python benchmarks/first_symbol.py [--part first_symbol_longer] [--quick] [--out DIR]

Each reads n random symbols and is to say at the end which was the first (`lessons/support/recall.py`). The part
`first_symbol_longer` asks how many steps they need until they remember.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from harness import record, rounded, spread
from threadpoolctl import threadpool_limits

from support.recall import BATCH, LONGEST_GRADIENT, READERS, SYMBOLS, accuracy, model_of, train

SEEDS = (0, 1, 2)

# After equal steps ----------------------------------------------------------------------------------------------------

LENGTHS, BLANK_LENGTHS, RATES, STEPS = (4, 8, 16, 32, 64), (16, 32, 64), (0.001, 0.003, 0.01), 200


def row(reader: str, n: int, blank: bool, rates: tuple, seeds: tuple, steps: int) -> dict[str, Any]:
    """Train one reader at one length, with all rates and seeds."""
    by_rate = []
    for rate in rates:
        runs = []
        for seed in seeds:
            model = model_of(reader, seed)
            train(model, n, rate, 100 + seed, steps, blank)
            runs.append({"seed": seed, "accuracy": accuracy(model, n, blank=blank)})
        by_rate.append({"learning_rate": rate, "accuracy": spread(run["accuracy"] for run in runs), "runs": runs})
    best = max(by_rate, key=lambda entry: entry["accuracy"]["mean"])
    print(f"{reader}, n = {n}{', blank' if blank else ''}: {best['accuracy']} at {best['learning_rate']}", flush=True)
    parameters = model_of(reader, 0).store.data.size
    return dict(reader=reader, n=n, blank=blank, parameters=parameters, best=best, by_rate=by_rate)


def after_equal_steps(quick: bool) -> dict[str, Any]:
    rates, seeds, steps = (RATES[:1], SEEDS[:1], 2) if quick else (RATES, SEEDS, STEPS)
    rows = [row(reader, n, False, rates, seeds, steps) for reader in READERS for n in LENGTHS]
    recurrent = [reader for reader in READERS if reader.startswith("RNN")]
    rows += [row(reader, n, True, rates, seeds, steps) for reader in recurrent for n in BLANK_LENGTHS]
    return {"config": {"steps": steps, "learning_rates": rates}, "seeds": seeds, "results": rows}


# Until they remember --------------------------------------------------------------------------------------------------

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


def until_enough(quick: bool) -> dict[str, Any]:
    cases, seeds, most_steps = (CASES[-3:], SEEDS[:1], EVERY) if quick else (CASES, SEEDS, MOST_STEPS)
    with ProcessPoolExecutor(2) as pool:
        futures = [[pool.submit(trained, *case, seed, most_steps) for seed in seeds] for case in cases]
        rows = [
            {"reader": reader, "n": n, "blank": blank, "runs": [each.result() for each in runs]}
            for (reader, n, blank), runs in zip(cases, futures)
        ]
    config = {"learning_rate": RATE, "steps": most_steps, "every": EVERY, "enough": ENOUGH}
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
