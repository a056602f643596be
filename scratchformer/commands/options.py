"""Arguments that several subcommands share."""

import argparse
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

Commands = argparse._SubParsersAction
"""The subcommands of a parser: what `ArgumentParser.add_subparsers` returns. argparse has no public name for it."""


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int | None]
) -> argparse.ArgumentParser:
    """Add a subcommand that calls `run` -> its parser, still without arguments

    The docstring of `run` is the help text: a summary and, after an empty line, example command lines.
    """
    summary, _, examples = inspect.cleandoc(run.__doc__ or "").partition("\n\n")
    examples = f"example:\n{textwrap.indent(examples, '  ')}"
    keep_lines = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name, help=summary, description=summary, epilog=examples, formatter_class=keep_lines)
    parser.set_defaults(run=run)
    return parser


def add_option(
    parser: argparse.ArgumentParser, usage: str, kind: Callable[[str], Any], summary: str, default: Any = None
) -> None:
    """Add an option that takes a value.

    usage  its name and what stands for the value, as in "--out DIR"
    kind   makes the value of the word that the user gives
    """
    name, metavar = usage.split()
    parser.add_argument(name, metavar=metavar, type=kind, help=summary, default=default)


def add_run(parser: argparse.ArgumentParser, checkpoint: bool = True) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="a run's directory")
    if checkpoint:
        default = "the first of these that exists"
        add_option(parser, "--checkpoint C", str, f"average, best, last or a file (default: {default})")


def add_data(parser: argparse.ArgumentParser) -> None:
    files = "train.en, train.de, val.en, val.de (or .gz)"
    summary = f"directory with {files}, or one that the command `data` has prepared"
    parser.add_argument("--data", metavar="DIR", dest="directory", help=summary)
    for name in ("train-source", "train-target", "val-source", "val-target"):
        add_option(parser, f"--{name} F", str, "a UTF-8 file, one sentence a line, instead of --data")


def add_scores(parser: argparse.ArgumentParser, metavar: str, summary: str) -> None:
    """--paper, --against and --json.

    metavar, summary  of --against: what the scores are compared with
    """
    parser.add_argument(
        "--paper", action="store_true", help="also compute BLEU as the paper's script does, and explain the difference"
    )
    significance = "test whether the difference is significant"
    add_option(parser, f"--against {metavar}", Path, f"{summary}, and {significance}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_search(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--beam N", int, "hypotheses kept at each position; 1 is greedy (paper: 4)")
    add_option(parser, "--alpha A", float, "exponent of the length penalty (paper: 0.6)")
    add_machine(parser, "fp32")


def add_machine(parser: argparse.ArgumentParser, precision: str, resumed: str = "", threads: bool = True) -> None:
    """--device, --precision and --threads.

    precision  the default on a GPU
    resumed    an addition to the help text about the defaults of a resumed run
    threads    whether to add --threads
    """
    add_option(parser, "--device D", str, f"cpu, gpu, or gpu:N for GPU number N from 0 (default: cpu{resumed})")
    choices = "fp32, tf32, bf16 or fp16"
    default = f"(default: {precision}{resumed})"
    add_option(parser, "--precision P", str, f"of weights and activations on a GPU: {choices} {default}")
    if threads:
        add_option(parser, "--threads N", int, f"cores to use, 0 for all (default: all{resumed})")


def add_settings(parser: argparse.ArgumentParser) -> None:
    summary = "change a setting, for example P_drop=0.3 or training.warmup=1000"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help=summary)
