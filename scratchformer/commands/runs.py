"""`scratchformer runs`: the runs below a directory as a table."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, path
from scratchformer.config import Config
from scratchformer.errors import UserError, printable

if TYPE_CHECKING:
    from scratchformer.training.run import RunDirectory

TITLES = ["run", "nearest preset", "task", "step", "val. loss", "last score", "size", "age"]
N_LEFT = 3
"""The first columns are words, flush left; the others are numbers, flush right."""

SCORES = ("bleu", "f1", "accuracy", "bits_per_character", "bits per character")
"""The names of scores in evaluations.jsonl and in log.jsonl."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "runs", runs)
    parser.add_argument("path", nargs="?", type=path, default=Path("runs"), metavar="DIR", help="default: runs")


def runs(args: argparse.Namespace) -> None:
    """List the runs below a directory: how far each has come, its validation loss, score, size and age.

    scratchformer runs
    """
    from scratchformer.training.run import RunDirectory

    if not args.path.is_dir():
        raise UserError(f"{args.path}: no such directory")
    found = sorted({file.parent for name in ("checkpoints", "log.jsonl") for file in args.path.rglob(name)})
    rows, damaged = [TITLES], []
    for run in map(RunDirectory, found):
        try:
            rows.append([str(run.path), *described(run)])
        except (UserError, OSError) as error:
            damaged.append(f"{run.path}  damaged: {error}")
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows if len(rows) > 1 else []:
        cells = [f"{cell:{'<' if n < N_LEFT else '>'}{width}}" for n, (cell, width) in enumerate(zip(row, widths))]
        print(printable("  ".join(cells)))
    for line in damaged if found else [f"{args.path}: there is no run here"]:
        print(printable(line))


def described(run: RunDirectory) -> list[str]:
    """The cells of a run, apart from its name. The last score is that of `evaluate`, or else that of the training."""
    from scratchformer.training.checkpoints import progress_of
    from scratchformer.training.run import read_entries

    config, logged, saved = run.require(), read_entries(run.log_file), run.checkpoints
    last = {entry.get("event"): entry for entry in logged}
    files = [file for file in (*saved.steps()[-1:], saved.best, saved.average) if file.exists()]
    step = max([0, *(progress_of(file).step for file in files), last.get("step", {}).get("step", 0)])
    loss = f"{last['validation']['loss']:.3f}" if "validation" in last else "-"
    scored = reversed([*logged, *run.read_evaluations()])
    score = next((f"{name} {record[name]:.2f}" for record in scored for name in SCORES if name in record), "-")
    on_disk = [file.stat() for file in run.path.rglob("*") if file.is_file()]
    size = f"{sum(each.st_size for each in on_disk) / 1e6:.1f} MB"
    age = as_age(time.time() - max(each.st_mtime for each in on_disk))
    return [nearest_preset(config), config.data.task, f"{step:,}", loss, score.replace("_", " "), size, age]


def nearest_preset(config: Config) -> str:
    """The preset from which the fewest settings differ; a run does not record with which one it began."""
    own = configs.flat(config).items()
    return min(configs.PRESETS, key=lambda name: len(own - configs.flat(configs.PRESETS[name]).items()))


def as_age(seconds: float) -> str:
    """The time since the last change, in the largest unit of which there are two or more."""
    units = {"days": 86400, "h": 3600, "min": 60}
    return next((f"{seconds / n:.0f} {unit}" for unit, n in units.items() if seconds >= 2 * n), f"{seconds:.0f} s")
