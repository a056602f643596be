"""Is a training step as fast as at an earlier commit? Both take turns, step by step, each in a process of its own.

    python benchmarks/cpu_commits.py COMMIT [--models tiny,multi30k,small] [--repetitions N] [--out DIR]

The earlier commit is checked out into a temporary directory; both run with the packages that are installed here. A cell
is one of `cpu_step.py`'s, on one thread. The first two steps are not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cpu_step import RESULTS, TASKS, names_from, positive, spread_of
from provenance import ROOT, surroundings
from small_training import write

WORKER = """
import sys, time
from threadpoolctl import threadpool_limits
import cpu_step
try:
    from scratchformer.nn.fast_ops import keep_freed_memory  # where it was before 22 November 2026
except ImportError:
    from scratchformer.backends.cpu import keep_freed_memory
from scratchformer.nn.transformer import Transformer
cell = cpu_step.Cell(sys.argv[1], sys.argv[2], 1, False)
config, pairs = cell.task().config, cell.steps()
keep_freed_memory()
threadpool_limits(1, "blas")
step = cpu_step.our_step(Transformer(config.model), config, cell.cut(), 1)
for line in sys.stdin:
    began = time.perf_counter()
    step(pairs[0])
    print(time.perf_counter() - began, flush=True)
"""


class Steps:
    """Training steps of the code in one directory, in a process of its own."""

    def __init__(self, root: Path, model: str, padding: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'benchmarks')!r}]\n{WORKER}",
            ]
            + [model, padding],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root / "benchmarks",
        )

    def take(self) -> float:
        """The seconds of one step."""
        assert self.process.stdin and self.process.stdout
        print(file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def measure(roots: dict[str, Path], model: str, padding: str, repetitions: int) -> dict[str, Any]:
    steps = {name: Steps(root, model, padding) for name, root in roots.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repetition in range(repetitions + 2):
        for name in sorted(steps, reverse=repetition % 2 == 0):
            seconds[name].append(steps[name].take())
    for each in steps.values():
        each.process.terminate()
    found = {name: spread_of(np.array(times[2:])) for name, times in seconds.items()}
    ratios = {
        key: round(found["now"][key] / found["before"][key], 3) for key in ("minimum", "lower_quartile", "median")
    }
    print(f"{model:9} {padding:8} padding: now / before {ratios}", flush=True)
    return {"model": model, "padding": padding, "seconds": found, "now_over_before": ratios}


def checkout(commit: str, directory: Path) -> None:
    """A clone of this repository, as it was at this commit."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(directory)], check=True)
    subprocess.run(["git", "-C", str(directory), "checkout", "--quiet", commit], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--models", type=names_from(TASKS), default=["tiny", "multi30k", "small"])
    parser.add_argument("--repetitions", type=positive, default=40, help="of every step (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    around = surroundings()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        checkout(arguments.commit, before)
        roots = {"before": before, "now": ROOT}
        rows = [
            measure(roots, model, padding, arguments.repetitions)
            for model in arguments.models
            for padding in ("without", "with")
        ]
    result = {"provenance": around, "before": arguments.commit, "threads": 1, "results": rows}
    write(arguments.out, "cpu_commits", result)


if __name__ == "__main__":
    main()
