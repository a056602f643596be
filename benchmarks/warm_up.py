"""Train without a warm-up, with one for some of the weights, and with changes of Adam: three results for lesson 15.

    python benchmarks/warm_up.py [--part adam_and_warmup | norm_and_warmup] [--quick] [--out DIR]

Small models on the text of the preset tiny.

warm_up          With and without warm-up, the rate stays at its peak: at several peaks, for post-LN and pre-LN; in runs
                 that are four times as long; and tests of two reasons: Adam's second moment v rests on too few
                 gradients (so v is averaged first), and the gradients near the output are large in post-LN (so only
                 some layers are warmed up, and gradient descent with momentum is tried as well).
adam_and_warmup  Optimizers that differ from Adam in one point each, at several learning rates; and a warm-up for some
                 of the weights only, all others going at the full rate from the first step on.
norm_and_warmup  A model as deep as the paper's. Without warm-up, the learning rate is at its peak from the first step
                 on, until it falls in both cases in the same way. A third way begins at the peak after 100 steps at
                 learning rate 0, in which v becomes an average over 100 gradients; m begins at 0, as always.
"""

import math
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from harness import number, rounded
from small_training import (
    Part,
    adam_of,
    add_gradient,
    batches,
    conduct,
    equal_lengths,
    read_text,
    row,
    schedule_of,
    trained,
)

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, EncodedPairs
from scratchformer.text.tokenizer import PAD
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
PEAK = 0.01
LOOK_AT = 20  # step of the early look
SEEN_TOGETHER = 5  # steps, whose mean loss is a point of the curve
V_FIRST = "v averaged first"

# Optimizers -----------------------------------------------------------------------------------------------------------


class Partly(Adam):
    """Adam, or a part of it, with a warm-up for some of the weights.

    gradient descent             w -= rate g
    with momentum                w -= rate m_hat
    one divisor for all          Adam with the mean of v over the whole model
    one divisor for each array   Adam with the mean of v over each weight matrix and each vector
    Adam without momentum        Adam with beta1 = 0
    """

    def __init__(self, model: Transformer, config: Config, kind: str = "Adam", warmed: str = "none") -> None:
        beta1 = 0.0 if kind in ("Adam without momentum", "gradient descent") else config.training.beta1
        super().__init__(model, (beta1, config.training.beta2), config.training.eps)
        self.kind, self.marked = kind, marks(model, warmed)

    def step(self, learning_rate: float, norm: Array | None = None) -> None:
        if "Adam" in self.kind:
            return super().step(learning_rate, norm)
        self.t += 1
        (beta1, beta2), g = self.betas, self.store.grad
        self.m += (1 - beta1) * (g - self.m)
        self.v += (1 - beta2) * (g**2 - self.v)
        update = self.m / (1 - beta1**self.t)
        if "divisor" in self.kind:
            v_hat = self.v / (1 - beta2**self.t)
            for part in self.store.named_views(v_hat).values() if "array" in self.kind else [v_hat]:
                part[...] = part.mean()
            update /= np.sqrt(v_hat) + self.eps
        self.store.data -= np.float32(learning_rate) * update

    def warm_step(self, learning_rate: float, warm: float) -> None:
        """Take a step that is `warm` (0 to 1) times as long for the marked weights."""
        before = self.store.data.copy()
        self.step(learning_rate)
        self.store.data[self.marked] = (before + np.float32(warm) * (self.store.data - before))[self.marked]


