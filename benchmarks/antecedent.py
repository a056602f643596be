"""What does pretraining save? The noun that "it" means, learned from few sentences, with and without pretraining.

    python benchmarks/antecedent.py RUN ... [--jobs N] [--quick] [--out DIR]

RUN is a masked language model, of which the settings of the preset `antecedent` take the weights. What is recorded used

    for seed in 0 1 2; do scratchformer train bert-tiny --seed $seed --threads 1 --out runs/bert$seed; done

With each number of labelled sentences, three models learn the same task from the same sentences:

    pretrained    from the weights of the run
    scratch       from new weights, for as many steps
    scratch_long  from new weights, for so long that it reads as many positions as pretraining and fine-tuning together

Tested are the last weights, on the sentences of the test split and on the minimal pairs of test_coreference. Two nouns
that "it" could mean in a sentence of test_coreference are never the two of a training sentence. Pretraining reads the
training sentences, too, and without their labels.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from masked_language_model import trained
from provenance import surroundings
from small_training import RESULTS, number, spread, write
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.experiments.antecedent import AntecedentScores, evaluate
from scratchformer.training.run import RunDirectory
from scratchformer.training.task_antecedent import AntecedentTask
from scratchformer.training.tasks import TASKS

SIZES = (100, 300, 1000, 3061)
SIZES_FOR_LONG = (300, 3061)
MEASURES = ("test", "sentences", "pairs")


class FewSentences(AntecedentTask):
    """The task with `n` of its training sentences, drawn with this seed."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed

    def read(self, config: Config) -> dict[str, list]:
        corpus = super().read(config)
        chosen = np.random.default_rng(self.seed).permutation(len(corpus["train"]))[: self.n]
        return corpus | {"train": [corpus["train"][index] for index in chosen]}


def learned(config: Config, n: int, changes: dict[str, Any]) -> AntecedentScores:
    """The scores after training on n sentences with these changes of the configuration."""
    config = configs.with_settings(config, changes)
    steps, seed = config.training.steps, config.training.seed
    once = {"training.validate_every": steps, "training.save_every": steps, "training.score_every": 0}
    TASKS["antecedent"] = FewSentences(n, seed)
    with tempfile.TemporaryDirectory() as directory:
        return evaluate(trained(configs.with_settings(config, once), Path(directory) / "run"))


def config_for(run: Path, quick: bool) -> Config:
    """The preset, with the model and the seed of a masked language model."""
    pretraining = configs.load(RunDirectory(run).config_file)
    training = replace(configs.ANTECEDENT.training, seed=pretraining.training.seed, threads=1)
    if quick:
        training = replace(training, steps=2)
    return replace(configs.ANTECEDENT, model=replace(pretraining.model, n_classes=2), training=training)


def scores_of(run: Path, quick: bool) -> dict[str, Any]:
    config = config_for(run, quick)
    before, now = configs.load(RunDirectory(run).config_file).training, config.training
    ratio = before.tokens_per_batch * before.accumulation / (now.tokens_per_batch * now.accumulation)
    more = 1 if quick else round(ratio * before.steps)
    ways: dict[str, dict[str, Any]] = {
        "pretrained": {"training.pretrained": str(run.absolute())},
        "scratch": {},
        "scratch_long": {"training.steps": config.training.steps + more},
    }
    found: dict[str, dict] = {way: {} for way in ways}
    for n in (4,) if quick else SIZES:
        for way, changes in ways.items():
            if way == "scratch_long" and n not in (4, *SIZES_FOR_LONG):
                continue
            scores = learned(config, n, changes)
            found[way][str(n)] = {name: number(getattr(scores, name)) for name in MEASURES}
            print(f"seed {config.training.seed}, {n} sentences, {way}: {found[way][str(n)]}", flush=True)
    return {"seed": config.training.seed, "first": number(scores.first), "last": number(scores.last), "ways": found}


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """way -> number of sentences -> measure -> mean and range over the runs"""
    return {
        way: {
            n: {name: spread([result["ways"][way][n][name] for result in results]) for name in MEASURES} for n in of_way
        }
        for way, of_way in results[0]["ways"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of masked language models")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        provenance = surroundings()  # now: git may move while we measure
        with ProcessPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(scores_of, arguments.runs, [arguments.quick] * len(arguments.runs)))
    config = config_for(arguments.runs[0], arguments.quick)
    write(
        arguments.out,
        "antecedent",
        {
            "provenance": provenance,
            "config": configs.to_dict(config),
            "seeds": [result["seed"] for result in results],
            "summary": summary(results),
            "results": results,
        },
    )


if __name__ == "__main__":
    main()
