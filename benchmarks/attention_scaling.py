"""Does the factor 1/sqrt(d_k) of attention's scores matter when a model is trained?

    python benchmarks/attention_scaling.py [--quick] [--out DIR]
    python benchmarks/attention_scaling.py --part attention_without_push           # a control

The text and the sizes of the preset tiny. Three factors: 1/sqrt(d_k) as in the paper, 1, and 1/d_k. A factor does two
things: it says how large the scores are at the start, and how far a step of W_Q and W_K moves them. So more variants
take the two apart, by making W_Q and W_K smaller at first, or their steps smaller, or both, by d_k^(1/4) each. With the
factor 1 and both, the model is the paper's in other units: it must train as the paper's does (up to Adam's eps).
The models have one head of 128. The control has no gradient through any score: a difference that is left then does not
come from a missing push.
"""

from functools import partial
from typing import Any, Iterable, Iterator, NamedTuple

from small_training import Part, adam_of, conduct, read_text, row, schedule_of, trained

from scratchformer.config import Config
from scratchformer.nn.attention import CrossAttention, Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "model.d_model": 128,
    "model.h": 1,
    "training.steps": 300,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.lr_factor": 0.5,
    "training.validate_every": 25,
}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4, "training.validate_every": 2}


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


def attention_layers(model: Transformer) -> list[SelfAttention | CrossAttention]:
    residuals = [layer.self_attention for layer in (*model.encoder.layers, *model.decoder.layers)]
    return [each.sublayer for each in (*residuals, *(layer.cross_attention for layer in model.decoder.layers))]


def query_key_parameters(model: Transformer) -> Iterator[Array]:
    """W_Q and W_K, which lie beside W_V, and their biases, as views."""
    for layer in attention_layers(model):
        for name, n_projections in (("qkv", 2), ("q", 1), ("kv", 1)):
            for parameter in (layer.parameters().get(f"{name}.{kind}") for kind in ("weight", "bias")):
                if parameter:
                    yield parameter.data[..., : n_projections * layer.h * layer.d_k]


def model_of(variant: Variant, config: Config) -> Transformer:
    model = Transformer(config.model, config.training.seed)
    for layer in attention_layers(model):
        layer.attention = DotProductAttention(config.model.d_k ** (variant.factor + 1 / 2), variant.push)
    for weight in query_key_parameters(model):
        weight *= config.model.d_k**variant.start
    return model


class AdamWithOtherSteps(Adam):
    """Adam, but the steps of W_Q and W_K and their biases are `ratio` times as long."""

    ratio = 1.0
    arrays: list[Array] = []

    def step(self, learning_rate: float) -> None:
        before = [array.copy() for array in self.arrays]
        super().step(learning_rate)
        for array, old in zip(self.arrays, before):
            array[...] = old + self.ratio * (array - old)


def optimizer_of(model: Transformer, variant: Variant, config: Config) -> AdamWithOtherSteps:
    optimizer = adam_of(model, config, AdamWithOtherSteps)
    optimizer.ratio = config.model.d_k**variant.step
    optimizer.arrays = list(query_key_parameters(model))
    return optimizer


def run(variant: Variant, data: TrainingData, config: Config) -> dict[str, Any]:
    model = model_of(variant, config)
    return trained(model, data, config, schedule_of(config), optimizer_of(model, variant, config))


def measure(names: Iterable[str], config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    _, data = read_text(config)
    about = {"h": config.model.h, "d_k": config.model.d_k}
    variants = VARIANTS | WITHOUT_PUSH
    return {
        "results": [row(about | {"variant": name}, partial(run, variants[name], data), config, seeds) for name in names]
    }


PARTS = {
    "attention_scaling": Part(EXPERIMENT, QUICK, (0, 1, 2), partial(measure, VARIANTS)),
    "attention_without_push": Part(EXPERIMENT, QUICK, (0, 1, 2), partial(measure, WITHOUT_PUSH)),
}

if __name__ == "__main__":
    conduct(__doc__, PARTS)
