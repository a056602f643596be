"""A gate for each attention head: to close heads, and to measure how much a loss depends on them.

The gates are not part of a model. They stand in it while a block `with gated(...)` lasts. They are not in its store, so
`model.zero_grad` refuses the model meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence

from scratchformer.nn.attention import CrossAttention, Mask, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array, Layer, Parameter


class HeadGate(Layer):
    """Multiplies the output of each head by a number (Michel et al. 2019, "Are Sixteen Heads Really Better than One?").

        y_h = xi_h head_h

    xi (H,), given: 1 leaves a head as it is, 0 removes it.

    forward(heads (B, T, H, d_v)) -> y (B, T, H, d_v), cache
    backward(dy (B, T, H, d_v), cache) -> dheads (B, T, H, d_v)

    Keeps:    heads.
    Differs:  not in the paper. A head that is removed contributes 0 to the sum over heads that W_O computes.
    """

    def __init__(self, xi: Array) -> None:
        self.xi = Parameter(xi)

    def forward(self, heads: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return heads * self.xi.data[:, None], (heads,)

    def backward(self, dy: Array, cache: Any) -> Array:
        (heads,) = cache
        # y = xi heads
        self.xi.grad += (dy * heads).sum(axis=(0, 1, 3))
        return dy * self.xi.data[:, None]


class GatedAttention(Layer):
    """An attention with gates behind its heads, to stand in a SelfAttention or CrossAttention in the attention's place.

        y = gate(attention(q, k, v))

    Arguments and shapes as ScaledDotProductAttention.
    """

    def __init__(self, attention: Layer, gate: HeadGate) -> None:
        self.attention, self.gate = attention, gate

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        heads, attention_cache = self.attention.forward(q, k, v, mask, rng=rng)  # (B, T, H, d_v)
        y, gate_cache = self.gate.forward(heads)
        return y, (attention_cache, gate_cache)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array, Array]:
        attention_cache, gate_cache = cache
        # y = gate(heads)
        dheads = self.gate.backward(dy, gate_cache)
        # heads = attention(q, k, v)
        return self.attention.backward(dheads, attention_cache)


@contextmanager
def gated(layers: Sequence[SelfAttention | CrossAttention]) -> Iterator[list[HeadGate]]:
    """Put open gates (xi = 1) between attention and W_O for the duration of a block -> the gate of each layer"""
    before: list[Any] = [layer.attention for layer in layers]
    gates = [
        HeadGate(ops_of(layer.output.weight.data).xp.ones(layer.h, layer.output.weight.data.dtype)) for layer in layers
    ]
    try:
        for layer, attention, gate in zip(layers, before, gates):
            layer.attention = GatedAttention(attention, gate)  # type: ignore[assignment]
        yield gates
    finally:
        for layer, attention in zip(layers, before):
            layer.attention = attention
