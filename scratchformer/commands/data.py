"""Text to train on: a public corpus, files of one's own, or the bundled corpus."""

import argparse
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from scratchformer import config as configs
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError
from scratchformer.preparation import pipeline as preparation
from scratchformer.preparation.datasets import DATASETS, fetch
from scratchformer.preparation.pipeline import Options, require_own_directory
from scratchformer.text import bundled
from scratchformer.text.corpora import CorpusFiles, ParallelFiles
from scratchformer.training.team import available_cores

PREPARATION = [field.name for field in fields(Options) if field.name not in ("dataset", "languages")]
"""The options of `data` that say how text is prepared."""

FILES = ["source", "target", "val_source", "val_target", "test_source", "test_target", "languages"]
"""Those that say what `data files` prepares."""


def data(args: argparse.Namespace) -> None:
    if args.name == "tiny":
        refuse(args, *PREPARATION, *FILES, "mirror")
        print("\n".join(bundled.write_corpus(args.out, bundled.read_all())))
    elif args.name == "files":
        refuse(args, "mirror")
        languages = {"languages": tuple(args.languages)} if args.languages else {}
        prepare(args, named_files(args), preparation_options(args, languages))
    else:
        refuse(args, *FILES)
        dataset = DATASETS[args.name]
        options = preparation_options(
            args,
            {
                "dataset": args.name,
                "vocab_size": dataset.vocab_size,
                "languages": (dataset.source_language, dataset.target_language),
            },
        )
        require_own_directory(args.out, options.languages)  # before gigabytes are loaded
        prepare(args, fetch(dataset, args.out, args.mirror or "", tell), options)


def refuse(args: argparse.Namespace, *names: str) -> None:
    """Raises UserError if one of these options was given."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise UserError(f"data {args.name}: takes no --{name.replace('_', '-')}")


def named_files(args: argparse.Namespace) -> CorpusFiles:
    def pair(source: Path | None, target: Path | None) -> ParallelFiles | None:
        return ParallelFiles(source, target) if source and target else None

    counts = {
        (len(args.source), len(args.target)),
        (bool(args.val_source), bool(args.val_target)),
        (bool(args.test_source), bool(args.test_target)),
    }
    if any(n_source != n_target for n_source, n_target in counts) or not args.source:
        raise UserError(
            "source and target files come in pairs: give --source with --target, --val-source with "
            "--val-target, --test-source with --test-target"
        )
    train = [ParallelFiles(*part) for part in zip(args.source, args.target)]
    return CorpusFiles(train, pair(args.val_source, args.val_target), pair(args.test_source, args.test_target))


def preparation_options(args: argparse.Namespace, defaults: dict[str, Any]) -> Options:
    given = {name: getattr(args, name) for name in PREPARATION if getattr(args, name) is not None}
    return Options(**{"workers": available_cores()} | defaults | given)


def prepare(args: argparse.Namespace, files: CorpusFiles, options: Options) -> None:
    """Prepare these files, and tell how to go on."""
    manifest = preparation.prepare(files, args.out, options, tell)
    print(manifest.summary())
    for preset in [name for name in configs.PRESETS if name.startswith(args.name)] or ["PRESET"]:
        print(f"train with: scratchformer train {preset} --data {shlex.quote(str(args.out))} --out RUN")
