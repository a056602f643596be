"""Effects of label smoothing on perplexity, accuracy, calibration and BLEU, with little text and with plenty.

    python benchmarks/label_smoothing.py [--quick] [--out DIR]

A small translator learns from the first 1,000 pairs of the bundled text, which it gets to know by heart, and from all
20,000, with three strengths of smoothing. It is measured on the 500 test pairs. README.md here says what is recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from small_training import WRITTEN_TEXT, Part, adam_of, conduct, number, numbers, schedule_of, spread, train

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.batches import EncodedPairs, batches_in_order, encode_pairs
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs, find_split, read_pairs
from scratchformer.text.tokenizer import PAD, Tokenizer
from scratchformer.training.trainer import TrainingData
from support.calibration import reliability

EXPERIMENT = {
    "model.N": 2,
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.h": 4,
    "training.steps": 600,
    "training.tokens_per_batch": 512,
    "training.warmup": 150,
    "training.lr_factor": 0.4,
    "training.validate_every": 100,
}
QUICK = {
    "model.vocab_size": 300,
    "model.N": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "training.steps": 4,
    "training.warmup": 2,
    "training.validate_every": 2,
}
PAIRS = (1_000, 20_000)  # of text to learn from
STRENGTHS = (0.0, 0.1, 0.3)  # eps_ls
SEEDS = (0, 1, 2)


class Text(NamedTuple):
    tokenizer: Tokenizer
    data: TrainingData
    test: EncodedPairs
    test_text: Pairs


def read(config: Config) -> Text:
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)
    test = read_pairs(*find_split(Path(WRITTEN_TEXT["data.directory"]), "test", "en", "de"))
    settings = config.training
    return Text(
        tokenizer,
        encode_corpus(corpus, tokenizer, config),
        encode_pairs(tokenizer.encode, test, config.data.max_length, settings.tokens_per_batch),
        test,
    )


def first(pairs: EncodedPairs, count: int) -> EncodedPairs:
    keep = np.arange(len(pairs)) < count
    return EncodedPairs(
        pairs.source.select(keep), pairs.target.select(keep), pairs.line_numbers[keep], pairs.max_length, 0
    )


# Looking at a model ---------------------------------------------------------------------------------------------------


def guesses(model: Transformer, pairs: EncodedPairs) -> tuple[np.ndarray, np.ndarray]:
    """The logits of every real target token (n, V), float64, and these tokens (n,)"""
    logits, targets = [], []
    for batch in batches_in_order(pairs, 2048):
        real = batch.targets != PAD
        logits.append(model.forward(*batch.inputs)[0][real].astype(np.float64))
        targets.append(batch.targets[real])
    return np.concatenate(logits), np.concatenate(targets)


def nats(logits: np.ndarray, targets: np.ndarray) -> float:
    loss_sum, n_tokens, _ = cross_entropy(logits, targets)
    return float(loss_sum) / n_tokens


def best_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """Of 0.30, 0.32 ... 3, the T for which logits / T have the lowest loss."""
    candidates = np.arange(30, 301, 2) / 100
    left, right = 0, len(candidates) - 1
    while left < right:  # the loss is convex in 1 / T
        middle = (left + right) // 2
        if nats(logits / candidates[middle], targets) <= nats(logits / candidates[middle + 1], targets):
            right = middle
        else:
            left = middle + 1
    return float(candidates[left])


def probabilities(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def mixed_nats(p: np.ndarray, targets: np.ndarray, smoothing: float) -> float:
    """The loss of a model whose every probability is smoothed by hand, after training."""
    everywhere = smoothing / (p.shape[1] - 1)
    return float(-np.log((1 - smoothing - everywhere) * p[np.arange(len(p)), targets] + everywhere).mean())


def calibration(logits: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    p = probabilities(logits)
    bins = reliability(p.max(axis=-1), p.argmax(axis=-1) == targets)
    return {
        "error": number(bins.error),
        "count": bins.count.tolist(),
        "confidence": [number(value) for value in bins.confidence],
        "accuracy": [number(value) for value in bins.accuracy],
    }


def look_at(model: Transformer, text: Text, known: EncodedPairs) -> dict[str, Any]:
    """known: pairs of the training text"""
    logits, targets = guesses(model, text.test)
    p = probabilities(logits)
    temperature = best_temperature(*guesses(model, text.data.val))
    translations = Translator(model, text.tokenizer).translate(text.test_text.source, beam=1)
    return {
        "known_nats": number(nats(*guesses(model, known))),
        "nats": number(nats(logits, targets)),
        "accuracy": number(float((p.argmax(axis=-1) == targets).mean())),
        "confidence": number(float(p.max(axis=-1).mean())),
        "median_confidence": number(float(np.median(p.max(axis=-1)))),
        "bleu": number(corpus_scores(translations, text.test_text.target).bleu),
        "temperature": temperature,
        "nats_at_temperature": number(nats(logits / temperature, targets)),
        "calibration": calibration(logits, targets),
        "calibration_at_temperature": calibration(logits / temperature, targets),
        "mixed_nats": {str(smoothing): number(mixed_nats(p, targets, smoothing)) for smoothing in STRENGTHS},
    }


# Training -------------------------------------------------------------------------------------------------------------


def run(n_pairs: int, smoothing: float, seed: int, text: Text, config: Config) -> dict[str, Any]:
    config = configs.with_settings(config, {"training.eps_ls": smoothing, "training.seed": seed})
    model = Transformer(config.model, seed)
    pairs = first(text.data.train, n_pairs)
    curve = train(model, adam_of(model, config), text.data._replace(train=pairs), config, schedule_of(config))
    return {"seed": seed, **look_at(model, text, first(pairs, 500)), "curve": numbers(curve)}


def row(n_pairs: int, smoothing: float, text: Text, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """All seeds of one amount of text and one strength."""
    runs = [run(n_pairs, smoothing, seed, text, config) for seed in seeds]
    result = {"pairs": n_pairs, "eps_ls": smoothing} | {
        name: spread([each[name] for each in runs])
        for name in ("known_nats", "nats", "nats_at_temperature", "accuracy", "confidence", "bleu")
    }
    print(
        f"{n_pairs} pairs, eps_ls {smoothing}: "
        + ", ".join(
            f"{name} {value['mean']} ({value['lowest']} to {value['highest']})"
            for name, value in result.items()
            if isinstance(value, dict)
        ),
        flush=True,
    )
    return result | {"runs": runs}


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    text = read(config)
    return {"results": [row(n_pairs, smoothing, text, config, seeds) for n_pairs in PAIRS for smoothing in STRENGTHS]}


if __name__ == "__main__":
    conduct(__doc__, {"label_smoothing": Part(EXPERIMENT, QUICK, SEEDS, measure)})
