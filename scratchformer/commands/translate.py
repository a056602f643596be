"""`scratchformer translate`: translate with the model of a run."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchformer.commands.options import Commands, add_command, add_option, add_run, add_search, path, setting
from scratchformer.commands.terminal import tell
from scratchformer.config import Config, TrainingConfig
from scratchformer.errors import UserError

STANDARD_INPUT = Path("-")

if TYPE_CHECKING:
    from scratchformer.backends.device import Device


def add(commands: Commands) -> None:
    parser = add_command(commands, "translate", translate)
    add_run(parser)
    text = "text to translate, - for standard input (default: standard input)"
    parser.add_argument("files", nargs="*", default=[], type=path, metavar="FILE", help=text)
    nbest = "print the N best translations of each line, as line number, score and text, tab-separated"
    add_option(parser, "--nbest N", setting("beam"), nbest, 1)
    add_search(parser)


def translate(args: argparse.Namespace) -> None:
    """Translate files, or standard input, to standard output. A run for parsing writes trees in Penn brackets.

    scratchformer translate runs/tiny --beam 4 sentences.en > sentences.de
    """
    from scratchformer.training.run import load_model, translator_of

    device, threads = machine_of(args)
    tasks = "translation", "parsing"
    trained = load_model(args.path, args.checkpoint, threads=threads, device=device, tasks=tasks)
    translator, options = translator_of(trained), search_options(args, trained.config)
    if args.nbest > options["beam"]:
        raise UserError(f"--nbest {args.nbest} must be at most the beam, {options['beam']}")
    lines = InputLines(args.files or [STANDARD_INPUT])
    if lines.are_typed():
        tell("Type a sentence and press Enter to translate it; Ctrl-D ends.")
    search = partial(translator.stream, beam=options["beam"], alpha=options["alpha"], nbest=args.nbest)
    stream = partial(search, pauses=lambda: lines.at_pause, place=lines.place)
    if trained.config.data.task == "parsing":
        from scratchformer.decoding.tree_parser import TreeParser  # only a parser needs it

        found = TreeParser(translator).trees(lines, stream)
    else:
        found = stream(lines)
    for number, best in enumerate(found, 1):
        for translation in best:
            beginning = f"{number}\t{translation.score:.4f}\t" if args.nbest > 1 else ""
            print(beginning + translation.text, flush=lines.are_sent())
    if remark := translator.unknown.remark():
        tell(remark)


class InputLines:
    """The lines of files one after another, where `-` is standard input, whose lines are read as they arrive."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.first: list[tuple[int, Path]] = []  # the index of the first line of each file that was opened
        self.at_pause = False  # whether the line after the last one that was read has not arrived yet

    def are_typed(self) -> bool:
        """Return whether a person types the lines, and waits for each translation."""
        return self.files == [STANDARD_INPUT] and sys.stdin is not None and sys.stdin.isatty()

    def are_sent(self) -> bool:
        """Return whether a program or a person sends lines to standard input; False if it is a file."""
        with suppress(OSError, AttributeError):
            return STANDARD_INPUT in self.files and not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
        return False

    def __iter__(self) -> Iterator[str]:
        from scratchformer.text.corpora import read_lines

        n_lines = 0
        for file in self.files:
            self.first.append((n_lines, file))
            for line in self.standard_input() if file == STANDARD_INPUT else read_lines(file):
                n_lines += 1
                yield line

    def place(self, index: int) -> str:
        """Name the file and the line of a line that was read; index: from 0, over all files."""
        first, file = next(opened for opened in reversed(self.first) if opened[0] <= index)
        return f"{'standard input' if file == STANDARD_INPUT else file}, line {index - first + 1}"

    def standard_input(self) -> Iterator[str]:
        """The lines of standard input. If they are sent, those that have arrived together end in a pause."""
        if sys.stdin is None:
            raise UserError("standard input is closed")
        are_sent, number, rest, data = self.are_sent(), 0, b"", b"\n"
        while data:
            data = sys.stdin.buffer.read1(2**16)  # type: ignore[union-attr]  # bytes: what a pipe of Linux holds
            *lines, rest = (rest + data).split(b"\n")
            if rest and not data:  # the last line has no line end
                lines = [rest]
            for left, line in zip(reversed(range(len(lines))), lines):
                number, self.at_pause = number + 1, are_sent and not left
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
                except UnicodeDecodeError:
                    raise UserError(f"standard input, line {number}: not UTF-8") from None
        self.at_pause = False


def search_options(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Beam and alpha, from the options or else from the run's configuration."""
    given = {name: getattr(args, name) for name in ("beam", "alpha") if getattr(args, name) is not None}
    decoding = replace(config.decoding, **given)
    return {"beam": decoding.beam, "alpha": decoding.alpha}


def machine_of(args: argparse.Namespace) -> tuple[Device, int]:
    """The device and the number of cores that the options ask for."""
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.backends.device import open_device
    from scratchformer.parallel.cores import available_cores

    keep_freed_memory()
    name = "cpu" if args.device is None else args.device
    machine = TrainingConfig(device=name, precision=args.precision or "")
    return open_device(machine.device, machine.precision or "fp32"), args.threads or available_cores()
