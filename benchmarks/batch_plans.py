"""Compare ways to cut an epoch into batches: in buckets, sorted by length, with or without small rests.

    python benchmarks/batch_plans.py --data DIR [--quick] [--out DIR]              # Multi30k in DIR; an hour

Five plans train the same small model on Multi30k, three seeds each: for one seed they start from the same weights. All
have the same budget of positions, and all stop at the same number of target tokens, since a plan with less padding
needs fewer steps for them. `curve` has the losses on the way, for a comparison after equal numbers of steps. The second
part, `longer`, asks whether the difference between two of the plans lasts: a still smaller model, six epochs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import number, record, rounded, spread
from small_training import read_text

from scratchformer import config as configs
from scratchformer.backends.device import Device
from scratchformer.config import Config
from scratchformer.text.batches import BatchPlan, EncodedPairs, bucket_boundaries, steps
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer
from scratchformer.training.validation import validation_loss

EXPERIMENT = {
    "model.N": 2,
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.vocab_size": 2500,
    "model.P_drop": 0.0,
    "training.tokens_per_batch": 512,
    "training.warmup": 200,
    "training.lr_factor": 0.6,
    "training.threads": 1,
    "training.max_tokens": 600_000,
    "training.validate_every": 50,
}
LONGER = {
    "model.N": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "training.max_tokens": 3_000_000,
    "training.validate_every": 200,
}
LONGER_PLANS = "buckets", "buckets, mixed steps"
QUICK = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.vocab_size": 60,
    "training.tokens_per_batch": 80,
    "training.max_tokens": 4000,
    "training.validate_every": 2,
}
SEEDS = (0, 1, 2)
SMALL = 0.25  # of the median target tokens of a step

Steps = list[np.ndarray]  # of an epoch, each the indices of its pairs

# The plans ------------------------------------------------------------------------------------------------------------


class Setting:
    """The lengths and settings that a plan may look at."""

    def __init__(self, pairs: EncodedPairs, config: Config) -> None:
        training = config.training
        self.lengths = pairs.lengths
        self.boundaries = bucket_boundaries(pairs.max_length, training.bucket_fineness)
        self.budget, self.accumulation = training.tokens_per_batch, training.accumulation


def buckets(setting: Setting, random: np.random.Generator, accumulation: int, carry: bool = False) -> Steps:
    """As BatchPlan's buckets; `carry`: what is left over of a bucket goes to the next one, of longer pairs."""
    shuffled = random.permutation(len(setting.lengths))
    bucket_of = np.searchsorted(setting.boundaries, setting.lengths[shuffled])
    cut: Steps = []
    rest = shuffled[:0]
    for bucket, boundary in enumerate(setting.boundaries):
        members = np.concatenate([rest, shuffled[bucket_of == bucket]])
        size = max(1, setting.budget // boundary) * accumulation
        full = len(members) // size * size if carry else len(members)
        cut += [members[i : min(i + size, full)] for i in range(0, full, size)]
        rest = members[full:]
    return cut + ([rest] if len(rest) else [])


def by_length(setting: Setting, random: np.random.Generator, accumulation: int) -> Steps:
    """All pairs, the longest first and equal ones in random order, cut where the budget is full."""
    shuffled = random.permutation(len(setting.lengths))
    order = shuffled[np.argsort(-setting.lengths[shuffled], kind="stable")]
    cut, start = [], 0
    while start < len(order):
        size = setting.budget // int(setting.lengths[order[start]]) * accumulation
        cut.append(order[start : start + size])
        start += size
    return cut


def shuffled(cut: Steps, random: np.random.Generator) -> Steps:
    return [cut[i] for i in random.permutation(len(cut))]


def mixed(cut: Steps, random: np.random.Generator, accumulation: int) -> Steps:
    """Micro-batches, shuffled, then so many to a step."""
    batches = shuffled(cut, random)
    return [np.concatenate(batches[i : i + accumulation]) for i in range(0, len(batches), accumulation)]


PLANS: dict[str, Callable[[Setting, np.random.Generator], Steps]] = {
    "buckets": lambda setting, random: shuffled(buckets(setting, random, setting.accumulation), random),
    "buckets, rests carried on": lambda setting, random: shuffled(
        buckets(setting, random, setting.accumulation, carry=True), random
    ),
    "sorted": lambda setting, random: shuffled(by_length(setting, random, setting.accumulation), random),
    "buckets, mixed steps": lambda setting, random: mixed(buckets(setting, random, 1), random, setting.accumulation),
    "sorted, mixed steps": lambda setting, random: mixed(by_length(setting, random, 1), random, setting.accumulation),
}
"""A name -> the steps of an epoch. The library's BatchPlan cuts a step into its micro-batches."""


class Plan(BatchPlan):
    """The library's plan with other epochs."""

    def __init__(self, name: str, pairs: EncodedPairs, config: Config) -> None:
        training = config.training
        super().__init__(pairs, training.tokens_per_batch, training.accumulation, training.seed)
        self.name, self.setting = name, Setting(pairs, config)

    def epoch(self, epoch: int) -> Steps:
        return PLANS[self.name](self.setting, np.random.default_rng([self.seed, epoch]))


# What they are like ---------------------------------------------------------------------------------------------------


def looks_of(plan: Plan) -> dict[str, Any]:
    """Padding and sizes of the first epoch."""
    all_steps = [plan.micro_batches(indices) for indices in plan.epoch(0)]
    positions = sum(batch.n_positions for batches in all_steps for batch in batches)
    real = sum(batch.n_source_tokens + batch.n_target_tokens for batches in all_steps for batch in batches)
    tokens = np.array([sum(batch.n_target_tokens for batch in batches) for batches in all_steps])
    shares = rounded({"padding": 1 - real / positions, "positions_per_real_token": positions / real})
    return {"steps": len(all_steps), **shares, "small_steps": int((tokens < SMALL * np.median(tokens)).sum())}


def train(trainer: Trainer, plan: Plan) -> dict[str, Any]:
    """-> losses after every so many steps and at the end, and the lengths of the gradients"""
    settings, curve, log = trainer.config.training, [], []
    for place in steps(plan):
        log.append(trainer.finish(trainer.step(*place)))
        step, target_tokens = trainer.progress.step, trainer.progress.target_tokens
        done = target_tokens >= settings.max_tokens
        if done or step % settings.validate_every == 0:
            val = validation_loss(trainer.model, trainer.data.val, settings.tokens_per_batch, ops=trainer.device.ops)
            curve.append([step, target_tokens, number(val)])
        if done:
            break
    settled = log[len(log) // 4 :]  # the first steps of a new model have large gradients anyway
    norms, tokens = (np.array([entry[name] for entry in settled]) for name in ("grad_norm", "target_tokens"))
    small = norms[tokens < SMALL * np.median([entry["target_tokens"] for entry in log])]
    lengths = {"median": float(np.median(norms)), "largest": float(norms.max())}
    lengths["median_of_small_steps"] = float(np.median(small)) if small.size else None
    return {"final_loss": curve[-1][2], "steps": len(log), "gradient_norm": rounded(lengths), "curve": curve}


def compare(config: Config, names: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Train with each of the plans -> the configuration and what was found"""
    tokenizer, data = read_text(config)
    rows: dict[str, dict[str, Any]] = {name: {"plan": name, "runs": []} for name in names}
    for seed in seeds:
        of_seed = configs.with_settings(config, {"training.seed": seed})
        for name, row in rows.items():
            plan = Plan(name, data.train, of_seed)
            if seed == seeds[0]:
                row |= looks_of(plan)
            with tempfile.TemporaryDirectory() as folder:
                trainer = Trainer(RunDirectory(Path(folder)), of_seed, data, tokenizer, Device())
                found = {"seed": seed, **train(trainer, plan)}
            row["runs"].append(found)
            norms = found["gradient_norm"]
            print(f"seed {seed}, {name:26} loss {found['final_loss']}, {found['steps']} steps, {norms}", flush=True)
    for row in rows.values():
        row["final_loss"] = spread([run["final_loss"] for run in row["runs"]])
        paired = [run["final_loss"] - base["final_loss"] for run, base in zip(row["runs"], rows["buckets"]["runs"])]
        row["final_loss_minus_buckets"] = [number(difference) for difference in paired]
    shown = configs.with_settings(config, {"data.directory": "DIR"})
    return {"config": configs.to_dict(shown), "seeds": seeds, "results": [*rows.values()]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, metavar="DIR", help="train.en.gz, train.de.gz, val.en.gz, val.de.gz")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    changes = {"data.directory": arguments.data, "training.steps": 10**6} | (QUICK if arguments.quick else {})
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    first, longer = (
        configs.with_settings(configs.preset("multi30k"), settings | changes)
        for settings in (EXPERIMENT, EXPERIMENT | LONGER)
    )
    return {**compare(first, [*PLANS], seeds), "longer": compare(longer, LONGER_PLANS, seeds)}


if __name__ == "__main__":
    record("batch_plans", __doc__, measure, options)
