"""Measure what the feed-forward network and its width contribute to a model that learns to translate.

    python benchmarks/feed_forward.py [--quick] [--out DIR]

Small models on the text of the preset tiny, equal in all but their feed-forward networks: the paper's, 1, 2, 4 and 8
times as wide as d_model; the one of 4 times without its ReLU, which is then one linear map in two factors; and none,
the sublayer left out with its Add & Norm. What is left out is also given back as more attention: five layers without
feed-forward network have about as many parameters as two with one of 4 times.

A seed decides the initial weights and the batches. All variants have one learning rate, and three of them a second one,
to see whether the order hangs on it. README.md here says what is recorded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from small_training import Part, adam_of, conduct, number, numbers, read_text, spread, train

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.optim import noam
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.nn.transformer import Transformer
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "model.d_model": 64,
    "model.h": 4,
    "training.steps": 300,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.validate_every": 50,
}
QUICK = {"model.d_model": 16, "training.steps": 4, "training.validate_every": 2}
PEAK, LOWER_PEAK = 0.004, 0.002  # of the learning rate
SEEDS = (0, 1, 2)


class Variant(NamedTuple):
    """d_ff in multiples of d_model, 0 for no feed-forward network; whether it has its ReLU; layers of each stack."""

    width: int
    relu: bool = True
    N: int = 2


VARIANTS = {
    "none": Variant(0),
    "none, 5 layers": Variant(0, N=5),
    "4 d_model, no ReLU": Variant(4, relu=False),
    "d_model": Variant(1),
    "2 d_model": Variant(2),
    "4 d_model": Variant(4),
    "8 d_model": Variant(8),
}
TWO_RATES = ("none", "none, 5 layers", "4 d_model")


class Nothing(Layer):
    """Passes on what it reads."""

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return x, None

    def backward(self, dy: Array, cache: Any) -> Array:
        return dy


class TwoLinearMaps(FeedForward):
    """x W_1 W_2 with biases: the feed-forward network without its ReLU."""

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        hidden, inner_cache = self.inner.forward(x)
        y, outer_cache = self.outer.forward(hidden)
        return y, (inner_cache, outer_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        inner_cache, outer_cache = cache
        return self.inner.backward(self.outer.backward(dy, outer_cache), inner_cache)


def build(variant: Variant, config: Config) -> Transformer:
    model = Transformer(config.model, config.training.seed)
    for layer in model.encoder.layers + model.decoder.layers:
        if not variant.width:
            layer.feed_forward = Nothing()
        elif not variant.relu:
            layer.feed_forward.sublayer.__class__ = TwoLinearMaps
    model.store = ParameterStore(model.parameters())
    return model


def run(variant: Variant, peak: float, data: TrainingData, config: Config) -> dict[str, Any]:
    training, model = config.training, build(variant, config)
    factor = peak / noam(training.warmup, config.model.d_model, training.warmup)
    curve = train(
        model,
        adam_of(model, config),
        data,
        config,
        lambda step: noam(step, config.model.d_model, training.warmup, factor),
    )
    return {
        "seed": training.seed,
        "parameters": model.store.data.size,
        "final_loss": number(curve[-1][1]),
        "curve": numbers(curve),
    }


def row(name: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """All seeds of one variant and one learning rate."""
    variant = VARIANTS[name]
    sizes = {"model.N": variant.N, "model.d_ff": max(1, variant.width) * config.model.d_model}
    runs = [run(variant, peak, data, configs.with_settings(config, sizes | {"training.seed": seed})) for seed in seeds]
    losses = spread([each["final_loss"] for each in runs])
    print(f"{name}, peak {peak:g}: final loss {losses['mean']} ({losses['lowest']} to {losses['highest']})", flush=True)
    return {
        "variant": name,
        "peak_learning_rate": peak,
        "parameters": runs[0].pop("parameters"),
        "final_loss": losses,
        "runs": runs,
    }


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = read_text(config)
    return {
        "results": [
            row(name, peak, data, config, seeds)
            for peak, names in ((PEAK, VARIANTS), (LOWER_PEAK, TWO_RATES))
            for name in names
        ]
    }


if __name__ == "__main__":
    conduct(__doc__, {"feed_forward": Part(EXPERIMENT, QUICK, SEEDS, measure)})
