"""`scratchformer runs`: the runs below a directory as a table."""

import argparse
import os
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, path
from scratchformer.errors import UserError, printable

COLUMNS = ["run", "nearest preset", "task", "step", "val. loss", "last score", "size", "age"]
SCORES = ("bleu", "f1", "accuracy", "bits_per_character", "bits per character")  # as evaluations and logs name them


def add(commands: Commands) -> None:
    parser = add_command(commands, "runs", runs)
    parser.add_argument("path", nargs="?", type=path, default=Path("runs"), metavar="DIR", help="default: runs")


def runs(args: argparse.Namespace) -> None:
    """List the runs below a directory: how far each has come, its validation loss, score, size and age.

    scratchformer runs
    """
    rows, damaged = [COLUMNS], []
    if not args.path.is_dir():
        raise UserError(f"{args.path}: no such directory; name one with runs, as in: scratchformer runs DIR")
    found = [Path(place) for place, *names in os.walk(args.path) if {"checkpoints", "log.jsonl"} & {*sum(names, [])}]
    for run in sorted(found):
        try:
            rows.append([str(run), *described(run)])
        except (UserError, OSError) as error:
            if run.exists():  # it may have been removed meanwhile
                damaged.append(f"{run}  damaged: {error}")
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = ["  ".join(map("{:{}{}}".format, row, "<<<>>>>>", widths)) for row in rows]  # words left, numbers right
    for line in table * (len(rows) > 1) + damaged or [f"{args.path}: there is no run here"]:
        print(printable(line))


def described(path: Path) -> list[str]:
    """The cells of a run, apart from its name. The last score is that of `evaluate`, or else that of the training."""
    from scratchformer.training.checkpoints import progress_of
    from scratchformer.training.run import RunDirectory, read_entries

    run = RunDirectory(path)
    config, logged, saved = run.require(), read_entries(run.log_file), run.checkpoints
    settings = configs.flat(config).items()  # a run does not record with which preset it began
    preset = min(configs.PRESETS, key=lambda name: len(settings - configs.flat(configs.PRESETS[name]).items()))
    last = {entry.get("event"): entry for entry in logged}
    files = [file for file in (*saved.steps()[-1:], saved.best, saved.average) if file.exists()]
    step = max([0, *(progress_of(file).step for file in files), last.get("step", {}).get("step", 0)])
    loss = f"{last['validation']['loss']:.3f}" if "validation" in last else "-"
    scored = reversed([*logged, *run.read_evaluations()])
    score = next((f"{name} {record[name]:.2f}" for record in scored for name in SCORES if name in record), "-")
    on_disk = []
    for place, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # training deletes old checkpoints
                on_disk.append(os.stat(os.path.join(place, name)))
    if not on_disk:
        raise UserError("no files are left")
    size = f"{sum(each.st_size for each in on_disk) / 1e6:.1f} MB"
    age = timedelta(seconds=int(time.time() - max(each.st_mtime for each in on_disk)))
    return [preset, config.data.task, f"{step:,}", loss, score.replace("_", " "), size, str(age)]
