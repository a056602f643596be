"""Do positions carry over to sentences longer than those of training?

    python benchmarks/longer.py [--quick] [--out DIR]

A small model is trained on the generated sentences with each kind of positions, and translates test_long, whose
sentences have more words than any of training. Two more runs with sinusoids ask what is the matter: in one, each batch
begins at another position; in the other, some long sentences are among those of training. README.md here says what is
recorded.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
from small_training import Part, add_gradient, batches, conduct, number, spread

import grammar
from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import Corpus, encode_corpus, train_tokenizer
from scratchformer.text import bundled
from scratchformer.text.batches import EncodedPairs, batches_in_order, encode_pairs
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss
from support.positions import IN_ATTENTION, Shifted, give_positions

EXPERIMENT = {
    "training.steps": 600,
    "training.tokens_per_batch": 512,
    "training.accumulation": 1,
    "training.warmup": 200,
    "training.lr_factor": 0.7,
    "model.max_positions": 128,
    "data.max_length": 128,
}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4}
SEEDS = (0, 1)
MANY_LONG = 1000  # of 21,000 sentences then
LATEST_START = 64
SHIFTS = (0, 5, 20, 50)
EDGES = (0, 10, 20, 30, 40, 128)  # of ranges of positions
TOKENS = 2048  # of a batch, when testing
TRANSLATED = 60  # sentences of each test set


class Variant(NamedTuple):
    """kind: of positions; random_start: every batch begins at a position of its own; long: train on long ones, too"""

    kind: str
    random_start: bool = False
    long: bool = False


VARIANTS = {
    "learned": Variant("learned"),
    "sinusoidal": Variant("sinusoidal"),
    "alibi": Variant("alibi"),
    "rotary": Variant("rotary"),
    "sinusoidal, random start": Variant("sinusoidal", random_start=True),
    "sinusoidal, long ones too": Variant("sinusoidal", long=True),
}

# Text -----------------------------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """ordinary, with_long: to train on; test, test_long: ids, and the sentences themselves"""

    tokenizer: Tokenizer
    ordinary: TrainingData
    with_long: TrainingData
    test: EncodedPairs
    test_long: EncodedPairs
    sentences: dict[str, Pairs]


def read_text(config: Config) -> Text:
    splits = bundled.read_all()
    val = bundled.read_text("val")
    ordinary = Corpus(bundled.read_text("train"), val)
    tokenizer = train_tokenizer(ordinary, config)
    with_long = Corpus(pairs_of([*splits["train"], *more_long_sentences(splits, MANY_LONG)]), val)
    sentences = {name: bundled.read_text(name) for name in ("test", "test_long")}
    test, test_long = (
        encode_pairs(tokenizer.encode, pairs, config.data.max_length, config.training.tokens_per_batch)
        for pairs in sentences.values()
    )
    return Text(
        tokenizer,
        encode_corpus(ordinary, tokenizer, config),
        encode_corpus(with_long, tokenizer, config),
        test,
        test_long,
        sentences,
    )


def pairs_of(examples: list[bundled.Example]) -> Pairs:
    return Pairs(
        [example.source for example in examples],
        [example.target for example in examples],
        list(range(1, len(examples) + 1)),
        0,
    )


def more_long_sentences(splits: dict[str, list[bundled.Example]], count: int) -> list[bundled.Example]:
    """Made as test_long is, of words that training has, and none of them in any split."""
    lexicon = grammar.read_lexicon()
    corpus = grammar.Corpus(lexicon, random.Random(1), grammar.hold_out(lexicon, random.Random(grammar.SEED)))
    everything = [example for split in splits.values() for example in split]
    corpus.sources = {example.source for example in everything}
    corpus.targets = {example.target for example in everything}
    corpus.known = {
        form
        for example in splits["train"]
        for form in corpus.forms(bundled.words(example.source), bundled.words(example.target))
    }
    return corpus.long(count)


# Training and testing -------------------------------------------------------------------------------------------------


def model_of(variant: Variant, config: Config) -> Transformer:
    learned = {"model.positions": "learned"} if variant.kind == "learned" else {}
    model = Transformer(configs.with_settings(config, learned).model, config.training.seed)
    if variant.kind in IN_ATTENTION:
        give_positions(model, variant.kind)
    return model


class Starts:
    """Inside the `with`, both sides of a model begin at a position that `at` sets."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.before = model, (model.source_positions, model.target_positions)

    def __enter__(self) -> Starts:
        self.at(0)
        return self

    def at(self, first: int) -> None:
        self.model.source_positions, self.model.target_positions = (
            Shifted(positions, first) for positions in self.before
        )  # type: ignore[assignment]

    def __exit__(self, *exception: object) -> None:
        self.model.source_positions, self.model.target_positions = self.before


