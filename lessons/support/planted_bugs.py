"""A Transformer that reverses words, and eight bugs to plant in it (lesson 16).

A word is 2 to 5 random letters out of 8. With `<pad>`, `</s>` and `<s>` that makes V = 11 symbols. Fresh words never
end, so nothing can be memorised. A bug replaces one or two functions of the library as long as it is planted. Each is a
mistake that public implementations or many beginners have made; docs/correctness.md says where each was found.
Shapes: B batch, S source, T target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn import transformer
from scratchformer.nn.attention import Mask
from scratchformer.nn.layers import Embedding, Linear
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.ops import Ops
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Array, Parameter
from scratchformer.nn.transformer import Decoder, Transformer
from scratchformer.text.tokenizer import BOS, EOS, PAD
from support.training import padded

V = 11
"""Symbols: `<pad>`, `</s>`, `<s>` and eight letters."""

PEAK_FACTOR = 0.35
"""The paper's schedule times this."""

# The task -------------------------------------------------------------------------------------------------------------


def words(random: np.random.Generator, n: int) -> list[Array]:
    return [random.integers(3, V, random.integers(2, 6)) for _ in range(n)]


class Batch:
    """Ids that the encoder reads (B, S), that the decoder reads and that it should write (B, T)."""

    def __init__(self, some_words: list[Array]) -> None:
        self.source = padded([[*word, EOS] for word in some_words])
        self.write = padded([[*word[::-1], EOS] for word in some_words])
        self.read = self.shifted(self.write)

    @staticmethod
    def shifted(write: Array) -> Array:
        """One position to the right, <s> in front; </s> is never read (lesson 06)."""
        before = np.where(write[:, 1:] != PAD, write[:, :-1], PAD)
        return np.concatenate([np.full_like(write[:, :1], BOS), before], axis=1)


def fresh(seed: int) -> Iterator[Batch]:
    """Batches of 32 new words, without end."""
    random = np.random.default_rng(seed)
    while True:
        yield Batch(words(random, 32))


# Model and training ---------------------------------------------------------------------------------------------------


def new_model(seed: int, tied: Literal["all", "none"] = "all") -> Transformer:
    return Transformer(ModelConfig(vocab_size=V, N=1, d_model=32, d_ff=64, h=2, P_drop=0.0, tied=tied), seed, "float64")


def train(
    model: Transformer, batches: Iterable[Batch], steps: int, until: float = 0.0, factor: float = PEAK_FACTOR
) -> list[float]:
    """-> the loss of each step, in nats per symbol, up to the first one below `until`"""
    optimizer, losses = Adam(model), []
    for step, batch in enumerate(islice(batches, steps), 1):
        model.zero_grad()
        loss_sum, n = batch_loss_backward(model, (batch.source, batch.read), batch.write)
        model.store.grad /= n
        model.store.hold(model.store.data, model.store.grad)  # or Adam would refuse a gradient that is cut loose
        optimizer.step(noam(step, d_model=32, warmup=50, factor=factor))
        losses.append(loss_sum / n)
        if losses[-1] < until:
            break
    return losses


# What a model guesses and writes --------------------------------------------------------------------------------------


def guessed(model: Transformer, batch: Batch) -> Array:
    """The likeliest symbols, each after the right symbols before it (teacher forcing) -> ids (B, T)"""
    return model.forward(batch.source, batch.read)[0].argmax(axis=-1)


def accuracy(model: Transformer, batch: Batch) -> float:
    """The share of symbols guessed right."""
    return (guessed(model, batch) == batch.write)[batch.write != PAD].mean()


def written(model: Transformer, batch: Batch) -> Array:
    """The model's own writing, each symbol after its own symbols before it -> ids (B, T)"""
    source, ids = batch.source, np.full((len(batch.source), 1), BOS)
    for _ in range(batch.write.shape[1]):
        likeliest = model.forward(source, ids)[0][:, -1].argmax(axis=-1)
        ids = np.concatenate([ids, likeliest[:, None]], axis=1)
    return ids[:, 1:]


def words_right(ids: Array, batch: Batch) -> float:
    """The share of whole words that are right, </s> included."""
    return 1 - ((ids != batch.write) & (batch.write != PAD)).any(axis=1).mean()


# The bugs -------------------------------------------------------------------------------------------------------------

soft, soft_back = Ops.masked_softmax, Ops.masked_softmax_backward
decode, linear_back = Decoder.forward, Linear.backward


def overwriting(self: Ops, dx: Array, ids: Array, scale: float, dE: Array) -> None:
    """Of an id that is read twice, only one gradient arrives."""
    real = ids != PAD
    dE[ids[real]] += dx[real] * scale


def cut_loose(self: Linear, dy: Array, cache: Any) -> Any:
    """The gradient goes into a new array, and the optimizer reads the old one."""
    for parameter in filter(None, (self.weight, self.bias)):
        parameter.grad = parameter.grad.copy()
    return linear_back(self, dy, cache)


def by_d_model(scores: Array, factor: float) -> float:
    """1 / sqrt(h d_k) in place of 1 / sqrt(d_k)."""
    return factor / math.sqrt(scores.shape[1])


def seeing_padding(self: Decoder, x: Array, memory: Array, mask: Mask = Mask(causal=True), *rest: Any, rng: Any = None):
    return decode(self, x, memory, mask, rng=rng)


def wide_embedding(V: int, D: int, init: np.random.Generator, dtype: Any) -> Parameter:
    return Parameter(init.normal(0, 1, (V, D)).astype(dtype))


BUGS: dict[str, list[tuple[Any, str, Any]]] = {
    "target not shifted": [(Batch, "shifted", staticmethod(lambda write: write))],
    "no causal mask": [(transformer, "Mask", lambda key_lengths=None, causal=False: Mask(key_lengths))],
    "padding seen": [(Decoder, "forward", seeing_padding)],
    "repeats overwrite": [(Ops, "embedding_backward", overwriting)],
    "softmax / batch": [
        (Ops, "masked_softmax_backward", lambda self, dw, w, factor: soft_back(self, dw, w, factor / len(w)))
    ],
    "gradient cut loose": [(Linear, "backward", cut_loose)],
    "embedding too large": [(Embedding, "new_weight", staticmethod(wide_embedding))],
    "scaled by d_model": [
        (
            Ops,
            "masked_softmax",
            lambda self, scores, factor, *mask: soft(self, scores, by_d_model(scores, factor), *mask),
        ),
        (Ops, "masked_softmax_backward", lambda self, dw, w, factor: soft_back(self, dw, w, by_d_model(w, factor))),
    ],
}
"""Name -> owner, function, and what takes its place."""


@contextmanager
def planted(bug: str | None = None, parts: slice = slice(None)) -> Iterator[None]:
    """The bug, or some `parts` of it, as long as the block runs."""
    with ExitStack() as patches:
        for owner, function, instead in BUGS.get(bug or "", [])[parts]:
            patches.enter_context(patch.object(owner, function, instead))
        yield
