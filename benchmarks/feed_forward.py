"""Measure what the feed-forward network and its width contribute to a model that learns to translate.

    python benchmarks/feed_forward.py [--quick] [--out DIR]

Small models on the text of the preset tiny, equal in all but their feed-forward networks: the paper's, 1, 2, 4 and 8
times as wide as d_model; the one of 4 times without its ReLU, which is then one linear map in two factors; and none,
the sublayer left out with its Add & Norm. What is left out is also given back as more attention: five layers without
feed-forward network have about as many parameters as two with one of 4 times. All variants have one learning rate, and
three of them a second one, to see whether the order depends on it.
"""

from functools import partial
from typing import Any, NamedTuple

from small_training import Part, conduct, read_text, row, schedule_of, trained

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import FeedForward
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


def rated(name: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Train one variant at one learning rate."""
    variant = VARIANTS[name]
    sizes = {"model.N": variant.N, "model.d_ff": max(1, variant.width) * config.model.d_model}
    sized = configs.with_settings(config, sizes)

    def run(seeded: Config) -> dict[str, Any]:
        return trained(build(variant, seeded), data, seeded, schedule_of(seeded, peak))

    parameters = build(variant, sized).store.data.size
    return row({"variant": name, "peak_learning_rate": peak, "parameters": parameters}, run, sized, seeds)


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    one = partial(rated, data=read_text(config)[1], config=config, seeds=seeds)
    return {"results": [one(name, PEAK) for name in VARIANTS] + [one(name, LOWER_PEAK) for name in TWO_RATES]}


if __name__ == "__main__":
    conduct(__doc__, {"feed_forward": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
