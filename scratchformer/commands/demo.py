"""`scratchformer demo`: train a small model, and see what it has learnt."""

import argparse
from pathlib import Path

from scratchformer.commands.options import Commands, add_command


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "demo", demo, "train tiny, translate held-out sentences, score them", "demo --out runs/demo"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), metavar="RUN", help="the run's directory (default: runs/demo)"
    )


def demo(args: argparse.Namespace) -> int:
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.experiments.demo import run_demo
    from scratchformer.parallel import launcher

    keep_freed_memory()
    return 0 if run_demo(args.out) else launcher.INTERRUPTED
