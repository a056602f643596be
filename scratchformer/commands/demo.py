"""`scratchformer demo`: train a small model, and see what it has learnt."""

import argparse
from pathlib import Path

from scratchformer.commands.options import Commands, add_command, add_option, path


def add(commands: Commands) -> None:
    parser = add_command(commands, "demo", demo)
    add_option(parser, "--out RUN", path, "the run's directory (default: runs/demo)", Path("runs/demo"))


def demo(args: argparse.Namespace) -> int:
    """Train tiny, translate held-out sentences, score them.

    scratchformer demo --out runs/demo
    """
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.experiments.demo import run_demo
    from scratchformer.parallel import job

    keep_freed_memory()
    return 0 if run_demo(args.out) else job.INTERRUPTED
