"""A test of translation: write n random symbols in the opposite order (lesson 03).

An encoder reads them and a decoder writes them, both recurrent or not. Between them is the encoder's last state alone
(the bottleneck), or attention to all of its states.
Shapes: B batch, n length, d numbers in a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from support.recurrent import RNN
from support.training import learn

SYMBOLS = 8
"""They are numbered from 1; 0 stands before the first symbol of an answer."""

BATCH, LONGEST_GRADIENT = 32, 1.0
"""Sequences a step, and the length to which a longer gradient is cut."""


def pairs(random: np.random.Generator, count: int, n: int) -> tuple[Array, Array, Array]:
    """-> source: what is read, read: the symbol before each one of the answer, target: the answer; (count, n) int"""
    source = random.integers(1, 1 + SYMBOLS, (count, n))
    target = source[:, ::-1]
    return source, np.concatenate([np.zeros((count, 1), int), target[:, :-1]], axis=1), target


class EncoderDecoder(Layer):
    """An encoder, a decoder, and a linear map of what the decoder has at each position to the logits of the symbols.

    encoder, decoder  RNN, or Linear: each position on its own. A decoder that is an RNN begins with the encoder's last
                      state.
    look              how the decoder looks back: AdditiveAttention, PlainMean, or None: not at all
    positions         with "e" in it the encoder is given the positions, with "d" the decoder: a second 1 in each row

    forward(source (B, n), read (B, n) int) -> logits (B, n, 1 + SYMBOLS), cache;   the logit of 0 is never right
    backward(dlogits (B, n, 1 + SYMBOLS), cache) -> None: ids have no gradient
    """

    def __init__(
        self,
        n: int,
        seed: int,
        look: Any = None,
        encoder: type[RNN] | type[Linear] = RNN,
        decoder: type[RNN] | type[Linear] = RNN,
        positions: str = "",
        d: int = 32,
    ) -> None:
        init = np.random.default_rng(seed)
        self.n, self.positions = n, positions
        self.encoder = encoder(1 + SYMBOLS + n * ("e" in positions), d, init, "float64")
        self.decoder = decoder(1 + SYMBOLS + n * ("d" in positions), d, init, "float64")
        self.looks = [look(d, d, d // 2, init, "float64")] if look else []
        self.output = Linear(d * (1 + len(self.looks)), 1 + SYMBOLS, init, "float64")
        self.store = ParameterStore(self.parameters())

    def rows(self, ids: Array, with_position: bool) -> Array:
        """ids (B, n) -> (B, n, 9), a 1 for the symbol; or (B, n, 9 + n), a second 1 for the position"""
        positions = np.broadcast_to(np.eye(self.n), (*ids.shape, self.n))
        return np.concatenate([np.eye(1 + SYMBOLS)[ids], positions[..., : self.n * with_position]], axis=2)

    def states(self, source: Array, read: Array) -> tuple[tuple[Array, Any], tuple[Array, Any]]:
        """-> the encoder's states h (B, n, d) and the decoder's s (B, n, d), each with its cache"""
        h, encoder_cache = self.encoder.forward(self.rows(source, "e" in self.positions))
        first = [h[:, -1]] if isinstance(self.decoder, RNN) else []
        return (h, encoder_cache), self.decoder.forward(self.rows(read, "d" in self.positions), *first)

    def forward(self, source: Array, read: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        (h, encoder_cache), (s, decoder_cache) = self.states(source, read)
        seen = [look.forward(s, h) for look in self.looks]  # each (B, n, d), cache
        logits, output_cache = self.output.forward(np.concatenate([s, *(c for c, _ in seen)], axis=2))
        return logits, (h.shape, encoder_cache, decoder_cache, [cache for _, cache in seen], output_cache)

    def backward(self, dlogits: Array, cache: Any) -> None:
        shape, encoder_cache, decoder_cache, look_caches, output_cache = cache
        ds, *dcontexts = np.split(self.output.backward(dlogits, output_cache), 1 + len(self.looks), axis=2)
        dh = np.zeros(shape)
        for look, dc, look_cache in zip(self.looks, dcontexts, look_caches):
            ds_of_look, dh_of_look = look.backward(dc, look_cache)
            ds, dh = ds + ds_of_look, dh + dh_of_look
        gradients = self.decoder.backward(ds, decoder_cache)
        if isinstance(self.decoder, RNN):
            # the decoder's first state is h_n
            dh[:, -1] += gradients[1]
        self.encoder.backward(dh, encoder_cache)

    def weights(self, source: Array, read: Array) -> Array:
        """Share of each state of the encoder in each context: (B, n, n), positions written x states"""
        return self.forward(source, read)[1][3][0].weights


class PlainMean(Layer):
    """Attention that cannot choose: every context is the mean of all states. Its sizes are of no use to it.

    forward(s (B, T, d_s), h (B, S, d_h)) -> c (B, T, d_h), cache
    backward(dc (B, T, d_h), cache) -> ds (B, T, d_s), dh (B, S, d_h)
    """

    def __init__(self, *sizes: Any) -> None:
        pass

    def forward(self, s: Array, h: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return np.repeat(h.mean(axis=1, keepdims=True), s.shape[1], axis=1), (s.shape, h.shape)

    def backward(self, dc: Array, cache: Any) -> tuple[Array, Array]:
        s_shape, h_shape = cache
        return np.zeros(s_shape), np.repeat(dc.sum(axis=1, keepdims=True) / h_shape[1], h_shape[1], axis=1)


def train(model: EncoderDecoder, rate: float = 0.01, steps: int = 300) -> EncoderDecoder:
    """Adam at one learning rate, every step with new sequences. -> the model"""
    random = np.random.default_rng(100)
    drawn = (pairs(random, BATCH, model.n) for _ in range(steps))
    batches = (((source, read), target) for source, read, target in drawn)
    learn(model, batches, lambda step: rate, LONGEST_GRADIENT)
    return model


def right(model: EncoderDecoder, count: int = 300) -> Array:
    """Mark the symbols of new sequences, always the same ones, that it writes right: bool (count, n)

    At each position it has read the right symbols before it (teacher forcing).
    """
    source, read, target = pairs(np.random.default_rng(12345), count, model.n)
    return model.forward(source, read)[0].argmax(axis=-1) == target
