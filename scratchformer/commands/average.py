"""`scratchformer average`: average the weights of a run's last checkpoints."""

import argparse

from scratchformer.commands.options import Commands, add_command, add_option, add_run, setting
from scratchformer.errors import UserError


def add(commands: Commands) -> None:
    parser = add_command(commands, "average", average)
    add_option(parser, "--last N", setting("average_last"), "how many (default: the run's training.average_last)")
    add_run(parser, checkpoint=False)


def average(args: argparse.Namespace) -> None:
    """Average the weights of a run's last checkpoints; later commands use the average, until training goes on.

    scratchformer average runs/m30k --last 10
    """
    from scratchformer.training import checkpoints
    from scratchformer.training.run import RunDirectory

    run = RunDirectory(args.path)
    config = run.require()
    n = config.training.average_last if args.last is None else args.last
    paths = run.checkpoints.steps()
    if not 1 <= n <= len(paths):
        fewer = f"; try --last {len(paths)}" if paths else ""
        raise UserError(f"{run.path}: cannot average the last {n} checkpoints; there are {len(paths)}{fewer}")
    checkpoints.save(run.checkpoints.average, checkpoints.average(paths[-n:]))
    print(f"{run.checkpoints.average}: the mean of {paths[-n].name} to {paths[-1].name} ({n} checkpoints)")
