"""Effects of label smoothing on perplexity, accuracy, calibration and BLEU, with little text and with plenty.

    python benchmarks/label_smoothing.py [--quick] [--out DIR]

A small translator learns from the first 1,000 pairs of the bundled text, which it gets to know by heart, and from all
20,000, with and without smoothing. It is measured on the 500 test pairs.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import rounded, spread
from scipy.special import softmax
from small_training import WRITTEN_TEXT, Part, conduct, read_text, trained

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import EncodedPairs, batches_in_order, encode_pairs
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs, find_split, read_pairs
from scratchformer.text.tokenizer import PAD, Tokenizer
from scratchformer.training.trainer import TrainingData

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
QUICK = {"model.vocab_size": 300, "model.N": 1, "model.d_model": 16, "model.d_ff": 32}
QUICK |= {"training.steps": 4, "training.warmup": 2, "training.validate_every": 2}
PAIRS = (1_000, 20_000)  # of text to learn from
STRENGTHS = (0.0, 0.1)  # eps_ls


class Text(NamedTuple):
    tokenizer: Tokenizer
    data: TrainingData
    test: EncodedPairs
    test_text: Pairs


def first(pairs: EncodedPairs, count: int) -> EncodedPairs:
    keep = np.arange(len(pairs)) < count
    return EncodedPairs(
        pairs.source.select(keep), pairs.target.select(keep), pairs.line_numbers[keep], pairs.max_length, 0
    )


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


def calibration(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> dict[str, Any]:
    """Sort guesses into bins of equal width by their probability; `error` is the expected calibration error.

    Of all guesses with probability 0.8 a calibrated model has eight in ten right. The error is the mean distance of
    confidence and accuracy, each bin by its count (Guo et al. 2017, equation 3).

    confidence (n,), 0 to 1: the probability of each guess;  right (n,) bool
    -> per bin the count, the mean probability and the share that is right, NaN where it is empty; the error
    """
    at = np.minimum((confidence * bins).astype(int), bins - 1)  # on a boundary: the upper bin
    count = np.bincount(at, minlength=bins)
    n = np.where(count, count, np.nan)
    mean, share = np.bincount(at, confidence, bins) / n, np.bincount(at, right, bins) / n
    error = float(np.nansum(np.abs(mean - share) * count) / count.sum())
    return {"error": error, "count": count, "confidence": mean, "accuracy": share}


def mixed_nats(p: np.ndarray, targets: np.ndarray, smoothing: float) -> float:
    """The loss of a model whose every probability is smoothed by hand, after training."""
    everywhere = smoothing / (p.shape[1] - 1)
    return float(-np.log((1 - smoothing - everywhere) * p[np.arange(len(p)), targets] + everywhere).mean())


def run(n_pairs: int, text: Text, config: Config) -> dict[str, Any]:
    model = Transformer(config.model, config.training.seed)
    pairs = first(text.data.train, n_pairs)
    found = trained(model, replace(text.data, train=pairs), config)
    logits, targets = guesses(model, text.test)
    p = softmax(logits, axis=-1)
    translations = Translator(model, text.tokenizer).translate(text.test_text.source, beam=1)
    return found | rounded(
        {
            "nats": nats(logits, targets),
            "accuracy": float((p.argmax(axis=-1) == targets).mean()),
            "confidence": float(p.max(axis=-1).mean()),
            "bleu": corpus_scores(translations, text.test_text.target).bleu,
            "calibration": calibration(p.max(axis=-1), p.argmax(axis=-1) == targets),
            "mixed_nats": mixed_nats(p, targets, STRENGTHS[-1]),
        }
    )


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    tokenizer, data = read_text(config)
    test = read_pairs(*find_split(Path(WRITTEN_TEXT["data.directory"]), "test", "en", "de"))
    encoded = encode_pairs(tokenizer.encode, test, config.data.max_length, config.training.tokens_per_batch)
    text, rows = Text(tokenizer, data, encoded, test), []
    for n_pairs in PAIRS:
        for strength in STRENGTHS:
            smoothed = [configs.with_settings(config, {"eps_ls": strength, "training.seed": seed}) for seed in seeds]
            runs = [run(n_pairs, text, each) for each in smoothed]
            rows.append({"pairs": n_pairs, "eps_ls": strength, "runs": runs})
            means = {name: spread(each[name] for each in runs)["mean"] for name in ("nats", "accuracy", "bleu")}
            print(f"{n_pairs} pairs, eps_ls {strength}: {means}", flush=True)
    return {"results": rows}


if __name__ == "__main__":
    conduct(__doc__, {"label_smoothing": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
