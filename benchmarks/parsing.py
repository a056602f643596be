"""Labelled F1 of small models as parsers, beside two parsers without a neural network.

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

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from baseline_parsers import PCFG, RightBranching
from harness import number, record, rounded
from training_runs import average_of_last, finished

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.tasks.parsing import model_parses, read_split
from scratchformer.text.bracket_score import score_parses
from scratchformer.text.trees import Parse, Tree
from scratchformer.training.run import RunDirectory, load_model

BASELINES = {"PCFG": PCFG, "right-branching": RightBranching}
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


def learned(path: Path, config: Config, sets: dict[str, list[Tree]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train the run, or finish it -> its length, its validation scores, and the scores of each search on each set"""
    run = RunDirectory(path)
    begun, seconds_before = run.config_file.exists(), sum(os.times()[:4])  # of this process and those that it starts
    trainer = finished(run, config)
    average_of_last(run, config)
    trained, scores = load_model(run.path, "average", threads=config.training.threads), {}
    about = {
        "steps": trainer.progress.step,
        "target_tokens": trainer.progress.target_tokens,
        "seconds": number(trainer.progress.seconds),
        "cpu_seconds": None if begun else number(sum(os.times()[:4]) - seconds_before),
        "validation_f1": rounded([[entry["step"], entry["f1"]] for entry in run.read_log("f1")]),
    }
    for name, trees in sets.items():
        scores[name] = {}
        for search, (options, free) in SEARCHES.items():
            searcher = trained._replace(config=configs.with_settings(trained.config, options))
            found = score_parses(model_parses(searcher, trees, free), trees)
            scores[name][search] = rounded(found)
            print(
                f"{path.name}, {name}, {search}: F1 {found['f1']:.2f}, {found['unparsable']:.1f} % repaired", flush=True
            )
    return about, scores


def baselines(training: list[Tree], trees: list[Tree]) -> dict[str, Any]:
    """Train each baseline on trees, and score its parses of others."""
    found = {}
    for name, kind in BASELINES.items():
        parser = kind(training)
        parses = [Parse(parser.parse(tree.words), False) for tree in trees]
        found[name] = rounded(score_parses(parses, trees))
    return found


def on_bundled_corpus(arguments: argparse.Namespace, changes: dict[str, Any], scratch: Path) -> dict[str, Any]:
    config = configs.with_settings(configs.preset("parsing-tiny"), changes)
    test = {name: read_split(config.data, name)[: 5 if arguments.quick else None] for name in SETS}
    training = read_split(config.data, "val" if arguments.quick else "train")
    results = {name: {"baselines": baselines(training, trees), "models": {}} for name, trees in test.items()}
    runs = {}
    for seed in arguments.seeds[: 1 if arguments.quick else None]:
        for model, settings in MODELS.items():
            which, path = f"{model}, seed {seed}", scratch / f"parsing-tiny-{model}-{seed}"
            runs[which], scores = learned(path, configs.with_settings(config, settings | {"seed": seed}), test)
            for name in test:
                results[name]["models"][which] = scores[name]
    return {"name": "parsing", "config": configs.to_dict(config), "runs": runs, "results": results}


def on_treebank(arguments: argparse.Namespace, changes: dict[str, Any], scratch: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for row, (preset, settings) in CHANGES.items():
        directory = {"data.directory": str(arguments.treebank.resolve())}
        config = configs.with_settings(configs.preset(preset), settings | directory | changes)
        val = read_split(config.data, "val")[: 5 if arguments.quick else None]
        about, scores = learned(scratch / f"treebank-{row.replace(',', '').replace(' ', '-')}", config, {"val": val})
        without_directory = configs.with_settings(config, {"data.directory": ""})
        rows[row] = {"config": configs.to_dict(without_directory), "run": about, **scores}
    return {"name": "parsing_treebank", "rows": rows, "baselines": baselines(read_split(config.data, "train"), val)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--treebank", type=Path, metavar="DIR", help="train.trees and val.trees, plain or .gz")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="for the bundled corpus")
    parser.add_argument("--runs", type=Path, help="keep the runs in this directory")
    parser.add_argument("--threads", type=int, default=1)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    changes = {"threads": arguments.threads} | (QUICK if arguments.quick else {})
    with TemporaryDirectory() as scratch:
        of_text = on_treebank if arguments.treebank else on_bundled_corpus
        return of_text(arguments, changes, arguments.runs or Path(scratch))


if __name__ == "__main__":
    record("parsing", __doc__, measure, options, threads=None)