def train(model: Transformer, variant: Variant, text: Text, config: Config) -> float:
    """-> the training loss of the last 50 steps, smoothed, in nats per target token"""
    training, draw = config.training, np.random.default_rng(config.training.seed)
    optimizer, losses = Adam(model, (training.beta1, training.beta2), training.eps), []
    data = text.with_long if variant.long else text.ordinary
    with Starts(model) as starts:
        for step, batch in zip(range(1, training.steps + 1), batches(data, config)):
            if variant.random_start:
                starts.at(int(draw.integers(LATEST_START)))
            losses.append(add_gradient(model, batch, config, step))
            optimizer.step(noam(step, config.model.d_model, training.warmup, training.lr_factor))
    return float(np.mean(losses[-50:]))


def run(name: str, text: Text, config: Config) -> dict[str, Any]:
    variant = VARIANTS[name]
    model = model_of(variant, config)
    train_loss = train(model, variant, text, config)
    with Starts(model) as starts:
        shifted = []
        for first in SHIFTS:
            starts.at(first)
            shifted.append(number(validation_loss(model, text.test, TOKENS)))
    result = {
        "seed": config.training.seed,
        "train_loss": number(train_loss),
        "test": shifted[0],
        "test_long": number(validation_loss(model, text.test_long, TOKENS)),
        "test_shifted": shifted,
        "test_long_by_position": [number(loss) for loss in losses_by_position(model, text.test_long)],
        "bleu": {split: bleu(model, text, split) for split in text.sentences},
    }
    print(f"{name}, {result}", flush=True)
    return result


def losses_by_position(model: Transformer, pairs: EncodedPairs) -> np.ndarray:
    """In nats per target token, for the positions from each of EDGES to the next: (ranges,)"""
    sums = np.zeros((2, len(EDGES) - 1))  # of losses; of tokens
    for batch in batches_in_order(pairs, TOKENS):
        logits, _ = model.forward(*batch.inputs)  # (B, T, V)
        for i, (start, end) in enumerate(zip(EDGES, EDGES[1:])):
            sums[:, i] += cross_entropy(logits[:, start:end], batch.targets[:, start:end])[:2]
    return sums[0] / sums[1]


def bleu(model: Transformer, text: Text, split: str) -> float | None:
    """Of greedy translations of the first sentences."""
    source, target = text.sentences[split].source[:TRANSLATED], text.sentences[split].target[:TRANSLATED]
    return number(corpus_scores(Translator(model, text.tokenizer).translate(source, beam=1), target).bleu)


def row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """All seeds of one variant."""
    return {
        "variant": name,
        "test": spread([each["test"] for each in runs]),
        "test_long": spread([each["test_long"] for each in runs]),
        "runs": runs,
    }


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    text = read_text(config)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for seed in seeds:
        for name in VARIANTS:
            runs[name].append(run(name, text, configs.with_settings(config, {"training.seed": seed})))
    return {
        "shifts": SHIFTS,
        "edges": EDGES,
        "longest_in_training": int(text.ordinary.train.lengths.max()),
        "longest_in_test_long": int(text.test_long.lengths.max()),
        "results": [row(name, runs[name]) for name in VARIANTS],
    }


if __name__ == "__main__":
    conduct(__doc__, {"longer": Part(EXPERIMENT, QUICK, SEEDS, measure)})
