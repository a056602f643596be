"""Which part of Adam does what, and which weights need a warm-up?

    python benchmarks/adam_and_warmup.py [--quick] [--out DIR]

Two experiments with small models on the text of the preset tiny, for lesson 15. First, optimizers that differ from Adam
in one point each, at several learning rates. Second, training with and without warm-up, and with a warm-up for some of
the weights only, all others going at the full rate from the first step on. README.md here says what is recorded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from provenance import surroundings
from small_training import WRITTEN_TEXT, add_gradient, arguments_of, batches, number, read_text, spread, write
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
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


def main() -> None:
    arguments = arguments_of(__doc__.split("\n")[0])
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    base = configs.with_settings(configs.preset("tiny"), SMALL)
    first, second = (
        configs.with_settings(base, settings | (QUICK | WRITTEN_TEXT if arguments.quick else {}))
        for settings in (OPTIMIZERS, WARM_UP)
    )
    with threadpool_limits(1):
        provenance = surroundings()  # now: git may move while we measure
        data = read_text(base)
        rows = [
            warm_up_row(norm, which, data, second, seeds)
            for norm, ways in (("post", WARMED), ("pre", WARMED[:2]))
            for which in ways
        ]
        optimizers = [
            optimizer_row(kind, rate, data, first, seeds[:3]) for kind, rates in RATES.items() for rate in rates
        ]
    write(
        arguments.out,
        "adam_and_warmup",
        {
            "provenance": provenance,
            "config": configs.to_dict(second),
            "optimizer_config": configs.to_dict(first),
            "peak": PEAK,
            "seeds": seeds,
            "results": rows,
            "optimizers": optimizers,
        },
    )


if __name__ == "__main__":
    main()
