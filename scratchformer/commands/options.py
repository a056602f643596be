"""Arguments that several subcommands share."""

import argparse
import inspect
import textwrap
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from scratchformer import config as configs
from scratchformer.config import shown
from scratchformer.errors import UserError

Commands = argparse._SubParsersAction
"""The subcommands of a parser: what `ArgumentParser.add_subparsers` returns. argparse has no public name for it."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UserErrors, so that they read as all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


class Version(argparse.Action):
    """Print the version and exit. The version stands in setup.cfg, and from there in the installed package."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # here, because this takes a while

        print(f"scratchformer {version('scratchformer')}", flush=True)
        parser.exit()


# Types of values: functions that check a word of the command line, and raise ArgumentTypeError with what is wrong.


def within(low: float, high: float, kind: type = int) -> Callable[[str], Any]:
    """A number from `low` to `high`, whole unless `kind` is float."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{shown(text)} is not a{' whole' if kind is int else ''} number") from None
        if not low <= value <= high:
            raise ArgumentTypeError(f"{shown(value)} {configs.must_lie(low, high)}")
        return value

    return read


def setting(name: str) -> Callable[[str], Any]:
    """A value for this setting, a number."""
    return within(*configs.RANGES[name], type(configs.flat(configs.BASE)[configs.full_key(name)]))


def word(text: str) -> str:
    """Text that is not empty."""
    if not text:
        raise ArgumentTypeError("it is empty")
    return text


def sentence(text: str) -> str:
    """Text that can be translated: the command line may hold bytes that are not UTF-8."""
    try:
        word(text).encode("utf-8")
    except UnicodeError:
        raise ArgumentTypeError(f"{shown(text)} is not valid UTF-8") from None
    return text


def path(text: str) -> Path:
    """The name of a file or directory."""
    return Path(word(text))


# Arguments


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
    parser.set_defaults(run=run, parser=parser)
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
    parser.add_argument("path", type=path, metavar="RUN", help="a run's directory")
    if checkpoint:
        add_checkpoint(parser)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    default = "the first of these that exists"
    add_option(parser, "--checkpoint C", word, f"average, best, last or a file (default: {default})")


def add_data(parser: argparse.ArgumentParser) -> None:
    files = "train.en, train.de, val.en, val.de (or .gz; for parsing train.trees and val.trees)"
    summary = f"directory with {files}, or one that the command `data` has prepared"
    parser.add_argument("--data", type=word, metavar="DIR", dest="directory", help=summary)
    for name in ("train-source", "train-target", "val-source", "val-target"):
        add_option(parser, f"--{name} F", word, "a UTF-8 file, one sentence a line, instead of --data")
    text = "plain text for a language model (default: the English of the bundled corpus)"
    parser.add_argument("--text", type=word, nargs="+", metavar="FILE", help=text)
    add_option(parser, "--pretrained RUN", word, "begin with the weights and the vocabulary of this run")


def add_search(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--beam N", setting("beam"), "hypotheses kept at each position; 1 is greedy (paper: 4)")
    add_option(parser, "--alpha A", setting("alpha"), "exponent of the length penalty (paper: 0.6)")
    add_machine(parser, "fp32")


def add_machine(parser: argparse.ArgumentParser, precision: str, resumed: str = "") -> None:
    """--device, --precision and --threads; `resumed` says what a resumed run has by default."""
    add_option(parser, "--device D", word, f"cpu, gpu, or gpu:N for GPU number N from 0 (default: cpu{resumed})")
    of_gpu = f"on a GPU fp32, tf32, bf16 or fp16 (default: {precision}{resumed}); on the CPU fp32"
    add_option(parser, "--precision P", word, of_gpu)
    add_option(parser, "--threads N", setting("threads"), f"cores to use, 0 for all (default: all{resumed})")


def add_settings(parser: argparse.ArgumentParser) -> None:
    summary = "change a setting, for example P_drop=0.3 or training.warmup=1000"
    parser.add_argument(
        "--set", type=word, action="append", default=[], metavar="KEY=VALUE", dest="settings", help=summary
    )
