"""Train small models on the bundled text: batches, a bare training loop, and one row for each variant."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
from harness import Result, number, record, rounded, spread

import scratchformer.config as configs
from scratchformer.backends.cpu import FAST
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.batches import Batch, BatchPlan, steps
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss

WRITTEN_TEXT = {"data.directory": str(Path(__file__).parents[1] / "data" / "tiny")}
"""The bundled text as it lies in the repository: --quick reads it, which takes less time than to derive it."""

# Training -------------------------------------------------------------------------------------------------------------


def read_text(config: Config) -> tuple[Tokenizer, TrainingData]:
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)
    return tokenizer, encode_corpus(corpus, tokenizer, config)


def batches(data: TrainingData, config: Config) -> Iterator[Batch]:
    """The batches of a training run, one a step, for ever; the same ones for the same seed."""
    settings = config.training
    plan = BatchPlan(data.train, settings.tokens_per_batch, 1, settings.seed, settings.bucket_fineness)
    for _, _, indices in steps(plan):
        yield plan.micro_batches(indices)[0]


def add_gradient(model: Transformer, batch: Batch, config: Config, step: int) -> float:
    """Set the gradient to that of the batch's mean loss per target token. -> that loss, in nats, smoothed"""
    settings = config.training
    model.zero_grad()
    with using(FAST):
        loss, n_tokens = batch_loss_backward(
            model, batch.inputs, batch.targets, settings.eps_ls, DropoutKey(settings.seed, step), settings.spread
        )
    model.store.grad /= n_tokens
    return float(loss) / n_tokens


def adam_of(model: Transformer, config: Config, kind: type[Adam] = Adam) -> Adam:
    return kind(model, (config.training.beta1, config.training.beta2), config.training.eps)


def schedule_of(config: Config, peak: float | None = None) -> Callable[[int], float]:
    """The learning rate of each step, from 1: equation 3 times the configuration's factor, or with this peak."""
    d_model, warmup = config.model.d_model, config.training.warmup
    factor = config.training.lr_factor if peak is None else peak / noam(warmup, d_model, warmup)
    return lambda step: noam(step, d_model, warmup, factor)


@np.errstate(over="ignore", invalid="ignore")  # it is the end, and recorded as such
def train(
    model: Transformer, optimizer: Adam, data: TrainingData, config: Config, learning_rate: Callable[[int], float]
) -> list[tuple[int, float]]:
    """Train for `config.training.steps`; `learning_rate` takes the number of the step, from 1.

    -> (step, validation loss in nats per target token, unsmoothed), from step 0 on every `validate_every` steps. The
    loss is NaN from where the training loss is no longer finite; the training ends there.
    """
    settings = config.training
    curve = [(0, validation_loss(model, data.val, settings.tokens_per_batch))]
    for step, batch in zip(range(1, settings.steps + 1), batches(data, config)):
        if not math.isfinite(add_gradient(model, batch, config, step)):
            return [*curve, (step, math.nan)]
        optimizer.step(learning_rate(step))
        if step % settings.validate_every == 0:
            curve.append((step, validation_loss(model, data.val, settings.tokens_per_batch)))
    return curve


def trained(
    model: Transformer,
    data: TrainingData,
    config: Config,
    learning_rate: Callable[[int], float] | None = None,
    optimizer: Adam | None = None,
) -> Result:
    """Train a model -> its run, as results record it"""
    curve = train(model, optimizer or adam_of(model, config), data, config, learning_rate or schedule_of(config))
    return {"seed": config.training.seed, "final_loss": number(curve[-1][1]), "curve": rounded(curve)}


# Experiments ----------------------------------------------------------------------------------------------------------


def row(about: Result, run: Callable[[Config], Result], config: Config, seeds: tuple[int, ...]) -> Result:
    """Train one variant with each seed -> what it is, its final losses, its runs"""
    runs = [run(configs.with_settings(config, {"training.seed": seed})) for seed in seeds]
    losses = spread(each["final_loss"] for each in runs)
    print(*about.values(), f"final loss {losses['mean']} ({losses['lowest']} to {losses['highest']})", flush=True)
    return {**about, "final_loss": losses, "runs": runs}


class Part(NamedTuple):
    """An experiment with the preset `tiny`.

    settings  changes of the preset
    quick     further changes by --quick, which also leaves only the first of the seeds
    measure   takes configuration and seeds -> the results, as they go into the file
    """

    settings: dict[str, Any]
    quick: dict[str, Any]
    seeds: tuple[int, ...]
    measure: Callable[[Config, tuple[int, ...]], Result]


def conduct(description: str, parts: dict[str, Part]) -> None:
    """Record one of the parts of a script. parts: name of the result -> part; the first one is the default"""
    default = next(iter(parts))

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--part", choices=parts, default=default, help="the result (default: %(default)s)")

    def measure(arguments: argparse.Namespace) -> Result:
        part = parts[arguments.part]
        settings = part.settings | (part.quick | WRITTEN_TEXT if arguments.quick else {})
        config = configs.with_settings(configs.preset("tiny"), settings)
        seeds = part.seeds[: 1 if arguments.quick else None]
        about = {"name": arguments.part, "config": configs.to_dict(config), "seeds": seeds}
        return about | part.measure(config, seeds)

    record(default, description, measure, options)


def settings_of(run: Path) -> Result:
    """The settings of a run that its results record: of the model and of its training."""
    config = configs.to_dict(configs.load(RunDirectory(run).config_file))
    return {part: config[part] for part in ("model", "training")}
