"""What the probes of `scratchformer doctor` look at: small models and sentences, and operations that look on."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradient_cases import SMALL
from scratchformer.nn.ops import FAST, OPS, Ops
from scratchformer.nn.parameter import Array


def small_model(config: ModelConfig) -> ModelConfig:
    """Small sizes, no dropout, and the configuration's choices: where to normalise, what to tie, which positions."""
    return replace(
        SMALL, norm=config.norm, tied=config.tied, positions=config.positions, attention_bias=config.attention_bias
    )


def random() -> np.random.Generator:
    """Every check draws the same numbers, so that a verdict does not come and go."""
    return np.random.default_rng(0)


def with_random_vectors(layer: Any) -> Any:
    """No gamma stays 1 and no bias 0: there, some faults do not show."""
    generator = random()
    for parameter in layer.parameters().values():
        if parameter.data.ndim == 1:
            parameter.data += 0.5 * generator.standard_normal(parameter.shape)
    return layer


SOURCE = np.array([[3, 5, 2, 5, 7], [4, 1, 6, 0, 0], [9, 8, 9, 1, 0]])  # (B, S), every row padded otherwise
TARGET = np.array([[2, 6, 4, 8], [2, 7, 7, 3], [2, 10, 1, 5]])  # (B, T)


def shifted(target: np.ndarray) -> np.ndarray:
    """What the decoder is to answer to `target` (B, T): the next token, and 1, the end, after the last."""
    return np.concatenate([target[:, 1:], np.ones((len(target), 1), target.dtype)], axis=1)


@contextmanager
def watched(watch: Any) -> Iterator[Any]:
    """Let NumPy arrays be worked on by these operations for a while, which look on; the fast ones would not."""
    usual, fast = OPS[np.ndarray], FAST.copy()
    OPS[np.ndarray] = watch
    FAST.clear()
    try:
        yield watch
    finally:
        OPS[np.ndarray] = usual
        FAST.update(fast)


class DropoutWatch(Ops):
    """The NumPy operations, which remember the keys they were given to drop with."""

    def __init__(self) -> None:
        super().__init__(np)
        self.keys: list[DropoutKey] = []

    def dropout(self, x: Array, P_drop: float, rng: DropoutKey | None) -> tuple[Array, Array | None]:
        if rng is not None and P_drop:
            self.keys.append(rng)
        return super().dropout(x, P_drop, rng)
