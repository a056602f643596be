"""Batches of ids, layers in a row, and the loop that trains a small model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from scratchformer.nn.attention import Mask, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.nn.model import Model
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.nn.transformer import EncoderLayer
from scratchformer.text.tokenizer import PAD


def padded(rows: Sequence[Sequence[int]]) -> Array:
    """Lists of ids -> (B, T), the shorter rows filled up with padding at the end"""
    longest = max(map(len, rows))
    return np.array([[*row, *[PAD] * (longest - len(row))] for row in rows])


class Chain(Layer):
    """Layers one after the other; those with attention get the mask. Ids have no gradient: backward returns None then.

    forward(x) -> y, cache
    backward(dy, cache) -> dx
    """

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.store = ParameterStore(self.parameters())

    def mask(self, x: Array) -> Mask:
        return Mask()

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        mask, caches = self.mask(x), []
        for layer in self.layers:
            has_mask = isinstance(layer, (SelfAttention, EncoderLayer))
            x, cache = layer.forward(x, mask) if has_mask else layer.forward(x)
            caches.append(cache)
        return x, caches

    def backward(self, dy: Array, caches: Any) -> Any:
        for layer, cache in zip(reversed(self.layers), reversed(caches)):
            dy = layer.backward(dy, cache)
        return dy


def learn(
    model: Any,
    batches: Iterable[tuple[tuple[Array, ...], Array]],
    rate: Callable[[int], float],
    longest_gradient: float | None = None,
    is_enough: Callable[[int], bool] = lambda step: False,
    optimizer: Callable[[Any], Any] = Adam,
) -> list[float]:
    """One step of the optimizer for each batch -> the loss of each step, in nats per answer

    batches           what the model reads, and the answers that it should give; 0 where it is not asked
    rate              the learning rate of a step, from 1
    longest_gradient  a longer gradient is cut to this length
    is_enough         called after each step with its number; True ends the training
    """
    moves, losses = optimizer(model), []
    for step, (inputs, answers) in enumerate(batches, start=1):
        scores, cache = model.forward(*inputs)
        loss_sum, count, dscores = cross_entropy(scores, answers)
        model.zero_grad()
        model.backward(dscores / count, cache)
        if longest_gradient:
            grad = model.store.grad
            clip_by_global_norm_inplace(grad, np.sqrt(grad @ grad), longest_gradient)
        moves.step(rate(step))
        losses.append(float(loss_sum) / count)
        if is_enough(step):
            break
    return losses


def set_gradient(model: Model, inputs: tuple[Array, ...], answers: Array) -> float:
    """Set the gradient to that of the mean loss of an answer. -> this loss, in nats"""
    model.zero_grad()
    loss_sum, count = batch_loss_backward(model, inputs, answers)
    model.store.grad /= count
    return float(loss_sum) / count
