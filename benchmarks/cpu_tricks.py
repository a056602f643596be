"""Measure what each trick gains in a whole training step, and count its lines.

    python benchmarks/cpu_tricks.py [--models tiny,multi30k,small] [--repetitions 40] [--out DIR] [--quick]

The step is that of `cpu_step.py`, with padding, on one thread. It is taken in turns with all tricks and without one of
them: a fast operation gives way to the reference's, or all pairs are computed as one batch. `gain_percent` is how
much longer the step takes without the trick, in percent of the step with all: the median over the rounds, in each of
which all are measured within seconds of each other, so that a clock that slows down for a while slows down all. In
three more rows no fast operation is left; a second thread helps (a negative gain: with it, the step is shorter); and
nothing is left out, so that its gain is the noise.
"""

import argparse
import inspect
from typing import Any

import numpy as np
from cpu_step import TASKS, Cell, Step, our_step
from harness import OURS, names_from, record, spread_of, take_turns
from threadpoolctl import threadpool_limits

from scratchformer.backends.cpu import FastOps, keep_freed_memory
from scratchformer.nn.ops import Ops
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import even_parts

OPERATIONS = {
    name: function
    for name, function in vars(FastOps).items()
    if inspect.isfunction(function) and not name.startswith(("layer_norm", "gelu"))
}
"""Name of a trick -> its operation. `layer_norm` belongs to `add_norm`: in FastOps the one calls the other. The models
here have no GELU."""

SOURCES = {**OPERATIONS, "all of these": FastOps, "micro-batches of similar length": even_parts}


def variants(cell: Cell) -> dict[str, Step]:
    """The step with all tricks, under the name OURS, and by the name of each trick the step without it."""
    config, _ = cell.task()

    def step_with(ops: Ops, cut: int = cell.cut(), threads: int = 1) -> Step:
        return our_step(Transformer(config.model), config, cut, threads, ops)

    def ops_without(name: str) -> Ops:
        replaced = {each: getattr(Ops, each) for each in (name, name.replace("add_norm", "layer_norm"))}
        return type("Without", (FastOps,), replaced)(np)

    return {
        OURS: step_with(FastOps(np)),
        **{name: step_with(ops_without(name)) for name in OPERATIONS},
        "all of these": step_with(Ops(np)),
        "micro-batches of similar length": step_with(FastOps(np), cut=1),
        "(with a second thread)": step_with(FastOps(np), threads=2),
        "(nothing: the noise)": step_with(FastOps(np)),
    }


def options(parser: argparse.ArgumentParser) -> None:
    models = ["tiny", "multi30k", "small"]
    parser.add_argument("--models", type=names_from(TASKS), default=models, help="(default: tiny,multi30k,small)")
    parser.add_argument("--repetitions", type=int, default=40, help="of every step (default: %(default)s)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    keep_freed_memory()  # as the command line does
    repetitions, results = 2 if arguments.quick else arguments.repetitions, []
    for model in arguments.models:
        cell = Cell(model, "with", 1, arguments.quick)
        steps = variants(cell)
        with threadpool_limits(1, "blas"):  # one for each of our threads
            seconds = take_turns(steps, [cell.pairs()], repetitions).seconds
        gains = {name: round(100 * float(np.median(each / seconds[OURS]) - 1), 1) for name, each in seconds.items()}
        del gains[OURS]
        print(model, gains, flush=True)
        spreads = {name: spread_of(each) for name, each in seconds.items()}
        results.append({"model": model, "padding": "with", "gain_percent": gains, "seconds": spreads})
    lines = {name: len(inspect.getsource(SOURCES[name]).splitlines()) if name in SOURCES else None for name in gains}
    return {"repetitions": repetitions, "lines": lines, "results": results}


if __name__ == "__main__":
    record("cpu_tricks", __doc__, measure, options, threads=None)
