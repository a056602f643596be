"""Train translators that lack one of the wires of Figure 1.

    python benchmarks/wires.py [--quick] [--out DIR]

The text of the preset tiny, a model of half its width. One wire is cut before training: every shape still fits, and
every gradient is right.
"""

from functools import partial
from typing import Any

from small_training import Part, conduct, read_text, row, trained

from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import NoPositions
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.nn.transformer import Transformer
from scratchformer.training.trainer import TrainingData

EXPERIMENT = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "training.steps": 500,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.lr_factor": 0.5,
    "training.validate_every": 50,
}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4, "training.validate_every": 2}
SUBLAYERS = {
    "memory": ("decoder", "cross_attention"),
    "encoder attention": ("encoder", "self_attention"),
    "decoder attention": ("decoder", "self_attention"),
}
POSITIONS = {"source positions": "source_positions", "target positions": "target_positions"}
CUT = ("none", *SUBLAYERS, *POSITIONS)


class NoUpdate(Layer):
    """Stands for a sublayer, and adds nothing.

    forward(x (..., D), *others) -> zeros (..., D), cache;   others that are not arrays are passed over
    backward(dy (..., D), cache) -> zeros for x, and for every other array
    """

    def forward(self, x: Array, *others: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        arrays = [x, *(other for other in others if hasattr(other, "shape"))]
        return ops_of(x).xp.zeros_like(x), [array.shape for array in arrays]

    def backward(self, dy: Array, cache: Any) -> Any:
        gradients = tuple(ops_of(dy).xp.zeros(shape, dy.dtype) for shape in cache)
        return gradients if len(gradients) > 1 else gradients[0]


def cut(model: Transformer, wire: str) -> Transformer:
    """Cut a wire of the model, in place; its parameters are then those that are left. -> the model"""
    if wire in POSITIONS:
        setattr(model, POSITIONS[wire], NoPositions())
    else:
        stack, sublayer = SUBLAYERS[wire]
        for layer in getattr(model, stack).layers:
            getattr(layer, sublayer).sublayer = NoUpdate()
    model.store = ParameterStore(model.parameters())
    return model


def run(wire: str, data: TrainingData, config: Config) -> dict[str, Any]:
    model = Transformer(config.model, config.training.seed)
    return trained(model if wire == "none" else cut(model, wire), data, config)


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    _, data = read_text(config)
    return {"results": [row({"cut": wire}, partial(run, wire, data), config, seeds) for wire in CUT]}


if __name__ == "__main__":
    conduct(__doc__, {"wires": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
