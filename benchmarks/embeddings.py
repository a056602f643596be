"""Compare sizes of word vectors, and ways to share them between reading and writing.

    python benchmarks/embeddings.py [--quick] [--out DIR]

The text of the preset tiny, and a small model. In the paper one matrix E turns source and target words into vectors,
times sqrt(d_model), and vectors into the scores of words. The factor makes the words large before the first step, lets
them move further in each, and multiplies the share that reading has in the gradient of E. Variants of the size: each
of these three with and without the other two; and with none, beside positions that are smaller by as much. One variant
has three matrices.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from small_training import Part, conduct, read_text, row, trained

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, PositionalEncoding
from scratchformer.nn.parameter import Array, Parameter
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import PAD
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "model.d_model": 64,
    "training.steps": 300,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.lr_factor": 0.5,
    "training.validate_every": 100,
}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4, "training.validate_every": 2}


class Variant(NamedTuple):
    """Powers of d_model: what multiplies the rows that words begin with, what multiplies the change of these rows in
    training, what multiplies the gradient that comes from reading, and what multiplies the positions."""

    start: float = 1 / 2
    steps: float = 1 / 2
    gradient: float = 1 / 2
    positions: float = 0
    tied: str = "all"


VARIANTS = {
    "paper": Variant(),
    "no factor": Variant(start=0, steps=0, gradient=0),
    "small start": Variant(start=0),
    "short steps": Variant(steps=0),
    "small gradient": Variant(gradient=0),
    "start alone": Variant(steps=0, gradient=0),
    "steps alone": Variant(start=0, gradient=0),
    "gradient alone": Variant(start=0, steps=0),
    "no factor, small positions": Variant(start=0, steps=0, gradient=0, positions=-1 / 2),
    "three matrices": Variant(tied="none"),
}


class Separated(Embedding):
    """x = start E0[ids] + steps (E - E0)[ids], with E0 as E was when the layer was made; and 0 for padding

    Backward has a factor of its own, `gradient`, and is the true one only where that equals `steps`.
    """

    def __init__(self, weight: Parameter, start: float, steps: float, gradient: float) -> None:
        super().__init__(weight)
        self.scale, self.gradient = steps, gradient
        self.kept = (start - steps) * weight.data
        self.kept[PAD] = 0

    def forward(self, ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        x, cache = super().forward(ids)
        return x + self.kept[ids], cache

    def backward(self, dx: Array, cache: Any) -> None:
        super().backward(dx * (self.gradient / self.scale), cache)


class ScaledPositions(PositionalEncoding):
    """y = x + factor PE, without dropout"""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Array, first: int = 0, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        positions, cache = super().forward(np.zeros_like(x), first)
        return x + self.factor * positions, cache


def model_of(variant: Variant, config: Config) -> Transformer:
    config = configs.with_settings(config, {"model.tied": variant.tied})
    model, D = Transformer(config.model, config.training.seed), config.model.d_model
    factors = D**variant.start, D**variant.steps, D**variant.gradient
    model.source_embedding = Separated(model.source_embedding.weight, *factors)
    model.target_embedding = Separated(model.target_embedding.weight, *factors)
    model.source_positions = model.target_positions = ScaledPositions(D**variant.positions)
    return model


def run(variant: Variant, data: TrainingData, config: Config) -> dict[str, Any]:
    return trained(model_of(variant, config), data, config)


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    _, data = read_text(config)
    return {
        "results": [
            row({"variant": name, **variant._asdict()}, partial(run, variant, data), config, seeds)
            for name, variant in VARIANTS.items()
        ]
    }


if __name__ == "__main__":
    conduct(__doc__, {"embeddings": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
