"""The hidden layers of the feed-forward networks of a translator, while it reads sentences (lesson 11)."""

from __future__ import annotations

from functools import partial
from typing import Any

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
