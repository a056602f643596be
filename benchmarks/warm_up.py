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

README.md here says what is recorded.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
from small_training import (
    Part,
    adam_of,
    add_gradient,
    batches,
    conduct,
    equal_lengths,
    number,
    numbers,
    read_text,
    spread,
    train,
)

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Array, Layer
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, EncodedPairs
from scratchformer.text.tokenizer import PAD
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss

SMALL = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.h": 2,
    "model.P_drop": 0.0,
    "training.tokens_per_batch": 256,
    "training.eps_ls": 0.0,
}
OPTIMIZERS = {"model.N": 1, "training.steps": 150, "training.warmup": 20}
WARM_UP = {"model.N": 3, "training.steps": 150, "training.warmup": 40}
QUICK = {"model.N": 1, "model.d_model": 16, "training.steps": 2, "training.warmup": 2}

RATES = {
    "gradient descent": (0.1, 0.3, 1, 3),
    "with momentum": (0.3, 1, 3, 10),
    "one divisor for all": (0.001, 0.003, 0.01, 0.03),
    "one divisor for each array": (0.003, 0.01, 0.03, 0.1),
    "Adam": (0.001, 0.003, 0.01, 0.03),
    "Adam without momentum": (0.001, 0.003, 0.01, 0.03),
}
PEAK = 0.01
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
LOOK_AT = 20  # step of the early look
SEEDS = (0, 1, 2, 3, 4)

# Optimizers ----------------------------------------------------------------------------------------------------------


class Partly(Adam):
    """Adam, or what is left of it.

    gradient descent             w -= rate g
    with momentum                w -= rate m_hat
    one divisor for all          Adam with the mean of v over the whole model
    one divisor for each array   Adam with the mean of v over each weight matrix and each vector
    Adam without momentum        Adam with beta1 = 0
    """

    def __init__(self, model: Transformer, config: Config, kind: str) -> None:
        beta1 = 0.0 if kind in ("Adam without momentum", "gradient descent") else config.training.beta1
        super().__init__(model, (beta1, config.training.beta2), config.training.eps)
        self.kind = kind

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


class WithWarmUpFor(Adam):
    """Adam whose steps are `warm` (0 to 1) times as long for the marked weights."""

    def __init__(self, model: Transformer, config: Config, which: str) -> None:
        super().__init__(model, (config.training.beta1, config.training.beta2), config.training.eps)
        self.marked = marks(model, which)

    def warm_step(self, learning_rate: float, warm: float) -> None:
        before = self.store.data.copy()
        super().step(learning_rate)
        self.store.data[self.marked] = (before + np.float32(warm) * (self.store.data - before))[self.marked]


