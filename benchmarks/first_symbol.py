"""How far back do an RNN, an LSTM and one attention remember, after equally short training?

    python benchmarks/first_symbol.py [--quick] [--out DIR]

Each reads n random symbols and is to say at the end which was the first (`lessons/library/recall.py`). README.md
here says what is recorded. `first_symbol_longer.py` asks how many steps they need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from provenance import surroundings
from small_training import arguments_of, number, spread, write
from threadpoolctl import threadpool_limits

from library.recall import BATCH, LONGEST_GRADIENT, READERS, SYMBOLS, accuracy, model_of, train

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


def main() -> None:
    arguments = arguments_of(__doc__.split("\n")[0])
    rates, seeds, steps = (RATES[:1], SEEDS[:1], 2) if arguments.quick else (RATES, SEEDS, STEPS)
    config = {
        "symbols": SYMBOLS,
        "batch": BATCH,
        "longest_gradient": LONGEST_GRADIENT,
        "steps": steps,
        "learning_rates": rates,
    }
    with threadpool_limits(1):
        provenance = surroundings()  # now: git may move while we measure
        rows = [row(reader, n, False, rates, seeds, steps) for reader in READERS for n in LENGTHS]
        rows += [
            row(reader, n, True, rates, seeds, steps)
            for reader in READERS
            if reader.startswith("RNN")
            for n in BLANK_LENGTHS
        ]
    write(arguments.out, "first_symbol", {"provenance": provenance, "config": config, "seeds": seeds, "results": rows})


if __name__ == "__main__":
    main()
