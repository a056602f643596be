"""Train translators that lack one of the wires of Figure 1.

    python benchmarks/wires.py [--quick] [--out DIR]

The text of the preset tiny, a model of half its width. One wire is cut (`support.wires`) before training.
"""

from functools import partial
from typing import Any

from small_training import Part, conduct, read_text, row, trained

from scratchformer.config import Config
from scratchformer.nn.transformer import Transformer
from scratchformer.training.trainer import TrainingData
from support.wires import cut

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
CUT = ("none", "memory", "encoder attention", "decoder attention", "source positions", "target positions")


def run(wire: str, data: TrainingData, config: Config) -> dict[str, Any]:
    model = Transformer(config.model, config.training.seed)
    if wire != "none":
        cut(model, wire)
    return trained(model, data, config)


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    _, data = read_text(config)
    return {"results": [row({"cut": wire}, partial(run, wire, data), config, seeds) for wire in CUT]}


if __name__ == "__main__":
    conduct(__doc__, {"wires": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
