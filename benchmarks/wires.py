"""Train translators that lack one of the wires of Figure 1.

    python benchmarks/wires.py [--quick] [--out DIR]

The text of the preset tiny, a model of half its width. One wire is cut at a time (`support.wires`), before
training; the rest is as it was. A seed decides the initial weights and the batches. README.md here says what is
recorded.
"""

from __future__ import annotations

from typing import Any

from small_training import Part, adam_of, conduct, number, numbers, read_text, schedule_of, spread, train

from scratchformer import config as configs
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
SEEDS = (0, 1, 2)


def run(wire: str, data: TrainingData, config: Config) -> dict[str, Any]:
    training, model = config.training, Transformer(config.model, config.training.seed)
    if wire != "none":
        cut(model, wire)
    curve = train(model, adam_of(model, config), data, config, schedule_of(config))
    return {
        "seed": training.seed,
        "parameters": model.store.data.size,
        "final_loss": number(curve[-1][1]),
        "curve": numbers(curve),
    }


def row(wire: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """All seeds of one cut."""
    runs = [run(wire, data, configs.with_settings(config, {"training.seed": seed})) for seed in seeds]
    losses = spread([each["final_loss"] for each in runs])
    print(f"{wire}: final loss {losses['mean']} ({losses['lowest']} to {losses['highest']})", flush=True)
    return {"cut": wire, "final_loss": losses, "runs": runs}


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = read_text(config)
    return {"results": [row(wire, data, config, seeds) for wire in CUT]}


if __name__ == "__main__":
    conduct(__doc__, {"wires": Part(EXPERIMENT, QUICK, SEEDS, measure)})
