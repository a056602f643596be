"""Pronoun-resolution accuracy after learning from few labelled sentences, with and without pretraining.

    python benchmarks/antecedent.py RUN ... [--quick] [--out DIR]

RUN is a masked language model, whose weights the settings of the preset `antecedent` take. The recorded results used

    for seed in 0 1 2; do scratchformer train bert-tiny --seed $seed --threads 1 --out runs/bert$seed; done

With each number of labelled sentences, three ways learn the same task from the same sentences:

    counting    no network: whether the adjective goes more often with the first or the second of the two nouns
    scratch     from new weights
    pretrained  from the weights of the run, for as many steps

RATES of learning are tried for both networks, and the one with the highest accuracy on the sentences of the val split
(mean over the runs; of equals the first) is chosen for each number of sentences.

The last weights are tested on the sentences of the test split and on the minimal pairs of test_coreference. Two nouns
that "it" could mean in a sentence of test_coreference are never the two of a training sentence. Pretraining reads the
training sentences, too, but not their labels.
"""

import argparse
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import number, record, rounded, spread
from training_runs import trained

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.tasks import antecedent
from scratchformer.tasks.antecedent import AntecedentTask, is_right, pairs_of, with_two_nouns
from scratchformer.text.bundled import Example, both_right, words
from scratchformer.training.run import RunDirectory

SIZES = (100, 300, 1000, 3061)
RATES = ((0.1, 100), (0.4, 100), (1.0, 400))
"""lr_factor and warmup: that of the preset, one between, and that of pretraining"""
MEASURES = ("val", "test", "sentences", "pairs")

Row = dict[str, Any]
"""One training: seed, n, steps, lr_factor, warmup and the MEASURES, in percent"""


class FewSentences(AntecedentTask):
    """The task with `n` of its training sentences, drawn with this seed."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed

    def read(self, config: Config) -> dict[str, list]:
        corpus = super().read(config)
        chosen = np.random.default_rng(self.seed).permutation(len(corpus["train"]))[: self.n]
        return corpus | {"train": [corpus["train"][index] for index in chosen]}


def counted(n: int, seed: int) -> Row:
    """The scores of a majority of n sentences: which noun, the first or the second, does the adjective go with?"""

    def adjective(example: Example) -> str:
        return words(example.source)[-2]  # before the full stop

    def first(example: Example) -> int:
        return 1 if example.coreference["antecedent"] < example.coreference["rival"] else -1

    votes: Counter[str] = Counter()
    for each in FewSentences(n, seed).read(configs.PRESETS["antecedent"])["train"]:
        votes[adjective(each)] += first(each)

    def right(split: str) -> np.ndarray:
        return np.array([votes[adjective(each)] * first(each) > 0 for each in with_two_nouns(split)])

    on_pairs = right("test_coreference")
    shares = right("val"), right("test"), on_pairs, both_right(on_pairs, with_two_nouns("test_coreference"))
    return {"seed": seed, "n": n} | {name: percent(share) for name, share in zip(MEASURES, shares)}


def percent(right: np.ndarray) -> float | None:
    return number(100 * float(right.mean()))


def learned(config: Config, n: int) -> Row:
    """The scores after training on n sentences."""
    training = config.training
    once = {"training.validate_every": training.steps, "training.save_every": training.steps, "training.score_every": 0}
    task = FewSentences(n, training.seed)
    with patch.object(antecedent, "AntecedentTask", lambda: task), tempfile.TemporaryDirectory() as directory:
        model = trained(configs.with_settings(config, once), Path(directory) / "run")
    val = pairs_of(with_two_nouns("val"), model.tokenizer, config.data.max_length)
    row = {"seed": training.seed, "n": n, "steps": training.steps}
    row |= {"lr_factor": training.lr_factor, "warmup": training.warmup}
    row |= {"val": percent(is_right(model.model, val, model.device.ops))}
    row |= rounded({name: task.evaluate(model).record[name] for name in MEASURES[1:]})
    print("pretrained" if training.pretrained else "from new weights", row, flush=True)
    return row


def config_for(run: Path, quick: bool) -> Config:
    """The preset, with the model and the seed of a masked language model."""
    pretraining, preset = configs.load(RunDirectory(run).config_file), configs.PRESETS["antecedent"]
    training = replace(preset.training, seed=pretraining.training.seed, threads=1)
    training = replace(training, steps=2) if quick else training
    return replace(preset, model=replace(pretraining.model, n_classes=2), training=training)


def chosen(rows: list[Row], n: int) -> list[Row]:
    """Of the rows with n sentences, those of the rate that is best on the val split."""
    of_rate: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if row["n"] == n:
            of_rate[row.get("lr_factor"), row.get("warmup")].append(row)
    return max(of_rate.values(), key=lambda rows: round(float(np.mean([row["val"] for row in rows])), 3))


def summary(rows: list[Row]) -> dict[str, Any]:
    """number of sentences -> the rate chosen, and of each measure mean and range over the runs"""
    found = {}
    for n in dict.fromkeys(row["n"] for row in rows):
        best = chosen(rows, n)
        settings = {name: best[0][name] for name in ("lr_factor", "warmup", "steps") if name in best[0]}
        measures = {name: spread(row[name] for row in best) for name in MEASURES}
        found[str(n)] = settings | {"seeds": [row["seed"] for row in best]} | measures
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of masked language models")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sizes, rates = ((4,), RATES[:1]) if arguments.quick else (SIZES, RATES)
    results: dict[str, list[Row]] = {"counting": [], "scratch": [], "pretrained": []}
    for run in arguments.runs:
        scratch = config_for(run, arguments.quick)
        pretrained = configs.with_settings(scratch, {"training.pretrained": str(run.absolute())})
        for n in sizes:
            results["counting"].append(counted(n, scratch.training.seed))
            for way, config in (("scratch", scratch), ("pretrained", pretrained)):
                for factor, warmup in rates:
                    rated = configs.with_settings(config, {"training.lr_factor": factor, "training.warmup": warmup})
                    results[way].append(learned(rated, n))
    summaries = {way: summary(rows) for way, rows in results.items()}
    return {"config": configs.to_dict(scratch), "rates": RATES, "summary": summaries, "results": results}


if __name__ == "__main__":
    record("antecedent", __doc__, measure, options)
