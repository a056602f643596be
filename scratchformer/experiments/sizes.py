"""Estimate the memory and disk that training takes. This is arithmetic: nothing is built."""

from __future__ import annotations

from dataclasses import replace

from scratchformer.config import Config, ModelConfig
from scratchformer.nn.sizes import FLOAT_BYTES, head_sizes, parameter_counts


def activation_floats(config: ModelConfig, n_positions: int, length: int) -> int:
    """How many numbers forward keeps for backward, for `n_positions` positions of the source and as many of the target,
    or of the only sequence that the model reads.

    length  of each sequence, in tokens
    """
    D, F, H = config.d_model, config.d_ff, config.h
    d_k, d_v = head_sizes(config)
    add_norm = 2 * D + (D // 4 if config.P_drop else 0)  # input, normalised, mask of bytes
    attention = H * (2 * d_k + 2 * d_v) + H * length  # q, k, v, heads, weights
    if config.attention_dropout:
        attention += H * length + H * length // 4
    feed_forward = F + (F if config.activation == "gelu" else 0) + (F + F // 4 if config.relu_dropout else 0)
    encoder_layer = attention + feed_forward + 2 * add_norm
    decoder_layer = 2 * attention + feed_forward + 3 * add_norm if config.architecture == "encoder-decoder" else 0
    return n_positions * config.N * (encoder_layer + decoder_layer)


def training_bytes(config: Config, length: int = 30) -> dict[str, int]:
    """Memory for training on one thread: weights, gradients, Adam's two moments, the activations of a micro-batch.

    Each further thread needs its own gradient, and the activations of its own micro-batch.
    """
    n_parameters = sum(parameter_counts(config.model).values())
    activations = activation_floats(config.model, config.training.tokens_per_batch, length)
    return {
        "weights, gradients, moments": 4 * n_parameters * FLOAT_BYTES,
        "activations of a micro-batch": activations * FLOAT_BYTES,
    }


def further_thread_bytes(config: Config, length: int = 30) -> int:
    """Memory that each thread after the first needs."""
    gradient = sum(parameter_counts(config.model).values()) * FLOAT_BYTES
    return gradient + training_bytes(config, length)["activations of a micro-batch"]


STORED_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a weight or an activation in the layers, by precision. Gradients and moments are always float32."""


def accelerator_bytes(config: Config, precision: str, logits_at_once: int, length: int = 30) -> dict[str, int]:
    """Memory for training on a GPU, which handles one micro-batch at a time and keeps no dropout masks.

    precision       bf16 and fp16 store activations, and a second copy of the weights, in 2 bytes
    logits_at_once  `Ops.logits_at_once` of the GPU
    """
    stored, n_parameters = STORED_BYTES[precision], sum(parameter_counts(config.model).values())
    without_masks = replace(config.model, P_drop=0.0, attention_dropout=0.0, relu_dropout=0.0)
    positions = config.training.tokens_per_batch
    copy = stored * n_parameters if stored < FLOAT_BYTES else 0
    return {
        "weights, gradients, moments": 4 * n_parameters * FLOAT_BYTES + copy,
        "activations of a micro-batch": activation_floats(without_masks, positions, length) * stored,
        "logits": min(positions * config.model.vocab_size, logits_at_once) * stored,
    }


def checkpoint_bytes(config: Config) -> int:
    """Disk for checkpoints: those of steps, with moments, and one more while it is written; the best and the average,
    without moments."""
    weights = sum(parameter_counts(config.model).values()) * FLOAT_BYTES
    return (config.training.keep + 1) * 3 * weights + 2 * weights


# As text --------------------------------------------------------------------------------------------------------------


def format_duration(seconds: float) -> str:
    """In the unit that suits, such as "17.5 hours"."""
    for size, unit in ((365 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} seconds"


def step_summary(config: Config, nproc: int) -> list[str]:
    """What an optimizer step consists of, and how many processes share it."""
    n, positions = config.training.accumulation, config.training.tokens_per_batch
    least, most = n // nproc, -(-n // nproc)
    return [
        f"{'an optimizer step, at most':30}{n * positions:>14,} padded positions a side",
        f"  {'micro-batches':28}{n:>14}  of at most {positions:,} positions",
        f"  {'processes that share them':28}{nproc:>14}  {least if least == most else f'{least} or {most}'} each",
    ]


def summary(config: Config) -> list[str]:
    """Parameters and memory, one line for each part."""
    counts, memory = parameter_counts(config.model), training_bytes(config)
    total = sum(counts.values())
    return [
        f"{'parameters':30}{total:>14,}",
        *(f"  {part:28}{count:>14,}  {count / total:5.1%}" for part, count in counts.items() if count),
        f"{'memory for training, estimated':30}{sum(memory.values()) / 2**20:>10,.0f} MiB",
        *(f"  {part:28}{size / 2**20:>10,.0f} MiB" for part, size in memory.items()),
        f"  {'and for each further thread':28}{further_thread_bytes(config) / 2**20:>10,.0f} MiB",
    ]
