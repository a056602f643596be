"""Does the factor 1/sqrt(d_k) of attention's scores matter when a model is trained?

    python benchmarks/attention_scaling.py [--quick] [--out DIR]
    python benchmarks/attention_scaling.py --part attention_rates                  # or attention_without_push: controls

The text and the sizes of the preset tiny. Three factors: 1/sqrt(d_k) as in the paper, 1, and 1/d_k. A factor does two
things: it says how large the scores are at the start, and how far a step of W_Q and W_K moves them. So more variants
take the two apart, by making W_Q and W_K smaller at first, or their steps smaller, or both, by d_k^(1/4) each. With the
factor 1 and both, the model is the paper's in other units: it must train as the paper's does (up to Adam's eps).

All this with one head of 128, and with eight heads of 16. A seed decides the initial weights and the batches, so runs
of one seed start from the same weights and see the same batches. README.md here says what is recorded.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, NamedTuple

import numpy as np
from small_training import (
    Part,
    add_gradient,
    conduct,
    equal_lengths,
    number,
    numbers,
    read_text,
    schedule_of,
    spread,
    train,
)

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.attention import AttentionCache, CrossAttention, Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import by_head, transposed
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "model.d_model": 128,
    "training.steps": 300,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.lr_factor": 0.5,
    "training.validate_every": 25,
}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4, "training.validate_every": 2}
HEADS = (1, 8)
SEEDS = (0, 1, 2)


class Variant(NamedTuple):
    """Powers of d_k: the factor of the scores; and by what W_Q and W_K are multiplied at the start, and their steps.

    Without `push` no gradient goes through a score, so W_Q and W_K stay as they were.
    """

    factor: float
    start: float = 0
    step: float = 0
    push: bool = True


VARIANTS = {
    "1/sqrt(d_k)": Variant(-1 / 2),
    "1/d_k": Variant(-1),
    "1": Variant(0),
    "1, smaller start": Variant(0, start=-1 / 4),
    "1, smaller steps": Variant(0, step=-1 / 4),
    "1, both smaller": Variant(0, start=-1 / 4, step=-1 / 4),
    "1/sqrt(d_k), smaller steps": Variant(-1 / 2, step=-1 / 4),
}
WITHOUT_PUSH = {"1/sqrt(d_k), no push": Variant(-1 / 2, push=False), "1, no push": Variant(0, push=False)}

# Another factor -------------------------------------------------------------------------------------------------------


class DotProductAttention(ScaledDotProductAttention):
    """Attention with any factor before its scores, softmax(factor Q K^T) V.

    The factor's ratio to 1/sqrt(d_k) goes into the queries: q' = ratio q, hence dq = ratio dq'. Without `push` the
    weights count as constants in backward: dq = dk = 0.
    """

    def __init__(self, ratio: float, push: bool = True) -> None:
        super().__init__()
        self.ratio, self.push = ratio, push

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        return super().forward(self.ratio * q, k, v, mask, rng)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array, Array]:
        dq, dk, dv = super().backward(dy, cache)
        return self.push * self.ratio * dq, self.push * dk, dv


def model_of(variant: str, config: Config) -> Transformer:
    model, powers = Transformer(config.model, config.training.seed), powers_of(variant)
    for layer in attention_layers(model).values():
        layer.attention = DotProductAttention(layer.d_k ** (powers.factor + 1 / 2), powers.push)
        for weight, _ in query_key_parameters(layer):
            weight *= layer.d_k**powers.start
    return model


def powers_of(variant: str) -> Variant:
    return (VARIANTS | WITHOUT_PUSH)[variant]


class AdamWithOtherSteps(Adam):
    """Adam, but the steps of W_Q and W_K and their biases are `ratio` times as long."""

    def __init__(self, model: Transformer, config: Config, ratio: float) -> None:
        super().__init__(model, (config.training.beta1, config.training.beta2), config.training.eps)
        self.ratio = ratio
        self.arrays = [array for layer in attention_layers(model).values() for array, _ in query_key_parameters(layer)]

    def step(self, learning_rate: float) -> None:
        before = [array.copy() for array in self.arrays]
        super().step(learning_rate)
        for array, old in zip(self.arrays, before):
            array[...] = old + self.ratio * (array - old)


def attention_layers(model: Transformer) -> dict[str, SelfAttention | CrossAttention]:
    """In the order of forward."""
    encoder = {f"encoder.{i}.self": layer.self_attention for i, layer in enumerate(model.encoder.layers)}
    decoder = {
        f"decoder.{i}.{kind}": residual
        for i, layer in enumerate(model.decoder.layers)
        for kind, residual in (("self", layer.self_attention), ("cross", layer.cross_attention))
    }
    return {name: residual.sublayer for name, residual in (encoder | decoder).items()}


def query_key_parameters(layer: SelfAttention | CrossAttention) -> Iterator[tuple[Array, Array]]:
    """W_Q and W_K, which lie beside W_V, and their biases, as views; each with its gradient."""
    for name, n_projections in (("qkv", 2), ("q", 1), ("kv", 1)):
        for parameter in (layer.parameters().get(f"{name}.{kind}") for kind in ("weight", "bias")):
            if parameter:
                width = n_projections * layer.h * layer.d_k
                yield parameter.data[..., :width], parameter.grad[..., :width]


# What is looked at, before the first step and after the last ----------------------------------------------------------


def look(model: Transformer, batch: Batch, config: Config) -> dict[str, Any]:
    """On a batch without padding. For each attention of the model:

    score_std        the spread of one query's scores as softmax gets them, factor and all: their standard deviation
                     over the keys (those that a causal mask hides, too), root mean square over queries and heads
    largest_weight   mean over queries and heads

    And for the whole model:

    gradient_norm    length of the gradient
    query_key_share  length of the part that belongs to W_Q and W_K and their biases, over that
    """
    _, forward_cache = model.forward(*batch.inputs)
    caches = dict(zip(attention_layers(model), attention_caches(forward_cache)))
    add_gradient(model, batch, config, step=1)
    gradient_norm = float(np.linalg.norm(model.store.grad))
    squares = [
        float((gradient**2).sum())
        for layer in attention_layers(model).values()
        for _, gradient in query_key_parameters(layer)
    ]
    return {
        "score_std": {name: number(math.sqrt(scores(cache).var(axis=-1).mean())) for name, cache in caches.items()},
        "largest_weight": {name: number(cache.weights.max(axis=-1).mean()) for name, cache in caches.items()},
        "gradient_norm": number(gradient_norm),
        "query_key_share": number(math.sqrt(sum(squares)) / gradient_norm),
    }


def attention_caches(cache: Any) -> Iterator[AttentionCache]:
    """Those in the cache of a forward pass, in the order of forward."""
    if isinstance(cache, AttentionCache):
        yield cache
    elif isinstance(cache, (tuple, list)):
        for part in cache:
            yield from attention_caches(part)


def scores(cache: AttentionCache) -> Array:
    """The scores that softmax gets: (B, H, T, S)."""
    return by_head(cache.q) @ transposed(by_head(cache.k)) / math.sqrt(cache.q.shape[-1])


# The runs -------------------------------------------------------------------------------------------------------------


def run(variant: str, data: TrainingData, config: Config) -> dict[str, Any]:
    training, model = config.training, model_of(variant, config)
    batch = equal_lengths(data.train, 64)
    start = look(model, batch, config)
    optimizer = AdamWithOtherSteps(model, config, config.model.d_k ** powers_of(variant).step)
    curve = train(model, optimizer, data, config, schedule_of(config))
    return {
        "seed": training.seed,
        "final_loss": number(curve[-1][1]),
        "start": start,
        "end": look(model, batch, config),
        "curve": numbers(curve),
    }


def row(h: int, variant: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """All seeds of one variant and one number of heads."""
    config = configs.with_settings(config, {"model.h": h})
    runs = [run(variant, data, configs.with_settings(config, {"training.seed": seed})) for seed in seeds]
    losses = spread([each["final_loss"] for each in runs])
    print(
        f"h={h}, d_k={config.model.d_k}, {variant}: final loss {losses['mean']} "
        f"({losses['lowest']} to {losses['highest']})",
        flush=True,
    )
    return {"h": h, "d_k": config.model.d_k, "variant": variant, "final_loss": losses, "runs": runs}


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = read_text(config)
    return {"results": [row(h, variant, data, config, seeds) for h in HEADS for variant in VARIANTS]}


# Controls: one head of 128 --------------------------------------------------------------------------------------------

RATES = (2, 1 / 2, 1 / 4)
"""Times the learning rate of the experiment."""


def measure_rates(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Train with other learning rates of the whole model, which might do instead of the division by sqrt(d_k)."""
    data, usual = read_text(config), config.training.lr_factor
    results = []
    for rate in RATES:
        other = configs.with_settings(config, {"training.lr_factor": rate * usual})
        results += [{"rate": rate, **row(1, variant, data, other, seeds)} for variant in ("1/sqrt(d_k)", "1")]
    return {"results": results}


def measure_without_push(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Train without gradient through any score: what still differs does not come from a missing push."""
    data = read_text(config)
    return {"results": [row(1, variant, data, config, seeds) for variant in WITHOUT_PUSH]}


PARTS = {
    "attention_scaling": Part(EXPERIMENT, QUICK, SEEDS, measure),
    "attention_rates": Part(EXPERIMENT | {"training.validate_every": 100}, QUICK, SEEDS, measure_rates),
    "attention_without_push": Part(EXPERIMENT, QUICK, SEEDS, measure_without_push),
}

if __name__ == "__main__":
    conduct(__doc__, PARTS)
