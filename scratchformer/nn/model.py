"""The interface of all models, for training, validation and checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Unembedding
from scratchformer.nn.parameter import Array, Layer, ParameterStore


class Model(Layer, ABC):
    """A model with its flat parameters: from its inputs to states, and from the states to logits.

        states = ...(inputs),   logits = unembedding(states)

    forward(*inputs, rng) -> logits (B, T, V), cache
    backward(dlogits (B, T, V), cache) -> None: ids have no gradient; adds into Parameter.grad

    A classifier has one state for each sequence: T = 1.

    config       the sizes
    unembedding  the last layer; training computes it for the positions alone that have a target
    store        all parameters and all gradients as two flat arrays

    states           forward without the last step: inputs -> states (B, T, D), cache
    states_backward  yields each of `layers` when its gradients are complete, the last one first
    Raises ValueError if dtype is not one of floating-point numbers.
    """

    unembedding: Unembedding
    store: ParameterStore
    states: Callable[..., tuple[Array, Any]]
    states_backward: Callable[[Array, Any], Iterator[Layer]]

    def __init__(self, config: ModelConfig, dtype: str) -> None:
        if np.dtype(dtype).kind != "f":
            raise ValueError(f"parameters are floating-point numbers, not {dtype}")
        self.config = config

    @abstractmethod
    def layers(self) -> list[Layer]:
        """The layers of all stacks, in the order of forward. What stands before the first is complete at the end."""

    def forward(self, *inputs: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        states, states_cache = self.states(*inputs, rng=rng)  # (B, T, D)
        logits, logits_cache = self.unembedding.forward(states)  # (B, T, V)
        return logits, (states_cache, logits_cache)

    def backward(self, dlogits: Array, cache: Any) -> None:
        states_cache, logits_cache = cache
        dstates = self.unembedding.backward(dlogits, logits_cache)  # (B, T, D)
        for _ in self.states_backward(dstates, states_cache):
            pass

    def zero_grad(self) -> None:
        """Set all gradients to 0, in place. Raises ValueError if layers were changed and the store was not rebuilt."""
        self.store.require(self.parameters())
        self.store.grad[...] = 0

    def rebuild_store(self) -> None:
        """After a change of layers: put the parameters, as they are now, into a new store. Adam must be made anew."""
        self.store = ParameterStore(self.parameters())

    def layer_offsets(self) -> list[int]:
        """The index of each layer's first parameter in the flat arrays, ascending. The embeddings come first."""
        return [self.store.offset_of(layer) for layer in self.layers()]


def check_ids(name: str, ids: Array, vocab_size: int) -> None:
    """Raises ValueError unless these are ids (B, T). A lookup would accept -1, and on a GPU any number."""
    if getattr(ids, "size", None) == 0:
        raise ValueError(f"{name} is empty: its shape is {ids.shape}")
    kind = f"{ids.ndim}-D of {ids.dtype}" if hasattr(ids, "ndim") else f"a {type(ids).__name__}"
    if not kind.startswith("2-D") or ids.dtype.kind not in "iu":
        raise ValueError(f"{name} must be a 2-D array of integers, not {kind}")
    if not (0 <= ids.min() and ids.max() < vocab_size):
        raise ValueError(f"{name} holds ids from {ids.min()} to {ids.max()}; the vocabulary is 0 to {vocab_size - 1}")
