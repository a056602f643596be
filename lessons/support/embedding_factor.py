"""A small model that guesses the next word, in which the factor of the embeddings can be taken apart (lesson 08).

The paper reads a word as sqrt(D) times its row of E, and scores words with E as it is. That factor does three things,
and here each of them has a number of its own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, PositionalEncoding, Unembedding
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.parameter import Array, Layer, Parameter, ParameterStore
from scratchformer.nn.transformer import EncoderLayer
from scratchformer.text.tokenizer import PAD
from support import next_word
from support.next_word import VOCABULARY, shifted

D, V = 64, len(VOCABULARY)
ROOT_D = math.sqrt(D)


class Factors(NamedTuple):
    """Factors of the rows as they were before training, their change in training, and the gradient of reading.

    Backward is the true one only where `gradient` equals `steps`.
    """

    start: float = ROOT_D
    steps: float = ROOT_D
    gradient: float = ROOT_D


PAPER, NO_FACTOR = Factors(), Factors(1, 1, 1)


class TiedNextWord(Layer):
    """One causal layer between reading and scoring with the same E.

        x = start E0[ids] + steps (E - E0)[ids] + positions,   logits = layer(x) E^T

    E0 is E before training, normal with standard deviation `size`. With `own_rows`, reading begins with random rows of
    its own, of the same size, in place of E0.

    forward(ids (B, T)) -> logits (B, T, V), cache
    """

    def __init__(self, seed: int, factors: Factors = PAPER, size: float = 1 / ROOT_D, own_rows: bool = False) -> None:
        random = np.random.default_rng(seed)
        config = ModelConfig(vocab_size=V, d_model=D, d_ff=D, h=2, P_drop=0.0)
        E = Parameter(random.normal(0, size, (V, D)))
        self.factors, self.embedding, self.unembedding = factors, Embedding(E), Unembedding(E)
        self.before = E.data.copy()
        begin = np.random.default_rng(seed + 1000).normal(0, size, (V, D)) if own_rows else self.before
        self.kept = factors.start * begin - factors.steps * self.before
        self.kept[PAD] = 0
        self.positions, self.layer = PositionalEncoding(), EncoderLayer(config, random, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        self.embedding.scale = self.factors.steps
        x, read = self.embedding.forward(ids)
        x, placed = self.positions.forward(x + self.kept[ids])
        y, between = self.layer.forward(x, Mask(causal=True))
        logits, written = self.unembedding.forward(y)
        return logits, (read, placed, between, written)

    def backward(self, dlogits: Array, cache: Any) -> None:
        read, placed, between, written = cache
        dx = self.layer.backward(self.unembedding.backward(dlogits, written), between)
        self.embedding.scale = self.factors.gradient
        self.embedding.backward(self.positions.backward(dx, placed), read)


def train(model: TiedNextWord, seed: int, steps: int = 100) -> list[float]:
    """16 sentences at a time. -> the loss of each step, in nats per word"""
    return next_word.train(model, shifted, seed, steps, batch=16, rate=0.003, warm_up=30)


def repeated(logits: Array, read: Array, write: Array) -> tuple[float, float]:
    """-> the mean probability of the word just read, and the loss if that word is struck from the softmax

    The few words that are followed by themselves do not count in the loss.
    """
    real = write != PAD
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    probability = np.take_along_axis(shares, read[..., None], axis=-1)[..., 0][real].mean()
    struck = logits.copy()
    np.put_along_axis(struck, read[..., None], -1e9, axis=-1)
    loss_sum, n_words, _ = cross_entropy(struck, np.where(read == write, PAD, write))
    return float(probability), loss_sum / n_words
