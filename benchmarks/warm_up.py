"""Does post-LN need a warm-up at every learning rate, does it recover without one, and which reason for it holds?

    python benchmarks/warm_up.py [--quick] [--out DIR]

Small models on the text of the preset tiny, for lesson 15; with and without warm-up, the rate stays at its peak. First,
several peaks, for post-LN and pre-LN. Second, runs that are four times as long. Third, tests of two reasons that
are given: Adam's second moment v rests on too few gradients (so v is averaged first), and the gradients near the output
are large in post-LN (so only some layers are warmed up, and gradient descent with momentum is tried as well). README.md
here says what is recorded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from adam_and_warmup import QUICK, SMALL, WARM_UP, Partly, WithWarmUpFor, common_share, marks
from norm_and_warmup import average_v, correction_of_m, unigram_entropy
from small_training import add_gradient, batches, conduct, number, read_text, spread

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss

PEAK = 0.01
PEAKS = {"post": (0.001, 0.003, 0.01, 0.02), "pre": (0.003, 0.01, 0.02)}
MOMENTUM_PEAKS = (1, 3)
LONG = 600  # steps
LAYERS = (
    "encoder",
    "decoder",
    "last decoder layer",
    "all but last decoder layer",
    "last feed-forward",
    "values and output",
    "values and output, encoder",
    "values and output, decoder",
)
SEEDS = (0, 1, 2)
SEEN_TOGETHER = 5  # steps, whose mean loss is a point of the curve


def warmed(model: Transformer, which: str) -> Array:
    """bool (n_parameters,): the weights with a warm-up."""
    if which.startswith("all but "):
        return ~warmed(model, which.removeprefix("all but "))
    kind, _, stack = which.rpartition(", ")
    if kind:
        return marks(model, kind) & warmed(model, stack)
    part = {
        "encoder": "encoder.",
        "decoder": "decoder.",
        "last decoder layer": f"decoder.layers.{model.config.N - 1}.",
        "last feed-forward": f"decoder.layers.{model.config.N - 1}.feed_forward.",
    }.get(which)
    if part is None:
        return marks(model, which)
    flat = np.zeros(model.store.data.size, bool)
    for name, view in model.store.named_views(flat).items():
        view[...] = name.startswith(part)
    return flat


@np.errstate(over="ignore", invalid="ignore")  # it is the end, and recorded as such
def run(which: str, peak: float, data: TrainingData, config: Config, kind: str = "Adam") -> dict[str, Any]:
    """A training at a constant rate. `which` weights have a warm-up, or "v averaged first"."""
    settings, model = config.training, Transformer(config.model, config.training.seed)
    look_at, averaged, losses = data.val.batch(np.arange(100)), which == "v averaged first", []
    if kind == "Adam":
        optimizer: Adam = WithWarmUpFor(model, config, "none")
        optimizer.marked = warmed(model, "none" if averaged else which)
    else:
        optimizer = Partly(model, config, kind)
    if averaged:
        average_v(model, optimizer, data, config)
    for step, batch in zip(range(1, settings.steps + 1), batches(data, config)):
        losses.append(add_gradient(model, batch, config, step))
        if not math.isfinite(losses[-1]):
            break
        warm = min(1, step / settings.warmup)
        if isinstance(optimizer, WithWarmUpFor):
            optimizer.warm_step(peak * (correction_of_m(step, config) if averaged else 1), warm)
        else:
            optimizer.step(peak * (warm if which == "all" else 1))
    finite = math.isfinite(losses[-1])
    points = [losses[i : i + SEEN_TOGETHER] for i in range(0, len(losses), SEEN_TOGETHER)]
    return {
        "seed": settings.seed,
        "final_loss": number(validation_loss(model, data.val, 4096)) if finite else None,
        "final_common_share": number(common_share(model, look_at)) if finite else None,
        "first_losses": [number(loss) for loss in losses[:20]],
        "curve": [number(float(np.mean(point))) for point in points],
    }


def row(
    norm: str, which: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...], kind: str = "Adam"
) -> dict[str, Any]:
    runs = [
        run(which, peak, data, configs.with_settings(config, {"model.norm": norm, "training.seed": seed}), kind)
        for seed in seeds
    ]
    losses = [each["final_loss"] for each in runs]
    print(f"{kind}, {norm}-LN, peak {peak:g}, warm-up for {which}, {config.training.steps} steps: {losses}", flush=True)
    about = {"optimizer": kind, "norm": norm, "warmed": which, "peak": peak, "steps": config.training.steps}
    return {**about, "final_loss": spread(losses), "runs": runs}


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data, quick = read_text(config), config.training.steps < 10
    longer = configs.with_settings(config, {"training.steps": 4 if quick else LONG})
    ways = ("none", "all")
    return {
        "unigram_entropy": number(unigram_entropy(data.val)),
        "points_of": SEEN_TOGETHER,
        "results": [
            row(norm, which, peak, data, config, seeds)
            for norm, peaks in PEAKS.items()
            for peak in (peaks[:1] if quick else peaks)
            for which in ways
        ],
        "reasons": [row("post", which, PEAK, data, config, seeds) for which in ("v averaged first", *LAYERS)],
        "long": [row("post", which, peak, data, longer, seeds) for peak in (0.003, PEAK) for which in ways],
        "momentum": [
            row(norm, which, peak, data, config, seeds, "with momentum")
            for norm in ("post", "pre")
            for peak in (MOMENTUM_PEAKS[:1] if quick else MOMENTUM_PEAKS)
            for which in ways
        ],
    }


if __name__ == "__main__":
    conduct("warm_up", __doc__, SMALL | WARM_UP, QUICK, SEEDS, measure)
