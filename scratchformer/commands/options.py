"""Arguments that several subcommands share."""

import argparse
from collections.abc import Callable
from pathlib import Path

Commands = argparse._SubParsersAction
"""The subcommands of a parser: what `ArgumentParser.add_subparsers` returns. argparse has no public name for it."""


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int | None], summary: str, example: str
) -> argparse.ArgumentParser:
    """Add a subcommand that calls `run` -> its parser, still without arguments

    example  a command line without `scratchformer`, for the end of the help text
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the lines of the example
        epilog=f"example:\n  scratchformer {example}",
    )
    parser.set_defaults(run=run)
    return parser


def add_run(parser: argparse.ArgumentParser, checkpoint: bool = True) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="a run's directory")
    if checkpoint:
        parser.add_argument(
            "--checkpoint", metavar="C", help="average, best, last or a file (default: the first of these that exists)"
        )


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        dest="directory",
        help="directory with train.en, train.de, val.en, val.de (or .gz), or one that the command `data` has prepared",
    )
    for name in ("train-source", "train-target", "val-source", "val-target"):
        parser.add_argument(f"--{name}", metavar="F", help="a UTF-8 file, one sentence a line, instead of --data")


def add_scores(parser: argparse.ArgumentParser, metavar: str, summary: str) -> None:
    """--paper, --against and --json.

    metavar, summary  of --against: what the scores are compared with
    """
    parser.add_argument(
        "--paper", action="store_true", help="also compute BLEU as the paper's script does, and explain the difference"
    )
    parser.add_argument(
        "--against", type=Path, metavar=metavar, help=f"{summary}, and test whether the difference is significant"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beam", type=int, metavar="N", help="hypotheses kept at each position; 1 is greedy (paper: 4)"
    )
    parser.add_argument("--alpha", type=float, metavar="A", help="exponent of the length penalty (paper: 0.6)")
    add_machine(parser, "fp32")


def add_machine(parser: argparse.ArgumentParser, precision: str, resumed: str = "", threads: bool = True) -> None:
    """--device, --precision and --threads.

    precision  the default on a GPU
    resumed    an addition to the help text about the defaults of a resumed run
    threads    whether to add --threads
    """
    parser.add_argument(
        "--device", metavar="D", help=f"cpu, gpu, or gpu:N for GPU number N from 0 (default: cpu{resumed})"
    )
    parser.add_argument(
        "--precision",
        metavar="P",
        help=f"of weights and activations on a GPU: fp32, tf32, bf16 or fp16 (default: {precision}{resumed})",
    )
    if threads:
        parser.add_argument("--threads", type=int, metavar="N", help=f"cores to use, 0 for all (default: all{resumed})")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="change a setting, for example P_drop=0.3 or training.warmup=1000",
    )