def marks(model: Transformer, which: str) -> Array:
    """Mark the weights of a group, bool (n_parameters,). Queries, keys and values lie side by side in one array."""
    if which.startswith("all but "):
        return ~marks(model, which.removeprefix("all but "))
    kind, _, stack = which.rpartition(", ")
    if kind:
        return marks(model, kind) & marks(model, stack)
    last = f"decoder.layers.{model.config.N - 1}."
    beginnings = {"encoder": "encoder.", "decoder": "decoder."}
    beginnings |= {"last decoder layer": last, "last feed-forward": f"{last}feed_forward."}
    flat = np.zeros(model.store.data.size, bool)
    for name, view in model.store.named_views(flat).items():
        width = view.shape[-1]
        n_queries_keys = {"qkv": width * 2 // 3, "q": width, "kv": width // 2, "output": 0}
        if which in ("none", "all"):
            view[...] = which == "all"
        elif which in beginnings:
            view[...] = name.startswith(beginnings[which])
        elif "norm" in name or "embedding" in name:
            view[...] = which == ("norms" if "norm" in name else "embedding")
        elif "feed_forward" in name:
            view[...] = which == "feed-forward"
        else:
            end = n_queries_keys[name.split(".")[-2]]
            view[..., :end] = which in ("attention", "queries and keys")
            view[..., end:] = which in ("attention", "values and output")
    return flat


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


# Runs at a constant rate: warm_up and adam_and_warmup -----------------------------------------------------------------


def common_share(model: Transformer, batch: Batch) -> float:
    """Of the mean square of the decoder's output vectors, how much is one vector common to all words: 0 to 1."""
    states, _ = model.states(*batch.inputs)
    rows = np.asarray(states).reshape(-1, states.shape[-1])[batch.targets.reshape(-1) != PAD]  # (n, D)
    return float((rows.mean(axis=0) ** 2).sum() / (rows**2).sum(axis=1).mean())


@np.errstate(over="ignore", invalid="ignore")  # it is the end, and recorded as such
def run(warmed: str, peak: float, kind: str, data: TrainingData, config: Config) -> dict[str, Any]:
    """Train at a constant rate. `warmed` weights have a warm-up, or V_FIRST; another optimizer than Adam has one for
    all its weights or for none. kind: of `Partly`; "" is Adam"""
    settings, model = config.training, Transformer(config.model, config.training.seed)
    look_at, losses, early = data.val.batch(np.arange(100)), [], [math.nan, math.nan]
    optimizer = Partly(model, config, kind or "Adam", "none" if warmed == V_FIRST else warmed)
    if warmed == V_FIRST:
        average_v(model, optimizer, data, config)

    def look() -> list[float]:
        return [validation_loss(model, data.val, 4096), common_share(model, look_at)]

    for step, batch in zip(range(1, settings.steps + 1), batches(data, config)):
        losses.append(add_gradient(model, batch, config, step))
        if not math.isfinite(losses[-1]):
            break
        warm = min(1, step / settings.warmup)
        if kind:
            optimizer.step(peak * (warm if warmed == "all" else 1))
        else:
            optimizer.warm_step(peak * (correction_of_m(step, config) if warmed == V_FIRST else 1), warm)
        if step == min(LOOK_AT, settings.steps):
            early = look()
    final = look() if math.isfinite(losses[-1]) else [math.nan, math.nan]
    points = [float(np.mean(losses[i : i + SEEN_TOGETHER])) for i in range(0, len(losses), SEEN_TOGETHER)]
    found = {"final_loss": final[0], "early_loss": early[0]}
    found |= {"early_common_share": early[1], "final_common_share": final[1]}
    return {"seed": settings.seed} | rounded(found | {"first_losses": losses[:20], "curve": points})


def compared(
    norm: str, warmed: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...], kind: str = ""
) -> dict[str, Any]:
    """Train one way with all seeds."""
    about = {"optimizer": kind or "Adam", "norm": norm, "warmed": warmed, "peak": peak, "steps": config.training.steps}
    config = configs.with_settings(config, {"model.norm": norm})
    return row(about, partial(run, warmed, peak, kind, data), config, seeds)


PEAKS = {"post": (0.001, 0.003, PEAK, 0.02), "pre": (0.003, PEAK, 0.02)}
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


def unigram_entropy(pairs: EncodedPairs) -> float:
    """Of the target tokens, in nats: no model that ignores its input can have a lower loss on them."""
    n = np.bincount(pairs.target.ids)
    shares = n[n > 0] / n.sum()
    return -float(shares @ np.log(shares))


