"""The model of Figure 1 with one wire cut, and how to tell from outside which one it is.

A wire is what leads from part to part. With one of them cut every shape fits and every gradient is right, so neither an
error nor a gradient check tells of it.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import NoPositions
from scratchformer.nn.ops import PAD, ops_of
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS
from support.reversal import SYMBOLS, pairs
from support.training import set_gradient

ROUNDING = 1e-9
"""Logits that differ by no more than this are the same; a longer sum may add up in another order."""

# What stands where a wire was -----------------------------------------------------------------------------------------


class NoUpdate(Layer):
    """Stands for a sublayer, and adds nothing.

    forward(x (..., D), *others) -> zeros (..., D), cache;   others that are not arrays are passed over
    backward(dy (..., D), cache) -> zeros for x, and for every other array
    """

    def forward(self, x: Array, *others: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        arrays = [x, *(other for other in others if hasattr(other, "shape"))]
        return ops_of(x).xp.zeros_like(x), [array.shape for array in arrays]

    def backward(self, dy: Array, cache: Any) -> Any:
        gradients = tuple(ops_of(dy).xp.zeros(shape, dy.dtype) for shape in cache)
        return gradients if len(gradients) > 1 else gradients[0]


class OtherMasks(Layer):
    """A stack that gets other masks than it is given. forward and backward are the stack's."""

    def __init__(self, stack: Any, changes: dict[str, Any]) -> None:
        self.stack = stack
        self.changes = changes

    def __getattr__(self, name: str) -> Any:
        if name not in ("backward", "backward_by_layer"):
            raise AttributeError(name)
        return getattr(self.stack, name)

    def forward(self, *inputs: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        changed = [value._replace(**self.changes) if isinstance(value, Mask) else value for value in inputs]
        return self.stack.forward(*changed, rng=rng)


# Cutting --------------------------------------------------------------------------------------------------------------


class Wire(NamedTuple):
    """A wire: the words for what is lost without it, and a function that cuts it."""

    words: str
    cut: Callable[[Transformer], None]


def no_update(stack: str, sublayer: str) -> Callable[[Transformer], None]:
    def cut(model: Transformer) -> None:
        for layer in getattr(model, stack).layers:
            getattr(layer, sublayer).sublayer = NoUpdate()

    return cut


def no_positions(side: str) -> Callable[[Transformer], None]:
    return lambda model: setattr(model, f"{side}_positions", NoPositions())


def other_masks(changes: dict[str, Any], *stacks: str) -> Callable[[Transformer], None]:
    def cut(model: Transformer) -> None:
        for stack in stacks:
            setattr(model, stack, OtherMasks(getattr(model, stack), changes))

    return cut


WIRES: dict[str, Wire] = {
    "memory": Wire("the decoder does not read the memory", no_update("decoder", "cross_attention")),
    "encoder attention": Wire("each source word is read by itself", no_update("encoder", "self_attention")),
    "decoder attention": Wire(
        "the decoder does not read what it has written, but for the last word", no_update("decoder", "self_attention")
    ),
    "source positions": Wire("the encoder does not know the order", no_positions("source")),
    "target positions": Wire("the decoder is not told the order", no_positions("target")),
    "causal mask": Wire("the decoder reads ahead", other_masks({"causal": False}, "decoder")),
    "padding mask": Wire("padding of the source is read", other_masks({"key_lengths": None}, "encoder", "decoder")),
}
"""The paper's model has them all."""


def cut(model: Transformer, wire: str) -> Transformer:
    """Cut a wire of the model, in place; its parameters are then those that are left. -> the model"""
    WIRES[wire].cut(model)
    model.store = ParameterStore(model.parameters())
    return model


# Training with a wire cut ---------------------------------------------------------------------------------------------

V = BOS + 1 + SYMBOLS
"""The symbols of lesson 03, which are read and written backwards, after the special tokens."""


def reversals(random: np.random.Generator, B: int) -> list[Array]:
    """-> ids (B, 5): the source, what the decoder reads, what it should write"""
    return [BOS + ids for ids in pairs(random, B, 5)]


def train(wire: str | None, seed: int = 0, steps: int = 200) -> tuple[Transformer, list[float]]:
    """Cut a wire (None: no wire), then train on reversals with Adam. -> the model, the loss of each step in nats"""
    random, config = np.random.default_rng(seed), ModelConfig(V, N=2, d_model=32, d_ff=64, h=4, P_drop=0.0)
    model = Transformer(config, seed)
    model = cut(model, wire) if wire else model
    optimizer, losses = Adam(model), []
    for step in range(1, steps + 1):
        *inputs, targets = reversals(random, 24)
        losses.append(set_gradient(model, tuple(inputs), targets))
        optimizer.step(0.005 * min(1, step / 50, (steps + 1 - step) / 100))
    return model, losses


# Finding --------------------------------------------------------------------------------------------------------------

SOURCE, TARGET = np.array([[3, 4, 5, 6]]), np.array([[2, 7, 8, 9]])
"""A sentence pair to try things on, (1, S) and (1, T); ids below 11, none of them twice."""


def which_wire(logits: Callable[[Array, Array], Array]) -> str:
    """Tell from outputs alone which wire of a model is cut. -> a name of WIRES, or "none"

    logits  source_ids (B, S), target_in_ids (B, T) -> (B, T, V), for ids from 0 (padding) to 10

    Each wire lets something through, so each has an experiment with an outcome of its own. "encoder attention" has
    none here: the decoder's attention can combine source words, too, so from outside the model looks whole.
    """
    before = logits(SOURCE, TARGET)

    def moved(source: Array = SOURCE, target: Array = TARGET) -> Array:
        """Mark the positions of the logits that change: bool (T,)"""
        return (np.abs(logits(source, target) - before) > ROUNDING).any(axis=(0, 2))

    if not moved(source=with_id(SOURCE, 1, 10)).any():
        return "memory"
    if moved(target=with_id(TARGET, -1, 10))[:-1].any():
        return "causal mask"
    if not moved(target=with_id(TARGET, 1, 10))[-1]:
        return "decoder attention"
    if not moved(source=SOURCE[:, [1, 0, 2, 3]]).any():
        return "source positions"
    if moved(source=np.pad(SOURCE, [(0, 0), (0, 2)], constant_values=PAD)).any():
        return "padding mask"
    repeated = logits(SOURCE, np.full_like(TARGET, 7))
    if (np.abs(repeated - repeated[:, :1]) <= ROUNDING).all():
        return "target positions"
    return "none"


def with_id(ids: Array, position: int, other: int) -> Array:
    """A copy (B, T) with another id at one position."""
    changed = ids.copy()
    changed[:, position] = other
    return changed
