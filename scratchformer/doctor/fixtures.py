"""Fixtures for the probes of `scratchformer doctor`: a small model and batch, and operations that record dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn import gradient_cases
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradient_cases import FLOAT64, SMALL, with_random_vectors
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array
from scratchformer.nn.registry import BUILT_IN, INNER_POSITIONS


def small_config(config: ModelConfig) -> ModelConfig:
    """Small sizes, no dropout; the configuration's tying, biases, tags and layers, if the library has them."""
    choices: dict[str, Any] = {"tied": config.tied, "attention_bias": config.attention_bias}
    for kind, names in BUILT_IN.items():
        choices |= {kind: getattr(config, kind)} if getattr(config, kind) in names else {}
    if choices.get("positions") in INNER_POSITIONS:  # ALiBi is for language models alone
        choices |= {"positions": "rotary", "d_k": gradient_cases.LLAMA["d_k"]}
    return replace(SMALL, n_tags=min(config.n_tags, 3), h_kv=min(config.h_kv, 1), **choices)


def random() -> np.random.Generator:
    """A new generator with a fixed seed: every run of doctor gets the same numbers."""
    return np.random.default_rng(0)


def new_model(kind: Any, config: ModelConfig) -> Any:
    """A model in float64. Its gammas, betas and biases are random, since some faults do not show at 1 or 0."""
    return with_random_vectors(kind(config, dtype=FLOAT64), random())


SOURCE = np.array([[3, 5, 2, 5, 7], [4, 1, 6, 0, 0], [9, 8, 9, 1, 0]])  # (B, S), with different padding in every row
TYPES = np.array([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])  # (B, S), the segment of each token of SOURCE
TARGET = np.array([[2, 6, 4, 8], [2, 7, 7, 0], [2, 10, 1, 5]])  # (B, T)
TARGET_OUT = np.array([[6, 4, 8, 1], [7, 7, 1, 0], [10, 1, 5, 1]])  # (B, T), what the decoder should predict for TARGET


class DropoutRecorder(Ops):
    """The NumPy operations. They record the keys with which dropout is applied."""

    def __init__(self) -> None:
        super().__init__(np)
        self.keys: list[DropoutKey] = []

    def dropout(self, x: Array, P_drop: float, rng: DropoutKey | None) -> tuple[Array, Array | None]:
        if rng is not None and P_drop:
            self.keys.append(rng)
        return super().dropout(x, P_drop, rng)
