"""The road of a run of the paper from the first command to the last, on a small scale: does all of it work together?

    python benchmarks/paper_road.py [--quick] [--work DIR] [--out DIR]

A server on this machine stands for the public homes of WMT 2014: archives with the real names and layout, which hold
sentences of the bundled corpus. The commands are those of docs/reproduction.md, but for `--mirror` and for settings
that make the model small. What they print goes into paper_road.json.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from harness import record

from scratchformer.cli import main as scratchformer
from scratchformer.preparation import datasets
from scratchformer.text import bundled

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "preparation"))
from local_server import LocalServer, write_dataset  # noqa: E402

PRESET = "wmt14-en-de-base"
SETTINGS = {
    "N": 3,
    "d_model": 64,
    "d_ff": 256,
    "tokens_per_batch": 256,
    "accumulation": 4,
    "warmup": 400,
    "steps": 1000,
    "validate_every": 200,
    "save_every": 100,
}
QUICK = {
    "N": 1,
    "d_model": 16,
    "d_ff": 32,
    "h": 2,
    "warmup": 10,
    "steps": 20,
    "validate_every": 10,
    "save_every": 4,
    "extra_length": 2,
}
VOCAB_SIZE = 1600


def serve_text(root: Path, quick: bool) -> datasets.Dataset:
    """Write WMT 2014's archives with bundled sentences -> the data set that consists of them."""
    limits = {"train": 600, "val": 20, "test": 20} if quick else {}
    train, val, test = (
        [(example.source, example.target) for example in bundled.read(split)[: limits.get(split)]]
        for split in ("train", "val", "test")
    )
    return write_dataset(root, "wmt14-en-de", train, val, test)


def commands(data: Path, run: Path, mirror: str, quick: bool) -> list[list[str]]:
    settings = [f"--set={key}={value}" for key, value in (SETTINGS | (QUICK if quick else {})).items()]
    vocab_size = 300 if quick else VOCAB_SIZE
    return [
        ["data", "wmt14-en-de", "--mirror", mirror, "--vocab-size", str(vocab_size), "--out", str(data)],
        ["train", PRESET, "--data", str(data), "--out", str(run), *settings],
        ["average", str(run)],
        ["evaluate", str(run), "--paper"],
    ]


def carried_out(command: list[str]) -> dict[str, Any]:
    """Run one command in this process -> what it printed, and its seconds."""
    printed, began = io.StringIO(), time.perf_counter()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = scratchformer(command)
    if code:
        sys.exit(f"{' '.join(command)}: exit code {code}\n{printed.getvalue()}")
    return {"seconds": round(time.perf_counter() - began, 1), "printed": printed.getvalue().splitlines()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", type=Path, help="directory of data and run, which stay (default: a temporary one)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        work, steps = arguments.work or Path(temporary), []
        data, run = work / "wmt14-en-de", work / "ende-base"
        datasets.DATASETS["wmt14-en-de"] = serve_text(work / "server", arguments.quick)
        with LocalServer(work / "server") as server:
            for command in commands(data, run, server.url, arguments.quick):
                found = {"command": " ".join(["scratchformer", *command]), **carried_out(command)}
                text = json.dumps(found).replace(str(work), "DIR").replace(server.url, "URL")
                steps.append(json.loads(text))
                print(steps[-1]["command"], flush=True)
        scores = json.loads((run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    scores = {key: value for key, value in scores.items() if key not in ("source", "reference")}
    return {"results": steps, "scores": scores}


if __name__ == "__main__":
    record("paper_road", __doc__, measure, options, threads=None)
