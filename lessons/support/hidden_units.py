"""The hidden layers of the feed-forward networks of a translator, while it reads sentences (lesson 11)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.experiments.heads import teacher_forced
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import Example
from scratchformer.text.tokenizer import PAD, Tokenizer


def networks_of(model: Transformer) -> list[FeedForward]:
    """The feed-forward network of each layer, those of the encoder first."""
    return [layer.feed_forward.sublayer for layer in model.encoder.layers + model.decoder.layers]


def hidden_units(model: Transformer, tokenizer: Tokenizer, examples: list[Example]) -> list[tuple[Array, Array]]:
    """The model reads the English sentences and the German references.

    -> for each network, what it reads (n, D) and its hidden layer after ReLU (n, F), for the n tokens of all sentences
    """
    source_ids, read_ids, written_ids = teacher_forced(tokenizer, examples)
    seen: list[tuple[Array, Array]] = []

    def forward(network: FeedForward, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        y, cache = FeedForward.forward(network, x, rng)
        seen.append((x, cache[1]))
        return y, cache

    networks: list[Any] = networks_of(model)
    for network in networks:
        network.forward = partial(forward, network)
    model.forward(source_ids, read_ids)
    for network in networks:
        del network.forward
    real = [source_ids != PAD] * len(model.encoder.layers) + [written_ids != PAD] * len(model.decoder.layers)
    return [(x[mask], hidden[mask]) for (x, hidden), mask in zip(seen, real)]


class Units:
    """The hidden units of one feed-forward network of the decoder, while the translator reads sentences.

    layer  of the network, the encoder's layers first
    Words are pieces of the tokenizer, such as "▁der"; a word counts where the decoder reads it.
    """

    def __init__(self, translator: Translator, examples: list[Example], layer: int) -> None:
        self.model, tokenizer = translator.model, translator.tokenizer
        self.pieces = np.array(tokenizer.pieces(range(tokenizer.vocab_size)))
        self.source, self.read, written = teacher_forced(tokenizer, examples)
        self.real = written != PAD
        self.words = self.pieces[self.read[self.real]]
        self.on = hidden_units(self.model, tokenizer, examples)[layer][1] > 0
        self.rows = networks_of(self.model)[layer].outer.weight.data

    def share_on(self, unit: int, words: Sequence[str] | None = None) -> float:
        """-> how often the unit is on at these words, or at all words"""
        at = self.on[:, unit] if words is None else self.on[np.isin(self.words, words), unit]
        return float(at.mean())

    def most_often_on(self, words: Sequence[str], n: int) -> list[int]:
        """-> the n units that are most often on at these words"""
        return np.argsort(-self.on[np.isin(self.words, words)].mean(axis=0), kind="stable")[:n].tolist()

    def favoured(self, unit: int, n: int) -> list[str]:
        """-> the n words whose scores the unit's row raises most"""
        scores = self.model.source_embedding.weight.data @ self.rows[unit]
        return self.pieces[np.argsort(-scores)[:n]].tolist()

    def probability(self, of: Sequence[str], after: Sequence[str], off: int | None = None) -> float:
        """-> the mean probability of some next words after others, with one unit switched off"""
        kept = self.rows.copy()
        if off is not None:
            self.rows[off] = 0
        logits = self.model.forward(self.source, self.read)[0][self.real][np.isin(self.words, after)].astype("float64")
        self.rows[...] = kept
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return float(p[:, np.isin(self.pieces, of)].sum(axis=-1).mean())
