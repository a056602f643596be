"""Measure what the source sentence is worth to a translator, in nats per target token.

    python benchmarks/source_worth.py [--quick] [--out DIR]

The model of the preset tiny, with the short schedule of lesson 19, is trained on three versions of the same text: the
pairs as they are; the same sentences, but each source with the translation of another; and no source at all, which
makes the decoder a language model of German. Validation is on right pairs (the third version: on German alone).
README.md here says what is recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from small_training import Part, adam_of, conduct, number, numbers, schedule_of, spread, train

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import Corpus, encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.corpora import Pairs
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "training.steps": 480,
    "training.tokens_per_batch": 512,
    "training.accumulation": 1,
    "training.warmup": 80,
    "training.lr_factor": 0.5,
    "training.validate_every": 80,
}
QUICK = {
    "model.N": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "training.steps": 4,
    "training.warmup": 2,
    "training.validate_every": 2,
}
VERSIONS = ("right pairs", "shuffled pairs", "no source")
SEEDS = (0, 1, 2)


def version_of(corpus: Corpus, version: str, seed: int) -> Corpus:
    """The corpus with its pairs as they are, with sources of other sentences in training, or with empty sources."""
    train, val = corpus
    if version == "shuffled pairs":
        order = np.random.default_rng(seed).permutation(len(train.source))
        train = train._replace(source=[train.source[i] for i in order])
    if version == "no source":
        train, val = without_source(train), val and without_source(val)
    return Corpus(train, val)


def without_source(pairs: Pairs) -> Pairs:
    return pairs._replace(source=[""] * len(pairs.source))


def run(data: TrainingData, config: Config) -> dict[str, Any]:
    training, model = config.training, Transformer(config.model, config.training.seed)
    optimizer = adam_of(model, config)
    curve = train(model, optimizer, data, config, schedule_of(config))
    return {"seed": training.seed, "final_loss": number(curve[-1][1]), "curve": numbers(curve)}


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)
    rows = []
    for version in VERSIONS:
        runs = []
        for seed in seeds:
            seeded = configs.with_settings(config, {"training.seed": seed})
            runs.append(run(encode_corpus(version_of(corpus, version, seed), tokenizer, seeded), seeded))
            print(version, runs[-1], flush=True)
        rows.append({"version": version, "final_loss": spread([each["final_loss"] for each in runs]), "runs": runs})
    return {"results": rows}


if __name__ == "__main__":
    conduct(__doc__, {"source_worth": Part(EXPERIMENT, QUICK, SEEDS, measure)})
