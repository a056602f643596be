"""How many parameters a model has, and whether they fit into memory. This is arithmetic: nothing is built."""

from __future__ import annotations

import os
from pathlib import Path

from scratchformer import limits
from scratchformer.config import Config, ModelConfig
from scratchformer.errors import UserError

FLOAT_BYTES = 4
"""Training is in float32."""


def head_sizes(config: ModelConfig) -> tuple[int, int]:
    """Return d_k and d_v, which the configuration has set by now."""
    assert config.d_k and config.d_v
    return config.d_k, config.d_v


def parameter_counts(config: ModelConfig) -> dict[str, int]:
    """Parameters by part of the model; their sum is the size of `new_model(config)` (paper §3, Table 3)."""
    D, F, H, V, N = config.d_model, config.d_ff, config.h, config.vocab_size, config.N
    d_k, d_v = head_sizes(config)
    attention = 2 * D * H * d_k + 2 * D * H * d_v  # W_Q, W_K, W_V, W_O
    if config.attention_bias:
        attention += 2 * H * d_k + H * d_v + D
    feed_forward = D * F + F + F * D + D
    norm = 2 * D
    stacks = 2 if config.architecture == "encoder-decoder" else 1
    positions = stacks * config.max_positions * D if config.positions == "learned" else 0
    final_norms = stacks * norm if config.norm == "pre" else 0
    if config.architecture == "encoder-decoder":
        words = V + {"all": 0, "target": 1, "none": 2}[config.tied] * config.n_outputs
        return {
            "embeddings": words * D,
            "positions": positions,
            "encoder attention": N * attention,
            "encoder feed-forward": N * feed_forward,
            "decoder attention": N * 2 * attention,
            "decoder feed-forward": N * feed_forward,
            "layer norms": N * 5 * norm + final_norms,
        }
    outputs = config.n_outputs if config.n_classes or not config.reads_text or config.tied == "none" else 0
    types, class_token, bias = 2, 1, 1  # vectors beside those of words and pixels
    inputs = {"decoder": V, "encoder": V + types, "vision": config.patch_size**2 + bias + class_token}
    return {
        "embeddings": (inputs[config.architecture] + outputs) * D,
        "positions": positions,
        "attention": N * attention,
        "feed-forward": N * feed_forward,
        "layer norms": N * 2 * norm + final_norms,
    }


def machine_memory_bytes(root: Path = limits.ROOT) -> int | None:
    """Memory of this machine, or the limit of the container we run in. None if the system does not say.

    root  where the files of the system are
    """
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
    return min(there, limits.memory_limit(root) or there)


def require_memory(config: Config) -> None:
    """Raises UserError if this machine has less memory than training needs for weights, gradients and moments alone.

    For a GPU that is the weights and as much again: they are initialised here; gradients and moments are on the device.
    """
    arrays = 4 if config.training.device == "cpu" else 2
    needed, there = arrays * FLOAT_BYTES * sum(parameter_counts(config.model).values()), machine_memory_bytes()
    if there is not None and needed > there:
        raise UserError(
            f"not enough memory: the model's weights, gradients and moments take {needed / 2**30:,.1f} GiB, "
            f"and this machine has {there / 2**30:,.1f} GiB"
        )
