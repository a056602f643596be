"""Sublayers one after the other, with and without the parts of the box "Add & Norm" around each (lesson 12)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.parameter import Array, Layer
from support.constructions import Sentences, as_counts, labelled
from support.training import Chain

WAYS = ("bare", "norm only", "residual only", "post-LN", "pre-LN")
"""f(x),  LayerNorm(f(x)),  x + f(x),  LayerNorm(x + f(x)),  x + f(LayerNorm(x)) with one more LayerNorm at the end"""

LARGER, SMALLER = ", larger W_2", ", smaller W_2"
"""Behind the name of a way: W_2 starts sqrt(2) times as large, or sqrt(number of sublayers) times as small."""


class Block(Layer):
    """One sublayer with what a way puts around it. forward(x) -> y, cache; backward(dy, cache) -> dx"""

    def __init__(self, way: str, sublayer: Layer, d_model: int, dtype: str = "float32") -> None:
        self.around = way in ("residual only", "post-LN", "pre-LN")
        self.norm_last, self.norm_first = way in ("norm only", "post-LN"), way == "pre-LN"
        self.sublayer, self.norm = sublayer, LayerNorm(d_model, dtype)

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        read, norm_cache = self.norm.forward(x) if self.norm_first else (x, None)
        y, sublayer_cache = self.sublayer.forward(read)
        y = x + y if self.around else y
        y, norm_cache = self.norm.forward(y) if self.norm_last else (y, norm_cache)
        return y, (sublayer_cache, norm_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        sublayer_cache, norm_cache = cache
        dy = self.norm.backward(dy, norm_cache) if self.norm_last else dy
        dx = self.sublayer.backward(dy, sublayer_cache)
        dx = self.norm.backward(dx, norm_cache) if self.norm_first else dx
        return dx + dy if self.around else dx


def stack(way: str, sublayers: Sequence[Layer], d_model: int, dtype: str = "float32") -> list[Layer]:
    """Each sublayer in its box; pre-LN has one more norm after the last one."""
    boxes: list[Layer] = [Block(way, sublayer, d_model, dtype) for sublayer in sublayers]
    return boxes + [LayerNorm(d_model, dtype)] * (way == "pre-LN")


# A stack learns -------------------------------------------------------------------------------------------------------

D = 32


@lru_cache
def sentences() -> Sentences:
    """Of lesson 01: bags of words, and which construction each sentence is an example of."""
    return as_counts(labelled("val"), labelled("test"))


class Classifier(Chain):
    """Word counts (B, V) -> scores (B, 1 + classes): a linear map, feed-forward networks in boxes, a linear map.

    way  one of WAYS, with or without LARGER or SMALLER behind it

    The library counts class 0 as padding, so class i of the sentences is column 1 + i.
    """

    def __init__(self, way: str, depth: int, seed: int) -> None:
        init, data = np.random.default_rng(seed), sentences()
        first = Linear(data.x.shape[1], D, init)
        middle = stack(way.partition(",")[0], [FeedForward(D, D, init) for _ in range(depth)], D)
        super().__init__([first, *middle, Linear(D, 1 + len(data.classes), init)])
        for name, parameter in self.parameters().items():
            if name.endswith("outer.weight"):
                parameter.data *= math.sqrt(2) if way.endswith(LARGER) else 1
                parameter.data /= math.sqrt(depth) if way.endswith(SMALLER) else 1

    def share_right(self, x: Array, t: Array) -> float:
        """Of the sentences (n, V) with the classes t (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):  # after a training that ended early
            scores, _ = self.forward(x.astype(np.float32))
        return float((scores[:, 1:].argmax(axis=1) == t).mean())


def train(model: Classifier, rate: float, seed: int, steps: int, batch: int = 64) -> Iterator[tuple[int, float]]:
    """Plain gradient descent. -> after each step its number and its loss; ends early if that is no longer a number"""
    random, data = np.random.default_rng(seed), sentences()
    x, t = data.x.astype(np.float32), data.t
    for step in range(1, steps + 1):
        rows = random.integers(0, len(x), batch)
        with np.errstate(over="ignore", invalid="ignore"):  # too high a rate ends here
            scores, caches = model.forward(x[rows])
            loss, count, dscores = cross_entropy(scores, 1 + t[rows])
            if not np.isfinite(loss):
                return
            model.zero_grad()
            model.backward(dscores / count, caches)
            model.store.data -= rate * model.store.grad
        yield step, loss / count
