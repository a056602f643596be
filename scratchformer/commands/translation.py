"""Translate with the model of a run."""

import argparse
from pathlib import Path
from typing import Any

from scratchformer import config as configs
from scratchformer.backends.cpu import keep_freed_memory
from scratchformer.backends.cuda.device import open_device
from scratchformer.commands.terminal import input_lines, is_typed
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.training.run import load_run
from scratchformer.training.team import available_cores


def translate(args: argparse.Namespace) -> None:
    translator = trained_translator(args, args.path, args.checkpoint)
    options = search_options(args, args.path)
    if not 1 <= args.nbest <= options["beam"]:
        raise UserError(f"--nbest {args.nbest} must lie between 1 and the beam, {options['beam']}")
    lines, interactive = input_lines(args.files), is_typed(args.files)
    for number, best in enumerate(translator.stream(lines, **options, nbest=args.nbest, interactive=interactive), 1):
        for translation in best:
            print(
                f"{number}\t{translation.score:.4f}\t{translation.text}" if args.nbest > 1 else translation.text,
                flush=interactive,
            )


def search_options(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Beam and alpha, from the options or else from the run's configuration."""
    decoding = configs.load(path / "config.toml").decoding
    changes = {f"decoding.{name}": getattr(args, name) for name in ("beam", "alpha") if getattr(args, name) is not None}
    decoding = configs.with_settings(Config(decoding=decoding), changes).decoding
    return {"beam": decoding.beam, "alpha": decoding.alpha}


def trained_translator(args: argparse.Namespace, path: Path, checkpoint: str | Path | None) -> Translator:
    """The model of a run, on the device or on as many cores as the options say."""
    if args.threads is not None and args.threads < 0:
        raise UserError(f"--threads {args.threads} must be at least 0")
    keep_freed_memory()
    machine = configs.with_settings(
        Config(),
        {"training.device": "cpu" if args.device is None else args.device, "training.precision": args.precision or ""},
    ).training
    device = open_device(machine.device, machine.precision or "fp32")
    translator = load_run(path, checkpoint)
    device.take_over(translator.model)
    translator.group *= device.breadth
    translator.threads = 1 if device.runs_ahead else args.threads or available_cores()
    return translator