def marks(model: Transformer, which: str) -> Array:
    """bool (n_parameters,): which weights are meant. Queries, keys and values lie side by side in one array."""
    if which.startswith("all but "):
        return ~marks(model, which.removeprefix("all but "))
    flat = np.zeros(model.store.data.size, bool)
    for name, view in model.store.named_views(flat).items():
        width = view.shape[-1]
        n_queries_keys = {"qkv": width * 2 // 3, "q": width, "kv": width // 2, "output": 0}
        if which in ("none", "all"):
            view[...] = which == "all"
        elif "norm" in name or "embedding" in name:
            view[...] = which == ("norms" if "norm" in name else "embedding")
        elif "feed_forward" in name:
            view[...] = which == "feed-forward"
        else:
            end = n_queries_keys[name.split(".")[-2]]
            view[..., :end] = which in ("attention", "queries and keys")
            view[..., end:] = which in ("attention", "values and output")
    return flat


# Runs -----------------------------------------------------------------------------------------------------------------


def common_share(model: Transformer, batch: Batch) -> float:
    """Of the mean square of the decoder's output vectors, how much is one vector common to all words: 0 to 1."""
    states, _ = model.states(*batch.inputs)
    rows = np.asarray(states).reshape(-1, states.shape[-1])[batch.targets.reshape(-1) != PAD]  # (n, D)
    return float((rows.mean(axis=0) ** 2).sum() / (rows**2).sum(axis=1).mean())


@np.errstate(over="ignore", invalid="ignore")  # it is the end, and recorded as such
def optimizer_run(kind: str, rate: float, data: TrainingData, config: Config) -> float:
    """-> validation loss after the last step"""
    model = Transformer(config.model, config.training.seed)
    optimizer = Partly(model, config, kind)
    for step, batch in zip(range(1, config.training.steps + 1), batches(data, config)):
        if not math.isfinite(add_gradient(model, batch, config, step)):
            return math.nan
        optimizer.step(rate * min(1, step / config.training.warmup))
    return validation_loss(model, data.val, config.training.tokens_per_batch)


def warm_up_run(which: str, data: TrainingData, config: Config) -> dict[str, Any]:
    model, look_at = Transformer(config.model, config.training.seed), data.val.batch(np.arange(100))
    optimizer, early, share = WithWarmUpFor(model, config, which), math.nan, math.nan
    for step, batch in zip(range(1, config.training.steps + 1), batches(data, config)):
        add_gradient(model, batch, config, step)
        optimizer.warm_step(PEAK, min(1, step / config.training.warmup))
        if step == min(LOOK_AT, config.training.steps):
            early, share = validation_loss(model, data.val, 4096), common_share(model, look_at)
    return {
        "seed": config.training.seed,
        "final_loss": number(validation_loss(model, data.val, 4096)),
        "early_loss": number(early),
        "early_common_share": number(share),
        "final_common_share": number(common_share(model, look_at)),
    }


def optimizer_row(kind: str, rate: float, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    losses = [
        number(optimizer_run(kind, rate, data, configs.with_settings(config, {"training.seed": seed})))
        for seed in seeds
    ]
    print(f"{kind}, rate {rate:g}: {losses}", flush=True)
    return {"optimizer": kind, "rate": rate, "final_loss": spread(losses), "losses": losses}


def warm_up_row(norm: str, which: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    runs = [
        warm_up_run(which, data, configs.with_settings(config, {"model.norm": norm, "training.seed": seed}))
        for seed in seeds
    ]
    losses = [run["final_loss"] for run in runs]
    print(f"{norm}-LN, warm-up for {which}: {losses}, common {[run['early_common_share'] for run in runs]}", flush=True)
    return {"norm": norm, "warmed": which, "final_loss": spread(losses), "runs": runs}


def measure_adam(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data, quick = read_text(config), config.training.steps < 10
    optimizer_config = configs.with_settings(config, OPTIMIZERS | (QUICK if quick else {}))
    rows = [
        warm_up_row(norm, which, data, config, seeds)
        for norm, ways in (("post", WARMED), ("pre", WARMED[:2]))
        for which in ways
    ]
    return {
        "optimizer_config": configs.to_dict(optimizer_config),
        "peak": PEAK,
        "results": rows,
        "optimizers": [
            optimizer_row(kind, rate, data, optimizer_config, seeds[:3])
            for kind, rates in RATES.items()
            for rate in rates
        ],
    }


# With and without warm-up: norm_and_warmup ----------------------------------------------------------------------------

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
QUICK_NORM = {
    "model.N": 2,
    "model.d_model": 16,
    "model.d_ff": 32,
    "training.steps": 4,
    "training.warmup": 2,
    "training.validate_every": 2,
}
NORM_PEAKS = (0.001, 0.003)  # of the learning rate
STARTS = {"post": ("warm-up", "none", "v averaged first"), "pre": ("warm-up", "none")}
TARGET = 4.5  # nats per target token

# Training with and without warm-up ------------------------------------------------------------------------------------


def learning_rate(step: int, way: str, peak: float, config: Config) -> float:
    """Rises to `peak` at step `warmup`, or is there at once; then falls with the square root of the step."""
    d_model, warmup = config.model.d_model, config.training.warmup
    factor = peak / noam(warmup, d_model, warmup)
    return noam(step if way == "warm-up" else max(step, warmup), d_model, warmup, factor)


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


def norm_run(way: str, peak: float, data: TrainingData, config: Config, constant_loss: float) -> dict[str, Any]:
    training, model = config.training, Transformer(config.model, config.training.seed)
    optimizer = adam_of(model, config)
    v_averaged = way == "v averaged first"
    if v_averaged:
        average_v(model, optimizer, data, config)

    def rate(step: int) -> float:
        return learning_rate(step, way, peak, config) * (correction_of_m(step, config) if v_averaged else 1)

    curve = train(model, optimizer, data, config, rate)
    final_loss = curve[-1][1]
    return {
        "seed": training.seed,
        "final_loss": number(final_loss),
        "diverged": not final_loss <= constant_loss,
        "steps_to_target": next((step for step, loss in curve if loss <= TARGET), None),
        "curve": numbers(curve),
    }


def norm_row(
    norm: str, way: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...], constant_loss: float
) -> dict[str, Any]:
    """All seeds of one arrangement, one way to begin and one peak."""
    runs = [norm_run(way, peak, data, with_norm(config, norm, seed), constant_loss) for seed in seeds]
    losses = spread([each["final_loss"] for each in runs])
    result = {
        "norm": norm,
        "start": way,
        "peak_learning_rate": peak,
        "final_loss": losses,
        "divergences": sum(each["diverged"] for each in runs),
        "reached_target": sum(each["steps_to_target"] is not None for each in runs),
        "runs": runs,
    }
    print(
        f"{norm}-LN, {way}, peak {peak:g}: final loss {losses['mean']} ({losses['lowest']} to {losses['highest']}), "
        f"{result['divergences']} of {len(seeds)} diverged, target after "
        f"{[each['steps_to_target'] for each in runs]}",
        flush=True,
    )
    return result


def with_norm(config: Config, norm: str, seed: int) -> Config:
    return configs.with_settings(config, {"model.norm": norm, "training.seed": seed})


def unigram_entropy(pairs: EncodedPairs) -> float:
    """Of the target tokens, in nats: no model that ignores its input can have a lower loss on them."""
    counts = np.bincount(pairs.target.ids)
    shares = counts[counts > 0] / counts.sum()
    return -float(shares @ np.log(shares))


# Gradients before the first step --------------------------------------------------------------------------------------


def first_gradients(norm: str, data: TrainingData, config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Length of the first gradient in each layer, mean over the seeds: of all the layer's parameters, and of the
    second matrix of its feed-forward network, which is what Xiong et al. (2020) derive and measure."""
    lengths: dict[str, list[list[float]]] = {}
    for seed in seeds:
        seeded = with_norm(config, norm, seed)
        model = Transformer(seeded.model, seed)
        add_gradient(model, equal_lengths(data.train, 64), seeded, step=1)
        for stack, layers in (("encoder", model.encoder.layers), ("decoder", model.decoder.layers)):
            lengths.setdefault(stack, []).append([gradient_length(layer) for layer in layers])
            lengths.setdefault(f"{stack} W_2", []).append(
                [gradient_length(layer.feed_forward.sublayer.outer) for layer in layers]
            )
    return {"norm": norm} | {
        name: [number(mean) for mean in np.mean(values, axis=0)] for name, values in lengths.items()
    }


def gradient_length(layer: Layer) -> float:
    return math.sqrt(sum(float((parameter.grad**2).sum()) for parameter in layer.parameters().values()))


def measure_norms(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = read_text(config)
    constant_loss = unigram_entropy(data.val)
    gradients = [first_gradients(norm, data, config, seeds) for norm in STARTS]
    rows = [
        norm_row(norm, way, peak, data, config, seeds, constant_loss)
        for peak in NORM_PEAKS
        for norm, ways in STARTS.items()
        for way in ways
    ]
    return {
        "target_loss": TARGET,
        "unigram_entropy": number(constant_loss),
        "results": rows,
        "first_gradients": gradients,
    }


# Reasons: warm_up -----------------------------------------------------------------------------------------------------

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
def constant_run(which: str, peak: float, data: TrainingData, config: Config, kind: str = "Adam") -> dict[str, Any]:
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


def constant_row(
    norm: str, which: str, peak: float, data: TrainingData, config: Config, seeds: tuple[int, ...], kind: str = "Adam"
) -> dict[str, Any]:
    runs = [
        constant_run(
            which, peak, data, configs.with_settings(config, {"model.norm": norm, "training.seed": seed}), kind
        )
        for seed in seeds
    ]
    losses = [each["final_loss"] for each in runs]
    print(f"{kind}, {norm}-LN, peak {peak:g}, warm-up for {which}, {config.training.steps} steps: {losses}", flush=True)
    about = {"optimizer": kind, "norm": norm, "warmed": which, "peak": peak, "steps": config.training.steps}
    return {**about, "final_loss": spread(losses), "runs": runs}


def measure_reasons(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data, quick = read_text(config), config.training.steps < 10
    longer = configs.with_settings(config, {"training.steps": 4 if quick else LONG})
    ways = ("none", "all")
    return {
        "unigram_entropy": number(unigram_entropy(data.val)),
        "points_of": SEEN_TOGETHER,
        "results": [
            constant_row(norm, which, peak, data, config, seeds)
            for norm, peaks in PEAKS.items()
            for peak in (peaks[:1] if quick else peaks)
            for which in ways
        ],
        "reasons": [constant_row("post", which, PEAK, data, config, seeds) for which in ("v averaged first", *LAYERS)],
        "long": [constant_row("post", which, peak, data, longer, seeds) for peak in (0.003, PEAK) for which in ways],
        "momentum": [
            constant_row(norm, which, peak, data, config, seeds, "with momentum")
            for norm in ("post", "pre")
            for peak in (MOMENTUM_PEAKS[:1] if quick else MOMENTUM_PEAKS)
            for which in ways
        ],
    }


PARTS = {
    "warm_up": Part(SMALL | WARM_UP, QUICK, SEEDS[:3], measure_reasons),
    "adam_and_warmup": Part(SMALL | WARM_UP, QUICK, SEEDS, measure_adam),
    "norm_and_warmup": Part(NORM, QUICK_NORM, SEEDS, measure_norms),
}

if __name__ == "__main__":
    conduct(__doc__, PARTS)
