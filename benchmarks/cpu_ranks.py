"""Compare two processes with two threads of one process, and with one core alone.

    python benchmarks/cpu_ranks.py --data DIR [--quick] [--out DIR]                # Multi30k in DIR; about 6 minutes

`scratchformer train multi30k` in short runs that take turns, as a user would start them: the first STEPS of one run,
so each variant has the same batches. Of each step the quickest of all rounds counts; tokens are real target tokens.
Validation, checkpoints, start and end of a run are not counted.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import record

from scratchformer.training.run import RunDirectory

VARIANTS = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2), "2 processes, 1 thread each": (2, 1)}
ROUNDS, STEPS, WARM_UP = 4, 40, 5


def steps_of(nproc: int, threads: int, settings: list[str]) -> list[dict[str, Any]]:
    """The log of the steps of a short run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "scratchformer", "train", "multi30k", "--out", folder, *settings]
        command += ["--nproc", str(nproc), "--threads", str(threads)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return RunDirectory(Path(folder)).read_log("step")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, metavar="DIR", help="train.en.gz, train.de.gz, val.en.gz, val.de.gz")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    n_rounds, n_steps, warm_up = (1, 3, 1) if arguments.quick else (ROUNDS, STEPS, WARM_UP)
    small = ["--set=vocab_size=60", "--set=d_model=16", "--set=d_ff=32"] if arguments.quick else []
    settings = ["--data", arguments.data, f"--set=training.steps={n_steps}", *small]
    logs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in VARIANTS}
    for _ in range(n_rounds):
        for name, (nproc, threads) in VARIANTS.items():
            logs[name].append(steps_of(nproc, threads, settings)[warm_up:])
    results: list[dict[str, Any]] = []
    for name, rounds in logs.items():
        seconds = sum(min(entry["seconds"] for entry in same_step) for same_step in zip(*rounds))
        rate = sum(entry["target_tokens"] for entry in rounds[0]) / seconds
        results.append({"variant": name, "tokens_per_second": rate, "losses": [entry["loss"] for entry in rounds[0]]})
        results[-1]["of_one_thread"] = rate / results[0]["tokens_per_second"]
        print(f"{name:28} {rate:8,.0f} target tokens/s, {results[-1]['of_one_thread']:.2f} times")
    same = results[1]["losses"] == results[2]["losses"]
    about = {"rounds": n_rounds, "steps": [warm_up + 1, n_steps], "processes_have_the_losses_of_threads": same}
    return about | {"results": results}


if __name__ == "__main__":
    record("cpu_ranks", __doc__, measure, options, threads=None)
