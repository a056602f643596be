"""`scratchformer data`: prepare text to train on: a public corpus, trees, your own files, or the bundled corpus."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, add_option, path, setting, within, word
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError

if TYPE_CHECKING:
    from scratchformer.preparation.prepared import Options
    from scratchformer.text.corpora import CorpusFiles

NUMBERS = {
    "vocab_size": (
        setting("vocab_size"),
        "pieces of the vocabulary (default: 37000; for a public data set the usual number)",
    ),
    "max_words": (within(1, 10**6), "drop longer training pairs (default: 80)"),
    "max_ratio": (
        within(1, 10**6, float),
        "drop training pairs if a side has more than N times the words of the other (default: 9)",
    ),
    "max_length": (setting("max_length"), "drop pairs with more tokens than this on a side (default: 256)"),
    "sample": (within(1, 10**9), "pairs to train the vocabulary on (default: 1000000)"),
}
SWITCHES = {
    "byte_fallback": "spell characters that are not in the sample as bytes, instead of <unk>",
    "drop_overlap": "drop training pairs with a sentence of the validation or test text, instead of only counting them",
}
PREPARATION = [*NUMBERS, *SWITCHES]
"""The options that say how text is prepared; fields of `preparation.prepared.Options`, which has the defaults."""

FILES = ["source", "target", "val_source", "val_target", "test_source", "test_target", "languages"]
"""The options that say which files `data files` prepares."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "data", data)
    names = [*configs.PUBLIC_CORPORA, "treebank", "files", "tiny"]
    which = "a public data set, trees of the Penn Treebank, your own files, or the bundled corpus as plain text"
    parser.add_argument("name", choices=names, metavar="CORPUS", help=f"{', '.join(names)}: {which}")
    out = "where to write; the same command continues there after a stop"
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help=out)
    add_option(parser, "--mirror URL", word, "download from here: replaces scheme and host of every address")
    text = "training text, UTF-8, one sentence a line, plain or .gz; may be given several times"
    for side in ("source", "target"):
        parser.add_argument(f"--{side}", type=path, action="append", default=[], metavar="F", help=text)
    for split, full_name in (("val", "validation"), ("test", "test")):
        for side in ("source", "target"):
            add_option(parser, f"--{split}-{side} F", path, f"{full_name} text; it is not cleaned")
    endings = "endings of the files (default: en de)"
    parser.add_argument("--languages", type=word, nargs=2, metavar=("SOURCE", "TARGET"), help=endings)
    for name, (kind, summary) in NUMBERS.items():
        add_option(parser, f"{option(name)} N", kind, summary)
    add_option(parser, "--workers N", within(1, 1024), "processes (default: one for each core)")
    for name, summary in SWITCHES.items():
        parser.add_argument(option(name), action="store_true", default=None, help=summary)


def option(name: str) -> str:
    """val_source -> --val-source"""
    return f"--{name.replace('_', '-')}"


def data(args: argparse.Namespace) -> None:
    """Download a public corpus, or take text files, and prepare them for training.

    scratchformer data wmt14-en-de --out data/wmt14-en-de
    scratchformer data tiny --out text/tiny
    scratchformer data treebank --out data/treebank
    scratchformer data files --source big.en.gz --target big.de.gz --val-source val.en --val-target val.de --out DIR
    """
    from scratchformer.preparation.datasets import DATASETS, fetch

    if args.name == "tiny":
        from scratchformer.text import bundled

        refuse(args, *PREPARATION, "workers", *FILES, "mirror")
        print("\n".join(bundled.write_corpus(args.out, {split: bundled.read(split) for split in bundled.SPLITS})))
    elif args.name == "treebank":
        from scratchformer.preparation.treebank import prepare_treebank

        refuse(args, *PREPARATION, "workers", *FILES)
        print("\n".join(prepare_treebank(args.out, args.mirror or "", tell)))
        print(f"train with: scratchformer train parsing-small --data {shlex.quote(str(args.out))} --out RUN")
    elif args.name == "files":
        refuse(args, "mirror")
        options = preparation_options(args, {"languages": tuple(args.languages)} if args.languages else {})
        prepare(args, named_files(args), options)
    else:
        from scratchformer.preparation.pipeline import require_own_directory

        refuse(args, *FILES)
        dataset = DATASETS[args.name]
        languages = dataset.source_language, dataset.target_language
        options = preparation_options(
            args, {"dataset": args.name, "vocab_size": dataset.vocab_size, "languages": languages}
        )
        require_own_directory(args.out)  # before gigabytes are downloaded
        prepare(args, fetch(dataset, args.out, args.mirror or "", tell), options)


def refuse(args: argparse.Namespace, *names: str) -> None:
    """Refuse these options."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise UserError(f"data {args.name}: takes no {option(name)}")


def named_files(args: argparse.Namespace) -> CorpusFiles:
    """Return the files of `data files`; both sides of a pair must be given."""
    from scratchformer.text.corpora import CorpusFiles, ParallelFiles

    def pair(source: Path | None, target: Path | None) -> ParallelFiles | None:
        return ParallelFiles(source, target) if source and target else None

    sides = [(args.val_source, args.val_target), (args.test_source, args.test_target)]
    one_sided = len(args.source) != len(args.target) or any(bool(source) != bool(target) for source, target in sides)
    if one_sided or not args.source:
        raise UserError(
            "source and target files come in pairs: give --source with --target, --val-source with "
            "--val-target, --test-source with --test-target"
        )
    train = [ParallelFiles(*part) for part in zip(args.source, args.target)]
    return CorpusFiles(train, pair(args.val_source, args.val_target), pair(args.test_source, args.test_target))


def preparation_options(args: argparse.Namespace, defaults: dict[str, Any]) -> Options:
    from scratchformer.preparation.prepared import Options

    return Options(**defaults | {name: getattr(args, name) for name in PREPARATION if getattr(args, name) is not None})


def prepare(args: argparse.Namespace, files: CorpusFiles, options: Options) -> None:
    """Prepare these files, and say how to train with them."""
    from scratchformer.parallel.cores import available_cores
    from scratchformer.preparation import pipeline

    print(pipeline.prepare(files, args.out, options, tell, args.workers or available_cores()).summary())
    for preset in [name for name in configs.PRESETS if name.startswith(args.name)] or ["PRESET"]:
        print(f"train with: scratchformer train {preset} --data {shlex.quote(str(args.out))} --out RUN")
