"""What does warm-up do for the paper's arrangement (post-LN), and what for the later one (pre-LN)?

    python benchmarks/norm_and_warmup.py [--quick] [--out DIR]

A small model as deep as the paper's, on the text of the preset tiny, is trained with and without warm-up. Without, the
learning rate is at its peak from the first step on, until it falls in both cases in the same way. A third way puts one
explanation of warm-up to the test: training begins at the peak, but after 100 steps at learning rate 0, in which
Adam's second moment v becomes an average over 100 gradients; its first moment m begins at 0, as always. README.md here
says what is recorded.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
from small_training import (
    adam_of,
    add_gradient,
    batches,
    conduct,
    equal_lengths,
    number,
    numbers,
    read_text,
    spread,
    train,
)

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Layer
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import EncodedPairs
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "model.N": 6,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.h": 4,
    "training.steps": 300,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.validate_every": 25,
}
QUICK = {
    "model.N": 2,
    "model.d_model": 16,
    "model.d_ff": 32,
    "training.steps": 4,
    "training.warmup": 2,
    "training.validate_every": 2,
}
PEAKS = (0.001, 0.003)  # of the learning rate
WAYS = {"post": ("warm-up", "none", "v averaged first"), "pre": ("warm-up", "none")}
TARGET = 4.5  # nats per target token
SEEDS = (0, 1, 2, 3, 4)

# Training with and without warm-up ------------------------------------------------------------------------------------


def learning_rate(step: int, way: str, peak: float, config: Config) -> float:
    """Rises to `peak` at step `warmup`, or is there at once; then falls with the square root of the step."""
    d_model, warmup = config.model.d_model, config.training.warmup
    factor = peak / noam(warmup, d_model, warmup)
    return noam(step if way == "warm-up" else max(step, warmup), d_model, warmup, factor)


def average_v(model: Transformer, optimizer: Adam, data: TrainingData, config: Config) -> None:
    """Let Adam see the gradients of the first batches without moving: v becomes an average over them. m would only
    remember the place where training begins, so it is emptied again."""
    for step, batch in enumerate(islice(batches(data, config), config.training.warmup), start=1):
        add_gradient(model, batch, config, step)
        optimizer.step(0.0)
    optimizer.m[...] = 0


def correction_of_m(step: int, config: Config) -> float:
    """Adam divides m by 1 - beta1^t. After `average_v` its t is `warmup` steps ahead of m; this makes up for it."""
    beta1, warmup = config.training.beta1, config.training.warmup
    return (1 - beta1 ** (warmup + step)) / (1 - beta1**step)


def run(way: str, peak: float, data: TrainingData, config: Config, constant_loss: float) -> dict[str, Any]:
    training, model = config.training, Transformer(config.model, config.training.seed)
    optimizer = adam_of(model, config)
    v_averaged = way == "v averaged first"
    if v_averaged:
        average_v(model, optimizer, data, config)

    def rate(step: int) -> float:
        return learning_rate(step, way, peak, config) * (correction_of_m(step, config) if v_averaged else 1)

    curve = train(model, optimizer, data, config, rate)
    final_loss = curve[-1][1]
    return {
        "seed": training.seed,
        "final_loss": number(final_loss),
        "diverged": not final_loss <= constant_loss,
        "steps_to_target": next((step for step, loss in curve if loss <= TARGET), None),
        "curve": numbers(curve),
    }


def row(
    norm: str, way: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...], constant_loss: float
) -> dict[str, Any]:
    """All seeds of one arrangement, one way to begin and one peak."""
    runs = [run(way, peak, data, with_norm(config, norm, seed), constant_loss) for seed in seeds]
    losses = spread([each["final_loss"] for each in runs])
    result = {
        "norm": norm,
        "start": way,
        "peak_learning_rate": peak,
        "final_loss": losses,
        "divergences": sum(each["diverged"] for each in runs),
        "reached_target": sum(each["steps_to_target"] is not None for each in runs),
        "runs": runs,
    }
    print(
        f"{norm}-LN, {way}, peak {peak:g}: final loss {losses['mean']} ({losses['lowest']} to {losses['highest']}), "
        f"{result['divergences']} of {len(seeds)} diverged, target after "
        f"{[each['steps_to_target'] for each in runs]}",
        flush=True,
    )
    return result


def with_norm(config: Config, norm: str, seed: int) -> Config:
    return configs.with_settings(config, {"model.norm": norm, "training.seed": seed})


def unigram_entropy(pairs: EncodedPairs) -> float:
    """Of the target tokens, in nats: no model that ignores its input can have a lower loss on them."""
    counts = np.bincount(pairs.target.ids)
    shares = counts[counts > 0] / counts.sum()
    return -float(shares @ np.log(shares))


# Gradients before the first step --------------------------------------------------------------------------------------


def first_gradients(norm: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Length of the first gradient in each layer, mean over the seeds: of all the layer's parameters, and of the
    second matrix of its feed-forward network, which is what Xiong et al. (2020) derive and measure."""
    lengths: dict[str, list[list[float]]] = {}
    for seed in seeds:
        seeded = with_norm(config, norm, seed)
        model = Transformer(seeded.model, seed)
        add_gradient(model, equal_lengths(data.train, 64), seeded, step=1)
        for stack, layers in (("encoder", model.encoder.layers), ("decoder", model.decoder.layers)):
            lengths.setdefault(stack, []).append([gradient_length(layer) for layer in layers])
            lengths.setdefault(f"{stack} W_2", []).append(
                [gradient_length(layer.feed_forward.sublayer.outer) for layer in layers]
            )
    return {"norm": norm} | {
        name: [number(mean) for mean in np.mean(values, axis=0)] for name, values in lengths.items()
    }


def gradient_length(layer: Layer) -> float:
    return math.sqrt(sum(float((parameter.grad**2).sum()) for parameter in layer.parameters().values()))


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = read_text(config)
    constant_loss = unigram_entropy(data.val)
    gradients = [first_gradients(norm, data, config, seeds) for norm in WAYS]
    rows = [
        row(norm, way, peak, data, config, seeds, constant_loss)
        for peak in PEAKS
        for norm, ways in WAYS.items()
        for way in ways
    ]
    return {
        "target_loss": TARGET,
        "unigram_entropy": number(constant_loss),
        "results": rows,
        "first_gradients": gradients,
    }


if __name__ == "__main__":
    conduct("norm_and_warmup", __doc__, EXPERIMENT, QUICK, SEEDS, measure)
