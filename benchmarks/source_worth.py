"""Measure what the source sentence is worth to a translator, in nats per target token.

    python benchmarks/source_worth.py [--quick] [--out DIR]

The model of the preset tiny, with the short schedule of lesson 19, is trained on three versions of the same text: the
pairs as they are; the same sentences, but each source with the translation of another; and no source at all, which
makes the decoder a language model of German. Validation is on right pairs (the third version: on German alone).
"""

from typing import Any

import numpy as np
from small_training import Part, conduct, row, trained

from scratchformer.config import Config
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import Corpus, encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.corpora import Pairs

EXPERIMENT = {
    "training.steps": 480,
    "training.tokens_per_batch": 512,
    "training.accumulation": 1,
    "training.warmup": 80,
    "training.lr_factor": 0.5,
    "training.validate_every": 80,
}
QUICK = {"model.N": 1, "model.d_model": 16, "model.d_ff": 32}
QUICK |= {"training.steps": 4, "training.warmup": 2, "training.validate_every": 2}
VERSIONS = ("right pairs", "shuffled pairs", "no source")


def version_of(corpus: Corpus, version: str, seed: int) -> Corpus:
    """The corpus with its pairs as they are, with sources of other sentences in training, or with empty sources."""
    train, val, _ = corpus
    if version == "shuffled pairs":
        order = np.random.default_rng(seed).permutation(len(train.source))
        train = train._replace(source=[train.source[i] for i in order])
    if version == "no source":
        train, val = without_source(train), val and without_source(val)
    return Corpus(train, val)


def without_source(pairs: Pairs) -> Pairs:
    return pairs._replace(source=[""] * len(pairs.source))


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)

    def run(version: str, seeded: Config) -> dict[str, Any]:
        seed = seeded.training.seed
        data = encode_corpus(version_of(corpus, version, seed), tokenizer, seeded)
        return trained(Transformer(seeded.model, seed), data, seeded)

    return {
        "results": [
            row({"version": version}, lambda seeded, version=version: run(version, seeded), config, seeds)
            for version in VERSIONS
        ]
    }


if __name__ == "__main__":
    conduct(__doc__, {"source_worth": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
