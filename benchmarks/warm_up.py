"""Train with and without a warm-up of the learning rate, and with momentum instead of Adam: results for lesson 15.

    python benchmarks/warm_up.py [--quick] [--out DIR]

Small models on the text of the preset tiny. With or without warm-up, the rate then stays at its peak: at several peaks,
for post-LN and pre-LN; and in runs that are four times as long. One more way tests whether Adam's second moment v rests
on too few gradients at first: v is averaged over as many gradients as a warm-up has steps, then training begins at the
peak. README.md here says what the fields of the result are.
"""

import math
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from harness import number, rounded
from small_training import Part, adam_of, add_gradient, batches, conduct, read_text, row

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import EncodedPairs
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss

SMALL = {
    "model.N": 3,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.h": 2,
    "model.P_drop": 0.0,
    "training.tokens_per_batch": 256,
    "training.eps_ls": 0.0,
    "training.steps": 150,
    "training.warmup": 40,
}
QUICK = {"model.N": 1, "model.d_model": 16, "training.steps": 2, "training.warmup": 2}
PEAK, PEAKS = 0.01, {"post": (0.001, 0.003, 0.01, 0.02), "pre": (0.003, 0.01, 0.02)}
LONG = {"training.steps": 600}
SHALLOW = {"model.N": 1, "training.warmup": 20}
SEEN_TOGETHER = 5  # steps, whose mean loss is a point of the curve
V_FIRST = "v averaged first"


class Momentum(Adam):
    """Gradient descent with momentum: w -= rate m_hat"""

    def step(self, learning_rate: float, norm: Array | None = None) -> None:
        self.t += 1
        self.m += (1 - self.betas[0]) * (self.store.grad - self.m)
        self.store.data -= np.float32(learning_rate) * (self.m / (1 - self.betas[0] ** self.t))


OPTIMIZERS: dict[str, tuple[type[Adam], tuple[float, ...]]] = {
    "with momentum": (Momentum, (0.3, 1, 3, 10)),
    "Adam": (Adam, (0.001, 0.003, 0.01, 0.03)),
}
"""Name of an optimizer -> its class and the rates to compare."""


def average_v(model: Transformer, optimizer: Adam, data: TrainingData, config: Config) -> None:
    """Let Adam see the gradients of the first batches without moving: v becomes an average over them. m would only
    remember the place where training begins, so it is emptied again."""
    for step, batch in enumerate(islice(batches(data, config), config.training.warmup), start=1):
        add_gradient(model, batch, config, step)
        optimizer.step(0.0)
    optimizer.m[...] = 0


def correction_of_m(step: int, config: Config) -> float:
    """Adam divides m by 1 - beta1^t. After `average_v` its t is `warmup` steps ahead of m; this makes up for it."""
    beta1, warmup = config.training.beta1, config.training.warmup
    return (1 - beta1 ** (warmup + step)) / (1 - beta1**step)


@np.errstate(over="ignore", invalid="ignore")  # it is the end, and recorded as such
def run(warmed: str, peak: float, kind: str, data: TrainingData, config: Config) -> dict[str, Any]:
    """Train at a constant rate, after a warm-up ("all"), without one ("none"), or with V_FIRST."""
    settings, model, losses = config.training, Transformer(config.model, config.training.seed), []
    optimizer = adam_of(model, config, OPTIMIZERS[kind][0])
    if warmed == V_FIRST:
        average_v(model, optimizer, data, config)
    for step, batch in zip(range(1, settings.steps + 1), batches(data, config)):
        losses.append(add_gradient(model, batch, config, step))
        if not math.isfinite(losses[-1]):
            break
        before = model.store.data.copy()
        optimizer.step(peak * (correction_of_m(step, config) if warmed == V_FIRST else 1))
        if warmed == "all":  # a part of the step
            warm = np.float32(min(1, step / settings.warmup))
            model.store.data[...] = before + warm * (model.store.data - before)
    final = validation_loss(model, data.val, 4096) if math.isfinite(losses[-1]) else math.nan
    points = [float(np.mean(losses[i : i + SEEN_TOGETHER])) for i in range(0, len(losses), SEEN_TOGETHER)]
    return {"seed": settings.seed} | rounded({"final_loss": final, "first_losses": losses[:20], "curve": points})


def unigram_entropy(pairs: EncodedPairs) -> float:
    """Of the target tokens, in nats: no model that ignores its input can have a lower loss on them."""
    n = np.bincount(pairs.target.ids)
    shares = n[n > 0] / n.sum()
    return -float(shares @ np.log(shares))


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    (_, data), quick = read_text(config), config.training.steps < 10
    few = 1 if quick else None  # of the peaks

    def one(norm: str, warmed: str, peak: float, kind: str = "Adam", **changes: Any) -> dict[str, Any]:
        changed = configs.with_settings(config, {"model.norm": norm} | ({} if quick else changes))
        about = {"optimizer": kind, "norm": norm, "warmed": warmed, "peak": peak, "steps": changed.training.steps}
        return row(about, partial(run, warmed, peak, kind, data), changed, seeds)

    ways = "none", "all"
    return {
        "unigram_entropy": number(unigram_entropy(data.val)),
        "points_of": SEEN_TOGETHER,
        "results": [one(norm, way, peak) for norm, peaks in PEAKS.items() for peak in peaks[:few] for way in ways],
        "v_first": [one("post", V_FIRST, PEAK)],
        "long": [one("post", way, peak, **LONG) for peak in (0.003, PEAK) for way in ways],
        "optimizers": [
            one("post", "all", rate, kind, **SHALLOW) for kind, (_, rates) in OPTIMIZERS.items() for rate in rates[:few]
        ],
    }


if __name__ == "__main__":
    conduct(__doc__, {"warm_up": Part(SMALL, QUICK, (0, 1, 2), measure)})
