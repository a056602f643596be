"""Small translators of short sentences: what the lessons on training need before the first step.

The sentences are those of the bundled corpus with at most 12 pieces, cut by the tokenizer of the trained model of
lesson 00. A batch is 16 of them at random; the loss is in nats per target piece, without label smoothing.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.loss import batch_loss
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, EncodedPairs, encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import PAD, Tokenizer
from scratchformer.training.run import load_run
from support import training
from support.lesson import ROOT

LONGEST, BATCH, NEW = 12, 16, 150


@cache
def tokenizer() -> Tokenizer:
    return load_run(ROOT / "data/tiny_model").tokenizer


@cache
def sentences(split: str) -> EncodedPairs:
    return encode_pairs(tokenizer().encode, read_text(split), max_length=LONGEST, tokens_per_batch=10_000)


@cache
def new_sentences() -> Batch:
    """150 sentences that are not trained on."""
    return sentences("val").batch(np.arange(NEW))


def new_model(seed: int, layers: int = 1, norm: Literal["post", "pre"] = "post", dtype: str = "float32") -> Transformer:
    """So many layers in the encoder and in the decoder, d_model 32, two heads, no dropout."""
    config = ModelConfig(vocab_size=tokenizer().vocab_size, N=layers, d_model=32, d_ff=64, h=2, P_drop=0.0, norm=norm)
    return Transformer(config, seed, dtype)


def random_batch(random: np.random.Generator) -> Batch:
    pairs = sentences("train")
    return pairs.batch(random.integers(0, len(pairs), BATCH))


def set_gradient(model: Transformer, batch: Batch) -> float:
    """Set the gradient to that of the batch's mean loss. -> the loss, in nats per piece"""
    return training.set_gradient(model, batch.inputs, batch.targets)


def mean_loss(model: Transformer, batch: Batch | None = None) -> float:
    """On new sentences, or on those of a batch; in nats per piece."""
    batch = batch or new_sentences()
    loss_sum, n = batch_loss(model, batch.inputs, batch.targets)
    return float(loss_sum) / n


def loss_of_the_frequencies() -> float:
    """Of guesses by the frequencies of the pieces in training, which ignore the sentence; on new sentences, in nats."""
    counts = np.bincount(sentences("train").target.ids, minlength=tokenizer().vocab_size) + 1.0
    wanted = new_sentences().targets
    return -float(np.log(counts / counts.sum())[wanted[wanted != PAD]].mean())
