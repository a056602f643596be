"""Labelled F1 of small models as parsers, beside three parsers without a neural network.

    python benchmarks/parsing.py [--seeds N ...] [--runs DIR] [--quick] [--out DIR]
    python benchmarks/parsing.py --treebank DIR [--runs DIR] [--quick] [--out DIR]

The first command trains the preset `parsing-tiny` on the bundled corpus, once for each seed: the paper's model, and the
same model told the next word to tag (`n_tags`). It scores three sets: `test`, whose sentences are like those of
training; `test_compositional`, with words that never shared a training sentence; and `test_long`, whose sentences are
longer than any in training.

The second one shows what each change gives on a treebank, the directory that `scratchformer data treebank` fills: the
settings of `parsing-tiny` or those of `parsing-small`, told the next word or not, one seed each. It scores val.trees,
and writes scores and settings alone.

The last checkpoints of each run are averaged, and searched greedily and with a beam; `free` may write what is not a
tree, to be repaired. With --runs the runs are kept in DIR; what is there already is finished and scored.
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from baseline_parsers import PCFG, MajorityLabel, RightBranching
from small_training import number, record

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.tasks import start
from scratchformer.tasks.parsing import model_parses, read_split
from scratchformer.text.bracket_score import BracketScores, score_parses
from scratchformer.text.trees import Parse, Tree
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, Trained, load_model

SEEDS = (0, 1, 2)
BASELINES: dict[str, type[RightBranching] | type[PCFG]] = {
    "PCFG": PCFG,
    "right-branching": RightBranching,
    "majority label": MajorityLabel,
}
SEARCHES: dict[str, tuple[dict[str, Any], bool]] = {
    "greedy, free": ({"beam": 1}, True),
    "greedy": ({"beam": 1}, False),
    "beam 4, free": ({"beam": 4, "alpha": 0.3}, True),
    "beam 4": ({"beam": 4, "alpha": 0.3}, False),
}
"""Name -> settings, and whether the rules of trees are off."""

MODELS: dict[str, dict[str, Any]] = {"paper": {"n_tags": 0}, "told": {"n_tags": 1}}
SETS = ("test", "test_compositional", "test_long")
LONG_TREES = {"max_length": 512, "extra_length": 300}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "parsing-small": ("parsing-small", {}),
    "without the next word": ("parsing-small", {"n_tags": 0}),
    "parsing-tiny, told the next word": ("parsing-tiny", LONG_TREES | {"n_tags": 1}),
    "parsing-tiny": ("parsing-tiny", LONG_TREES),
}
"""Row of the table of a treebank -> preset and changed settings."""

QUICK = {"steps": 4, "N": 1, "d_model": 16, "d_ff": 16, "score_every": 0, "save_every": 2, "average_last": 2}


def train(run: RunDirectory, config: Config) -> dict[str, Any]:
    """Train the run, or finish it, and average its last checkpoints -> its length and its validation scores"""
    begun, cpu_seconds = run.config_file.exists(), processor_seconds()
    trainer = start.resume(run, configs.load(run.config_file))[0] if begun else start.begin(run, config)
    loop.train(trainer)
    last = run.checkpoints.steps()[-config.training.average_last :]
    checkpoints.save(run.checkpoints.average, checkpoints.average(last))
    return {
        "steps": trainer.progress.step,
        "target_tokens": trainer.progress.target_tokens,
        "seconds": number(trainer.progress.seconds),
        "cpu_seconds": None if begun else number(processor_seconds() - cpu_seconds),  # reading and validation included
        "validation_f1": [[entry["step"], number(entry["f1"])] for entry in run.read_log("f1")],
    }


def processor_seconds() -> float:
    """The processor time of this process and of those that it has started."""
    return sum(os.times()[:4])


def plain(scores: BracketScores) -> dict[str, Any]:
    return {name: number(value) for name, value in scores._asdict().items()}


def searched(trained: Trained, trees: list[Tree], what: str) -> dict[str, Any]:
    """The scores of each search."""
    found = {}
    for name, (options, free) in SEARCHES.items():
        config = configs.with_settings(trained.config, options)
        scores = score_parses(model_parses(trained._replace(config=config), trees, free), trees)
        found[name] = plain(scores)
        print(f"{what}, {name}: F1 {scores.f1:.2f}, {scores.unparsable:.1f} % repaired", flush=True)
    return found


def on_bundled_corpus(arguments: argparse.Namespace, changes: dict[str, Any], scratch: Path) -> dict[str, Any]:
    config = configs.with_settings(configs.preset("parsing-tiny"), changes)
    test: dict[str, list[Tree]] = {name: read_split(config.data, name) for name in SETS}
    if arguments.quick:
        test = {name: trees[:5] for name, trees in test.items()}
    training = read_split(config.data, "val" if arguments.quick else "train")
    results: dict[str, Any] = {
        name: {"baselines": baselines(training, trees), "models": {}} for name, trees in test.items()
    }
    runs = {}
    for seed, (model, settings) in itertools.product(arguments.seeds, MODELS.items()):
        which = f"{model}, seed {seed}"
        run = RunDirectory(scratch / f"parsing-tiny-{model}-{seed}")
        runs[which] = train(run, configs.with_settings(config, settings | {"seed": seed}))
        trained = load_model(run.path, "average", threads=arguments.threads)
        for name, trees in test.items():
            results[name]["models"][which] = searched(trained, trees, f"{which}, {name}")
    return {"config": configs.to_dict(config), "runs": runs, "results": results}


def on_treebank(arguments: argparse.Namespace, changes: dict[str, Any], scratch: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for row, (preset, settings) in CHANGES.items():
        directory = {"data.directory": str(arguments.treebank.resolve())}
        config = configs.with_settings(configs.preset(preset), settings | directory | changes)
        run, val = RunDirectory(scratch / f"treebank-{row.replace(',', '').replace(' ', '-')}"), read_split(
            config.data, "val"
        )
        val = val[:5] if arguments.quick else val
        trained_for = train(run, config)
        scores = searched(load_model(run.path, "average", threads=arguments.threads), val, row)
        without_directory = configs.with_settings(config, {"data.directory": ""})
        results[row] = {"config": configs.to_dict(without_directory), "run": trained_for, "val": scores}
    return {"rows": results, "baselines": baselines(read_split(config.data, "train"), val)}


def baselines(training: list[Tree], trees: list[Tree]) -> dict[str, Any]:
    """Train each baseline on trees, and score its parses of others."""
    parsers: dict[str, RightBranching | PCFG] = {name: kind(training) for name, kind in BASELINES.items()}
    return {
        name: plain(score_parses([Parse(parser.parse(tree.words), False) for tree in trees], trees))
        for name, parser in parsers.items()
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--treebank", type=Path, metavar="DIR", help="train.trees and val.trees, plain or .gz")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="for the bundled corpus")
    parser.add_argument("--runs", type=Path, help="keep the runs in this directory")
    parser.add_argument("--threads", type=int, default=1)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
    changes = {"threads": arguments.threads} | (QUICK if arguments.quick else {})
    with TemporaryDirectory() as scratch:
        of_text = on_treebank if arguments.treebank else on_bundled_corpus
        found = of_text(arguments, changes, arguments.runs or Path(scratch))
    return {"name": "parsing_treebank" if arguments.treebank else "parsing"} | found


if __name__ == "__main__":
    record("parsing", __doc__, measure, options, threads=None)
