"""How many steps of training does a reader of `first_symbol.py` need until it remembers the first symbol?

    python benchmarks/first_symbol_longer.py [--quick] [--out DIR]

README.md here says what is recorded.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from provenance import surroundings
from small_training import arguments_of, number, write
from threadpoolctl import threadpool_limits

from library.recall import BATCH, LONGEST_GRADIENT, SYMBOLS, accuracy, model_of, train

SEEDS, RATE, STEPS, EVERY, ENOUGH = (0, 1, 2), 0.003, 3000, 50, 0.99
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


def main() -> None:
    arguments = arguments_of(__doc__.split("\n")[0])
    seeds, steps = (SEEDS[:1], EVERY) if arguments.quick else (SEEDS, STEPS)
    cases = CASES[-3:] if arguments.quick else CASES
    provenance = surroundings()  # now: git may move while we measure
    config = {
        "symbols": SYMBOLS,
        "batch": BATCH,
        "longest_gradient": LONGEST_GRADIENT,
        "learning_rate": RATE,
        "steps": steps,
        "every": EVERY,
        "enough": ENOUGH,
    }
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(trained, [Run(*case, seed, steps) for case in cases for seed in seeds]))
    rows = [
        {"reader": reader, "n": n, "blank": blank, "runs": runs[i * len(seeds) : (i + 1) * len(seeds)]}
        for i, (reader, n, blank) in enumerate(cases)
    ]
    result = {"provenance": provenance, "config": config, "seeds": seeds, "results": rows}
    write(arguments.out, "first_symbol_longer", result)


if __name__ == "__main__":
    main()
