"""How well does `parsing-tiny` parse the bundled corpus? Labelled F1 beside three parsers without a neural network.

    python benchmarks/parsing.py [--seeds N ...] [--runs DIR] [--quick] [--out DIR]

For each seed it trains the preset, averages the last checkpoints, and scores the parses of three sets: `test`, whose
sentences are like those of training; `test_compositional`, with words that never shared a training sentence; and
`test_long`, whose sentences are longer than any in training. With --runs the runs are kept in DIR; what is there
already is finished and scored.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from provenance import surroundings
from small_training import RESULTS, number, write

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.experiments.parsing import baseline_scores, model_scores
from scratchformer.text.bracket_score import BracketScores
from scratchformer.text.trees import Tree
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, load_model
from scratchformer.training.task_parsing import read_split

SEEDS = (0, 1, 2)
SEARCHES = {"greedy": {"beam": 1}, "beam 4": {"beam": 4, "alpha": 0.3}}
SETS = ("test", "test_compositional", "test_long")
QUICK = {"steps": 4, "N": 1, "d_model": 16, "d_ff": 16, "score_every": 0, "save_every": 2, "average_last": 2}


def train(run: RunDirectory, config: Config) -> dict[str, Any]:
    """Train the run, or finish it, and average its last checkpoints -> the course of its validation scores"""
    begun = run.config_file.exists()
    trainer = loop.resume(run, configs.load(run.config_file))[0] if begun else loop.begin(run, config)
    loop.train(trainer)
    last = run.checkpoints.steps()[-config.training.average_last :]
    checkpoints.save(run.checkpoints.average, checkpoints.average(last))
    return {
        "steps": trainer.progress.step,
        "target_tokens": trainer.progress.target_tokens,
        "seconds": number(trainer.progress.seconds),
        "validation_f1": [[entry["step"], number(entry["f1"])] for entry in run.read_log("f1")],
    }


def plain(scores: BracketScores) -> dict[str, Any]:
    return {name: number(value) for name, value in scores._asdict().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--runs", type=Path, help="keep the runs in this directory")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()

    provenance = surroundings()  # now: git may move while we measure
    changes = {"threads": arguments.threads} | (QUICK if arguments.quick else {})
    config = configs.with_settings(configs.preset("parsing-tiny"), changes)
    test: dict[str, list[Tree]] = {name: read_split(config.data, name) for name in SETS}
    if arguments.quick:
        test = {name: trees[:5] for name, trees in test.items()}
    training = read_split(config.data, "val" if arguments.quick else "train")
    baselines = {name: baseline_scores(training, trees) for name, trees in test.items()}
    results: dict[str, Any] = {
        name: {"baselines": {each: plain(scores) for each, scores in found.items()}, "seeds": {}}
        for name, found in baselines.items()
    }
    runs = {}
    with TemporaryDirectory() as scratch:
        for seed in arguments.seeds[:1] if arguments.quick else arguments.seeds:
            run = RunDirectory((arguments.runs or Path(scratch)) / f"parsing-tiny-{seed}")
            runs[str(seed)] = train(run, configs.with_settings(config, {"seed": seed}))
            trained = load_model(run.path, "average", threads=arguments.threads)
            for name, trees in test.items():
                found = results[name]["seeds"][str(seed)] = {}
                for search, options in SEARCHES.items():
                    scores = model_scores(trained._replace(config=configs.with_settings(config, options)), trees)
                    found[search] = plain(scores)
                    print(f"seed {seed}, {name}, {search}: F1 {scores.f1:.2f}", flush=True)
    result = {"provenance": provenance, "config": configs.to_dict(config), "runs": runs, "results": results}
    write(arguments.out, "parsing", result)


if __name__ == "__main__":
    main()
