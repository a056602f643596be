"""`scratchformer translate`: translate with the model of a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, add_option, add_run, add_search
from scratchformer.config import TrainingConfig
from scratchformer.errors import UserError

if TYPE_CHECKING:
    from scratchformer.decoding.translator import Translator


def add(commands: Commands) -> None:
    parser = add_command(commands, "translate", translate)
    add_run(parser)
    text = "text to translate (default: standard input)"
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=text)
    nbest = "print the N best translations of each line, as line number, score and text, tab-separated"
    add_option(parser, "--nbest N", int, nbest, 1)
    add_search(parser)


def translate(args: argparse.Namespace) -> None:
    """Translate files, or standard input, to standard output.

    scratchformer translate runs/tiny --beam 4 sentences.en > sentences.de
    """
    translator = load_translator(args, args.path, args.checkpoint)
    options = search_options(args, args.path)
    if not 1 <= args.nbest <= options["beam"]:
        raise UserError(f"--nbest {args.nbest} must lie between 1 and the beam, {options['beam']}")
    lines, interactive = input_lines(args.files), is_interactive(args.files)
    for number, best in enumerate(translator.stream(lines, **options, nbest=args.nbest, interactive=interactive), 1):
        for translation in best:
            place = f"{number}\t{translation.score:.4f}\t" if args.nbest > 1 else ""
            print(place + translation.text, flush=interactive)


def is_interactive(files: list[Path]) -> bool:
    """Whether a person types the lines, and waits for each translation."""
    return not files and sys.stdin is not None and sys.stdin.isatty()


def input_lines(files: list[Path]) -> Iterator[str]:
    """The lines of the files, or of standard input as they arrive."""
    from scratchformer.text.corpora import read_lines

    for path in files:
        yield from read_lines(path)
    if not files:
        if sys.stdin is None:
            raise UserError("standard input is closed")
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise UserError(f"standard input, line {number}: not UTF-8") from None


def search_options(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Beam and alpha, from the options or else from the run's configuration."""
    decoding = configs.load(path / "config.toml").decoding
    given = {name: getattr(args, name) for name in ("beam", "alpha") if getattr(args, name) is not None}
    decoding = replace(decoding, **given)
    return {"beam": decoding.beam, "alpha": decoding.alpha}


def load_translator(args: argparse.Namespace, path: Path, checkpoint: str | Path | None) -> Translator:
    """The model of a run, on the device, or on as many cores, as the options ask for."""
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.backends.device import open_device
    from scratchformer.parallel.cores import available_cores
    from scratchformer.training.run import load_run

    if args.threads is not None and args.threads < 0:
        raise UserError(f"--threads {args.threads} must be at least 0")
    keep_freed_memory()
    name = "cpu" if args.device is None else args.device
    machine = TrainingConfig(device=name, precision=args.precision or "")
    device = open_device(machine.device, machine.precision or "fp32")
    return load_run(path, checkpoint, threads=args.threads or available_cores(), device=device)
