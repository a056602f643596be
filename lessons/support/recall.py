"""A test of memory: read n random symbols, and say at the end which was the first (lesson 02).

What grows with n is the distance, and the number of other symbols on the way. The first symbol is marked, so that a
network that looks at all positions at once can know which it is; all networks get the mark.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from scratchformer.nn.attention import SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from support.recurrent import LSTM, RNN
from support.training import Chain, learn

SYMBOLS = 8
"""They are numbered from 1; 0 is the mark of the first position."""

BATCH, LONGEST_GRADIENT = 32, 1.0
"""Sequences a step, and the length to which a longer gradient is cut."""


def sequences(random: np.random.Generator, count: int, n: int) -> tuple[Array, Array]:
    """-> x (count, n, 1 + SYMBOLS) with a 1 for each symbol and for the mark; which symbol is the first (count,) int"""
    ids = random.integers(1, 1 + SYMBOLS, (count, n))
    x = np.eye(1 + SYMBOLS)[ids]
    x[:, 0, 0] = 1
    return x, ids[:, 0]


class AttentionReader(Chain):
    """One linear map of each position on its own, then one attention with one head, in place of a recurrent layer.

    forward(x (B, T, d_in)) -> y (B, T, d_model), cache
    backward(dy (B, T, d_model), cache) -> dx (B, T, d_in)
    """

    def __init__(self, d_in: int, d_model: int, init: np.random.Generator, dtype: str = "float32") -> None:
        super().__init__([Linear(d_in, d_model, init, dtype), SelfAttention(d_model, 1, init, dtype)])


class FirstSymbol(Layer):
    """A reader, and a linear map of what it has at the last position to the logits of the symbols.

    kind  RNN, LSTM or AttentionReader, of `size` numbers at each position

    forward(x (B, n, 1 + SYMBOLS)) -> logits (B, 1, 1 + SYMBOLS), cache;   the logit of the mark is never right
    backward(dlogits (B, 1, 1 + SYMBOLS), cache) -> dx (B, n, 1 + SYMBOLS)
    """

    def __init__(self, kind: type[RNN] | type[LSTM] | type[AttentionReader], size: int, seed: int) -> None:
        init = np.random.default_rng(seed)
        self.reader = kind(1 + SYMBOLS, size, init, "float64")
        self.output = Linear(size, 1 + SYMBOLS, init, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        h, reader_cache = self.reader.forward(x)  # (B, n, size)
        logits, output_cache = self.output.forward(h[:, -1:])
        return logits, (h.shape, reader_cache, output_cache)

    def backward(self, dlogits: Array, cache: Any) -> Array:
        shape, reader_cache, output_cache = cache
        dh = np.zeros(shape)
        # logits = h_n W + b
        dh[:, -1:] = self.output.backward(dlogits, output_cache)
        gradients = self.reader.backward(dh, reader_cache)
        return gradients[0] if isinstance(gradients, tuple) else gradients


def train(
    model: FirstSymbol,
    n: int,
    rate: float,
    seed: int,
    steps: int = 200,
    enough: Callable[[int], bool] = lambda step: False,
) -> list[float]:
    """Adam at one learning rate, every step with new sequences of length n. -> the loss of each step, in nats

    It ends before `steps` if enough(how many steps were done) is true.
    """
    random = np.random.default_rng(seed)
    drawn = (sequences(random, BATCH, n) for _ in range(steps))
    batches = (((x,), first[:, None]) for x, first in drawn)
    return learn(model, batches, lambda step: rate, LONGEST_GRADIENT, enough)


def accuracy(model: FirstSymbol, n: int, count: int = 400) -> float:
    """The share of new sequences, always the same ones, of which the model names the first symbol."""
    x, first = sequences(np.random.default_rng(12345), count, n)
    return float((model.forward(x)[0][:, 0].argmax(axis=-1) == first).mean())


READERS: dict[str, tuple[type[RNN] | type[LSTM] | type[AttentionReader], int]] = {
    "RNN": (RNN, 64),
    "RNN, W_h x 1.2": (RNN, 64),
    "LSTM, forget bias 1": (LSTM, 31),
    "LSTM, forget bias 5": (LSTM, 31),
    "attention": (AttentionReader, 34),
}
"""Kind and size: about as many parameters each. They are compared in benchmarks/first_symbol.py."""


def model_of(reader: str, seed: int) -> FirstSymbol:
    """One of READERS, as it is before training."""
    kind, size = READERS[reader]
    model = FirstSymbol(kind, size, seed)
    parameters = model.parameters()
    if reader == "RNN, W_h x 1.2":
        parameters["reader.recurrent.weight"].data *= 1.2
    if reader == "LSTM, forget bias 5":
        parameters["reader.input.bias"].data[size : 2 * size] = 5
    return model
