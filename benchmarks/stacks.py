"""Find the part of "Add & Norm" that makes deep stacks learn: ways to stack 12 and 48 sublayers, at equal steps.

    python benchmarks/stacks.py [--quick] [--out DIR]

The sentences of lesson 01 as bags of words, 22 classes, and feed-forward networks between two linear maps, in the
boxes of lessons/support/stacks.py. In three ways, the second weights of each network start larger or smaller. Plain
gradient descent, several learning rates. The best has the lowest training loss at the end, so the new sentences have no
part in the choice.
"""

import argparse
import math
from typing import Any

import numpy as np
from harness import number, record

from support.stacks import LARGER, SMALLER, Classifier, sentences, train

RATES = {
    ("no stack", 0): (0.3, 1, 3),
    ("bare", 12): (0.03, 0.1, 0.3),
    ("bare" + LARGER, 12): (0.003, 0.01, 0.03, 0.1),
    ("norm only", 12): (0.003, 0.01, 0.03),
    ("residual only", 12): (0.01, 0.03, 0.1),
    ("residual only" + SMALLER, 12): (0.01, 0.03, 0.1),
    ("post-LN", 12): (0.03, 0.1, 0.3),
    ("post-LN" + SMALLER, 12): (0.03, 0.1, 0.3),
    ("pre-LN", 12): (0.1, 0.3, 1, 3),
    ("bare", 48): (0.01, 0.03, 0.1),
    ("bare" + LARGER, 48): (0.001, 0.003, 0.01),
    ("norm only", 48): (0.003, 0.01, 0.03),
    ("residual only", 48): (1e-6, 1e-5, 1e-4),
    ("residual only" + SMALLER, 48): (0.003, 0.01, 0.03),
    ("post-LN", 48): (0.003, 0.01, 0.03, 0.1),
    ("post-LN" + SMALLER, 48): (0.03, 0.1, 0.3),
    ("pre-LN", 48): (0.1, 0.3, 1),
}
SEEDS, STEPS, EVERY = (0, 1, 2), 400, 40


def run(way: str, depth: int, rate: float, seed: int, steps: int) -> dict[str, Any]:
    """Train once -> (step, share of new sentences put right, mean training loss since the last point) on the way"""
    data, model = sentences(), Classifier(way, depth, seed)
    curve, losses, last = [], [], 0
    for last, loss in train(model, rate, seed, steps):
        losses.append(loss)
        if last % EVERY == 0 or last == steps:
            curve.append((last, number(model.share_right(data.x_test, data.t_test)), number(float(np.mean(losses)))))
            losses = []
    return {"seed": seed, "ended": last == steps, "curve": curve}


def row(way: str, depth: int, seeds: tuple[int, ...], steps: int) -> dict[str, Any]:
    """Train one way at all rates. The best: every seed ends, and the mean of the last training losses is the lowest."""
    runs = {rate: [run(way, depth, rate, seed, steps) for seed in seeds] for rate in RATES[way, depth]}

    def loss(rate: float) -> float:
        return float(np.mean([each["curve"][-1][2] if each["ended"] else math.inf for each in runs[rate]]))

    best = min(runs, key=loss)
    new = [each["curve"][-1][1] for each in runs[best]]
    print(f"{depth} sublayers, {way}: rate {best:g}, loss {loss(best):.3f}, new sentences {new}", flush=True)
    rates = [{"rate": rate, "runs": found} for rate, found in runs.items()]
    return {"way": way, "depth": depth, "best_rate": best, "rates": rates}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    seeds, steps = (SEEDS[:1], 2) if arguments.quick else (SEEDS, STEPS)
    return {"seeds": seeds, "steps": steps, "results": [row(way, depth, seeds, steps) for way, depth in RATES]}


if __name__ == "__main__":
    record("stacks", __doc__, measure)