def measure_reasons(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    (_, data), quick, ways = read_text(config), config.training.steps < 10, ("none", "all")
    longer = configs.with_settings(config, {"training.steps": 4 if quick else LONG})
    few = 1 if quick else None  # of the peaks
    one = partial(compared, data=data, seeds=seeds, config=config)
    norms = PEAKS.items()
    momentum = [(norm, peak) for norm in PEAKS for peak in MOMENTUM_PEAKS[:few]]
    return {
        "unigram_entropy": number(unigram_entropy(data.val)),
        "points_of": SEEN_TOGETHER,
        "results": [one(norm, which, peak) for norm, peaks in norms for peak in peaks[:few] for which in ways],
        "reasons": [one("post", which, PEAK) for which in (V_FIRST, *LAYERS)],
        "long": [one("post", which, peak, config=longer) for peak in (0.003, PEAK) for which in ways],
        "momentum": [one(norm, which, peak, kind="with momentum") for norm, peak in momentum for which in ways],
    }


RATES = {
    "gradient descent": (0.1, 0.3, 1, 3),
    "with momentum": (0.3, 1, 3, 10),
    "one divisor for all": (0.001, 0.003, 0.01, 0.03),
    "one divisor for each array": (0.003, 0.01, 0.03, 0.1),
    "Adam": (0.001, 0.003, 0.01, 0.03),
    "Adam without momentum": (0.001, 0.003, 0.01, 0.03),
}
WARMED = (
    "none",
    "all",
    "attention",
    "queries and keys",
    "values and output",
    "all but values and output",
    "feed-forward",
    "norms",
    "embedding",
)


def measure_adam(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    _, data = read_text(config)
    shallow = configs.with_settings(config, {"model.N": 1, "training.warmup": min(20, config.training.warmup)})
    rows = [
        compared(norm, which, PEAK, data, config, seeds)
        for norm, ways in (("post", WARMED), ("pre", WARMED[:2]))
        for which in ways
    ]
    optimizers = []
    for kind, rates in RATES.items():
        for rate in rates:
            found = compared(config.model.norm, "all", rate, data, shallow, seeds[:3], kind)
            losses = [each["final_loss"] for each in found["runs"]]
            optimizers.append({"optimizer": kind, "rate": rate, "final_loss": found["final_loss"], "losses": losses})
    return {"optimizer_config": configs.to_dict(shallow), "results": rows, "optimizers": optimizers}


# A deep model, whose rate falls after the warm-up: norm_and_warmup ----------------------------------------------------

NORM = {
    "model.N": 6,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.h": 4,
    "training.steps": 300,
    "training.tokens_per_batch": 512,
    "training.warmup": 100,
    "training.validate_every": 25,
}
QUICK_NORM = {"model.N": 2, "model.d_model": 16, "model.d_ff": 32}
QUICK_NORM |= {"training.steps": 4, "training.warmup": 2, "training.validate_every": 2}
NORM_PEAKS = (0.001, 0.003)  # of the learning rate
STARTS = {"post": ("warm-up", "none", V_FIRST), "pre": ("warm-up", "none")}


def learning_rate(step: int, way: str, peak: float, config: Config) -> float:
    """Rises to `peak` at step `warmup`, or is there at once; then falls with the square root of the step."""
    return schedule_of(config, peak)(step if way == "warm-up" else max(step, config.training.warmup))


def norm_run(way: str, peak: float, data: TrainingData, config: Config) -> dict[str, Any]:
    model = Transformer(config.model, config.training.seed)
    optimizer = adam_of(model, config)
    if way == V_FIRST:
        average_v(model, optimizer, data, config)

    def rate(step: int) -> float:
        return learning_rate(step, way, peak, config) * (correction_of_m(step, config) if way == V_FIRST else 1)

    return trained(model, data, config, rate, optimizer)


def first_gradients(norm: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Length of the first gradient of the second matrix of each feed-forward network of the decoder, mean over the
    seeds: Xiong et al. (2020) derive and measure it."""
    lengths = []
    for seed in seeds:
        seeded = configs.with_settings(config, {"model.norm": norm, "training.seed": seed})
        model = Transformer(seeded.model, seed)
        add_gradient(model, equal_lengths(data.train, 64), seeded, step=1)
        outer = [layer.feed_forward.sublayer.outer for layer in model.decoder.layers]
        squares = [sum(float((each.grad**2).sum()) for each in layer.parameters().values()) for layer in outer]
        lengths.append(np.sqrt(squares))
    return {"norm": norm, "decoder W_2": rounded(np.mean(lengths, axis=0))}


def measure_norms(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    _, data = read_text(config)
    rows = []
    for peak in NORM_PEAKS:
        for norm, ways in STARTS.items():
            normed = configs.with_settings(config, {"model.norm": norm})
            for way in ways:
                about = {"norm": norm, "start": way, "peak_learning_rate": peak}
                rows.append(row(about, partial(norm_run, way, peak, data), normed, seeds))
    gradients = [first_gradients(norm, data, config, seeds) for norm in STARTS]
    return {"unigram_entropy": number(unigram_entropy(data.val)), "results": rows, "first_gradients": gradients}


PARTS = {
    "warm_up": Part(SMALL, QUICK, (0, 1, 2), measure_reasons),
    "adam_and_warmup": Part(SMALL, QUICK, (0, 1, 2, 3, 4), measure_adam),
    "norm_and_warmup": Part(NORM, QUICK_NORM, (0, 1, 2, 3, 4), measure_norms),
}

if __name__ == "__main__":
    conduct(__doc__, PARTS)
