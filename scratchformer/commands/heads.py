"""`scratchformer heads`: measure what each attention head of a run does, and how much the run needs it."""

from __future__ import annotations

import argparse
import json

from scratchformer.commands.options import Commands, add_command, add_option, add_run, path, within
from scratchformer.errors import UserError

N_SENTENCES = 100
FEWEST = 20
"""With fewer sentences, chance cannot be excluded."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "heads", heads)
    add_run(parser)
    default = "the test split of the run's text"
    add_option(
        parser, "--source F", path, f"text to measure on, one sentence a line; with --reference (default: {default})"
    )
    add_option(parser, "--reference F", path, "its translation, line by line")
    fewer = f"use the first N sentence pairs (default: {N_SENTENCES})"
    add_option(parser, "--sentences N", within(FEWEST, 10**6), fewer, N_SENTENCES)
    parser.add_argument("--json", action="store_true", help="print one JSON object, and draw no figures")


def heads(args: argparse.Namespace) -> None:
    """Say what each attention head does, and what is lost without it.

    scratchformer heads runs/tiny
    scratchformer heads runs/m30k --source test.en --reference test.de --sentences 50 --json
    """
    from scratchformer.experiments import figures
    from scratchformer.experiments.evaluation import find_test_set
    from scratchformer.experiments.head_report import as_text, maps_figure, measure_heads, pruning_figure, text_of
    from scratchformer.text import bundled
    from scratchformer.text.bundled import Example
    from scratchformer.text.corpora import nonblank_pairs
    from scratchformer.training.run import RunDirectory, load_run

    run = RunDirectory(args.path)
    data = run.require("translation").data
    is_bundled = not (data.directory or data.files or args.source or args.reference)
    if is_bundled:
        examples, pronouns = bundled.read("test"), bundled.read("test_coreference")
    else:
        test = find_test_set(data, args.source, args.reference)
        pairs = nonblank_pairs(test.source, test.reference)
        examples, pronouns = list(map(Example, pairs.source, pairs.target)), []
    translator, language = load_run(args.path, args.checkpoint), data.target_language
    text = text_of(translator, examples, args.sentences, language)
    if len(text.examples) < FEWEST:
        raise UserError(f"{len(text.examples)} sentence pairs that can be used; at least {FEWEST} are needed")
    to_order, to_prune = (text_of(translator, text.examples[i::2], args.sentences, language) for i in (0, 1))
    record = measure_heads(translator, text, to_order, to_prune, pronouns)
    if args.json:
        print(json.dumps(record))
        return
    print(as_text(record))
    if not is_bundled:
        print("No roles in alignment and pronouns: only for the bundled corpus is it known what is right.")
    for name, figure in {"heads": maps_figure(record), "pruning": pruning_figure(record)}.items():
        print(figures.save_in_run(figure, run, name))
