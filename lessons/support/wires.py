"""The model of Figure 1 with one connection cut, for benchmarks/wires.py: every shape fits, every gradient is right."""

from __future__ import annotations

from typing import Any, Callable

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import NoPositions
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.nn.transformer import Transformer

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


# Cutting --------------------------------------------------------------------------------------------------------------


def no_update(stack: str, sublayer: str) -> Callable[[Transformer], None]:
    def cut(model: Transformer) -> None:
        for layer in getattr(model, stack).layers:
            getattr(layer, sublayer).sublayer = NoUpdate()

    return cut


def no_positions(side: str) -> Callable[[Transformer], None]:
    return lambda model: setattr(model, f"{side}_positions", NoPositions())


WIRES: dict[str, Callable[[Transformer], None]] = {
    "memory": no_update("decoder", "cross_attention"),
    "encoder attention": no_update("encoder", "self_attention"),
    "decoder attention": no_update("decoder", "self_attention"),
    "source positions": no_positions("source"),
    "target positions": no_positions("target"),
}
"""The paper's model has them all."""


def cut(model: Transformer, wire: str) -> Transformer:
    """Cut a wire of the model, in place; its parameters are then those that are left. -> the model"""
    WIRES[wire](model)
    model.store = ParameterStore(model.parameters())
    return model
