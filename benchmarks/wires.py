"""What is each wire of Figure 1 for, when a model learns to translate?

    python benchmarks/wires.py [--quick] [--out DIR]

The text of the preset tiny, a model of half its width. One wire is cut at a time (`scratchformer.study.wires`), before
training; the rest is as it was. A seed decides the initial weights and the batches. README.md here says what is
recorded.
"""

from __future__ import annotations

from typing import Any

from provenance import surroundings
from small_training import arguments_of, number, numbers, read_text, spread, train, write
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.study.wires import cut
from scratchformer.training.run import TrainingData

EXPERIMENT = {"model.d_model": 64, "model.d_ff": 128, "training.steps": 500, "training.tokens_per_batch": 512,
              "training.warmup": 100, "training.lr_factor": 0.5, "training.validate_every": 50}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4, "training.validate_every": 2}
CUT = ("none", "memory", "encoder attention", "decoder attention", "source positions", "target positions")
SEEDS = (0, 1, 2)


def run(wire: str, data: TrainingData, config: Config) -> dict[str, Any]:
    training, model = config.training, Transformer(config.model, config.training.seed)
    if wire != "none":
        cut(model, wire)
    curve = train(model, Adam(model, (training.beta1, training.beta2), training.eps), data, config,
                  lambda step: noam(step, config.model.d_model, training.warmup, training.lr_factor))
    return {"seed": training.seed, "parameters": model.store.data.size, "final_loss": number(curve[-1][1]),
            "curve": numbers(curve)}


def row(wire: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """All seeds of one cut."""
    runs = [run(wire, data, configs.with_settings(config, {"training.seed": seed})) for seed in seeds]
    losses = spread([each["final_loss"] for each in runs])
    print(f"{wire}: final loss {losses['mean']} ({losses['lowest']} to {losses['highest']})", flush=True)
    return {"cut": wire, "final_loss": losses, "runs": runs}


def main() -> None:
    arguments = arguments_of(__doc__.split("\n")[0])
    config = configs.with_settings(configs.preset("tiny"), EXPERIMENT | (QUICK if arguments.quick else {}))
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    with threadpool_limits(1):
        provenance = surroundings()                                                # now: git may move while we measure
        data = read_text(config)
        results = [row(wire, data, config, seeds) for wire in CUT]
    write(arguments.out, "wires", {"provenance": provenance, "config": configs.to_dict(config), "seeds": seeds,
                                   "results": results})


if __name__ == "__main__":
    main()
