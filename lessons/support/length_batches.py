"""Training of lab notes 18 on batches of the bundled text: the pairs, a small model, and its losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.loss import batch_loss
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, EncodedPairs, encode_pairs
from scratchformer.text.corpora import read_pairs
from scratchformer.text.tokenizer import Tokenizer
from support.lesson import ROOT
from support.training import set_gradient

TOKENIZER = Tokenizer.load(ROOT / "data" / "tiny_model" / "tokenizer.model")

Gradient = Callable[[Transformer, Batch], None]


def bundled(split: str) -> EncodedPairs:
    """The pairs of "train", "val", ... in the pieces of the bundled model."""
    paths = (ROOT / "data" / "tiny" / f"{split}.{language}" for language in ("en", "de"))
    return encode_pairs(TOKENIZER.encode, read_pairs(*paths), max_length=256, tokens_per_batch=512)


def small_model(seed: int, dtype: str = "float32") -> Transformer:
    """One layer of width 24, without dropout."""
    config = ModelConfig(TOKENIZER.vocab_size, N=1, d_model=24, d_ff=48, h=2, P_drop=0.0)
    return Transformer(config, seed, dtype)


def mean_gradient(model: Transformer, batch: Batch) -> None:
    """Set the gradient to that of the mean loss of a target token."""
    set_gradient(model, batch.inputs, batch.targets)


def trained(
    seed: int, pairs: EncodedPairs, batches: Iterable[np.ndarray], gradient: Gradient = mean_gradient
) -> Transformer:
    """A small model after one pass over these batches, one a step; the rate rises over 20 steps to 0.01."""
    model = small_model(seed)
    optimizer = Adam(model)
    for number, indices in enumerate(batches, start=1):
        model.zero_grad()
        gradient(model, pairs.batch(indices))
        optimizer.step(0.01 * min(1, number / 20))
    return model


def loss_by_thirds(model: Transformer, pairs: EncodedPairs) -> np.ndarray:
    """Nats per target token of the shortest, the middle and the longest third of the pairs: (3,)"""
    thirds = np.array_split(pairs.by_length(np.arange(len(pairs))), 3)
    sums, counts = zip(*(batch_loss(model, batch.inputs, batch.targets) for batch in map(pairs.batch, thirds)))
    return np.array([float(each) / count for each, count in zip(sums, counts)])
