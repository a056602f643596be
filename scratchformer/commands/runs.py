"""Weights of a run: the mean of its checkpoints, and the way to another library and back."""

import argparse

from scratchformer import config as configs
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory
from scratchformer.training.torch_format import export_run, how_to_load, import_run


def average(args: argparse.Namespace) -> None:
    run = RunDirectory(args.path)
    run.require()
    n = configs.load(run.config_file).training.average_last if args.last is None else args.last
    paths = run.checkpoints.steps()
    if not 1 <= n <= len(paths):
        raise UserError(f"{run.path}: cannot average the last {n} checkpoints; there are {len(paths)}")
    checkpoints.save(run.checkpoints.average, checkpoints.average(paths[-n:]))
    print(f"{run.checkpoints.average}: the mean of {paths[-n].name} to {paths[-1].name} ({n} checkpoints)")


def export(args: argparse.Namespace) -> None:
    config = export_run(RunDirectory(args.path), args.checkpoint, args.file)
    tell(f"{args.file}: written. To load it into PyTorch:")
    print(how_to_load(config.model, args.file), end="")


def import_(args: argparse.Namespace) -> None:
    if not import_run(args.file, RunDirectory(args.out)):
        tell(f"{args.file}: its weights have changed since it was exported")
    print(f"{args.out}: a run with the weights of {args.file}; try scratchformer translate {args.out}")
