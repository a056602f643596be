"""Count the parameters of a model from the shapes of its layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.limits import machine_memory_bytes
from scratchformer.nn.models import new_model

FLOAT_BYTES = 4
"""Training is in float32."""


class Shape(np.ndarray):
    """An array of any size that takes no memory: every element is the same zero."""

    @staticmethod
    def of(shape: int | tuple[int, ...]) -> Shape:
        return np.broadcast_to(np.float32(0), shape).view(Shape)

    def astype(self, *_: Any) -> Shape:
        return self

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy calls this for functions of such arrays: those with which a model makes its flat arrays."""
        if function is np.concatenate:
            return Shape.of(sum(each.size for each in args[0]))
        return Shape.of(args[0])  # np.zeros(shape, dtype, like=self)


class Shapes(np.random.Generator):
    """Stands for the generator of initial weights. A model made with it has all its layers, and no numbers."""

    def normal(self, mean: Any, deviation: Any, size: Any) -> Any:  # type: ignore[override]
        """Return zeros of this size."""
        return Shape.of(size)

    uniform = normal  # type: ignore[assignment]


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, read from the layers of a new model that takes no memory."""
    model = new_model(config, cast(int, Shapes(np.random.PCG64())))
    return {name: parameter.shape for name, parameter in model.parameters().items()}


def parameter_counts(config: ModelConfig) -> dict[str, int]:
    """Part of the model -> number of parameters (paper §3, Table 3).

    All layers of a stack are alike: the second one is counted N - 1 times, since one that is too large takes long.
    """
    counts = dict.fromkeys(("embeddings", "positions", "attention", "feed-forward", "layer norms"), 0)
    for name, shape in parameter_shapes(replace(config, N=min(config.N, 2))).items():
        part = next((part for mark, part in PARTS.items() if mark in name), "embeddings")
        counts[part] += math.prod(shape) * (config.N - 1 if ".layers.1." in name else 1)
    return counts


PARTS = {"norm": "layer norms", "attention": "attention", "feed_forward": "feed-forward", "positions": "positions"}
"""Mark in a parameter's name -> its part of the model. The others belong to input and output."""


def require_memory(n_bytes: int, what: str) -> None:
    """Refuse what needs more memory than this machine has."""
    there = machine_memory_bytes()
    if there is not None and n_bytes > there:
        needed = f"{what} take {n_bytes / 2**30:,.1f} GiB"
        raise UserError(f"not enough memory: {needed}, and this machine has {there / 2**30:,.1f} GiB")
