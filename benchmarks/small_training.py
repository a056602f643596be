"""The harness of the benchmarks: command line, recording, and a bare training loop on the bundled text."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
from provenance import surroundings
from threadpoolctl import threadpool_limits

import scratchformer.config as configs
from scratchformer.backends.cpu import FAST
from scratchformer.config import Config
from scratchformer.files import replace_text
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.batches import Batch, BatchPlan, EncodedPairs, steps
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss

RESULTS = Path(__file__).parent / "results"

WRITTEN_TEXT = {"data.directory": str(Path(__file__).parents[1] / "data" / "tiny")}
"""The bundled text as it lies in the repository: --quick reads it, which takes less time than to derive it."""

# Training -------------------------------------------------------------------------------------------------------------


def read_text(config: Config) -> TrainingData:
    corpus = read_corpus(config.data)
    return encode_corpus(corpus, train_tokenizer(corpus, config), config)


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


def adam_of(model: Transformer, config: Config) -> Adam:
    training = config.training
    return Adam(model, (training.beta1, training.beta2), training.eps)


def schedule_of(config: Config) -> Callable[[int], float]:
    """The learning rate of each step, from 1: equation 3 times the configuration's factor."""
    return lambda step: noam(step, config.model.d_model, config.training.warmup, config.training.lr_factor)


@np.errstate(over="ignore", invalid="ignore")  # it is the end, and recorded as such
def train(
    model: Transformer, optimizer: Adam, data: TrainingData, config: Config, learning_rate: Callable[[int], float]
) -> list[tuple[int, float]]:
    """Train for `config.training.steps`; `learning_rate` takes the number of the step, from 1.

    -> (step, validation loss in nats per target token, unsmoothed), from step 0 on every `validate_every` steps. The
    loss is NaN from where the training loss is no longer finite; the training ends there.
    """
    settings = config.training

    def look(step: int) -> tuple[int, float]:
        return step, validation_loss(model, data.val, settings.tokens_per_batch)

    curve = [look(0)]
    for step, batch in zip(range(1, settings.steps + 1), batches(data, config)):
        if not math.isfinite(add_gradient(model, batch, config, step)):
            return [*curve, (step, math.nan)]
        optimizer.step(learning_rate(step))
        if step % settings.validate_every == 0:
            curve.append(look(step))
    return curve


def equal_lengths(pairs: EncodedPairs, count: int) -> Batch:
    """Up to `count` pairs without any padding: of the lengths of source and target that occur most often together."""
    lengths = list(zip(pairs.source.lengths.tolist(), pairs.target.lengths.tolist()))
    ((commonest, _),) = Counter(lengths).most_common(1)
    return pairs.batch(np.array([i for i, pair in enumerate(lengths) if pair == commonest][:count]))


# Experiments and results ----------------------------------------------------------------------------------------------


def record(
    name: str,
    description: str,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    threads: int | None = 1,
) -> None:
    """Parse the command line, measure, and write `name`.json with the origin of its numbers.

    measure  -> the contents of the file; an entry "name" replaces the file's name
    options  adds to --quick and --out
    threads  of BLAS; None leaves them alone
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    if options:
        options(parser)
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"--out: {arguments.out} is not a directory")
    with threadpool_limits(threads):
        provenance = surroundings()  # now: git may move while we measure
        found = measure(arguments)
    name = found.pop("name", name)
    write(arguments.out, name, {"provenance": provenance, **found})


class Part(NamedTuple):
    """An experiment with the preset `tiny`.

    settings  changes of the preset
    quick     further changes by --quick, which also leaves only the first of the seeds
    measure   takes configuration and seeds -> the results, as they go into the file
    """

    settings: dict[str, Any]
    quick: dict[str, Any]
    seeds: tuple[int, ...]
    measure: Callable[[Config, tuple[int, ...]], dict[str, Any]]

    def measured(self, quick: bool) -> dict[str, Any]:
        settings = self.settings | (self.quick | WRITTEN_TEXT if quick else {})
        config, seeds = configs.with_settings(configs.preset("tiny"), settings), self.seeds[: 1 if quick else None]
        return {"config": configs.to_dict(config), "seeds": seeds, **self.measure(config, seeds)}


def conduct(description: str, parts: dict[str, Part]) -> None:
    """Record one of the parts of a script. parts: name of the result -> part; the first one is the default"""
    names = list(parts)

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--part", choices=names, default=names[0], help="the result (default: %(default)s)")

    def measure(arguments: argparse.Namespace) -> dict[str, Any]:
        return {"name": arguments.part} | parts[arguments.part].measured(arguments.quick)

    record(names[0], description, measure, options if len(parts) > 1 else only(names[0]))


def only(name: str) -> Callable[[argparse.ArgumentParser], None]:
    """Options of a script of a single part."""
    return lambda parser: parser.set_defaults(part=name)


def settings_of(run: Path) -> dict[str, Any]:
    """The settings of a run that its results record: of the model and of its training."""
    config = configs.to_dict(configs.load(RunDirectory(run).config_file))
    return {part: config[part] for part in ("model", "training")}


def spread(values: list[float | None]) -> dict[str, float | None]:
    """Mean and range over the seeds; all None if one of the values is."""
    array = np.array(values, float)  # None becomes NaN
    return {
        "mean": number(float(array.mean())),
        "lowest": number(float(array.min())),
        "highest": number(float(array.max())),
    }


def number(value: float) -> float | None:
    """Five significant digits; None, which is null in JSON, for what is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def numbers(curve: list[tuple[int, float]]) -> list[tuple[int, float | None]]:
    return [(step, number(loss)) for step, loss in curve]


def rounded(value: Any) -> Any:
    """Numbers of a nested structure with five significant digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return number(value) if isinstance(value, float) else value


def write(directory: Path, name: str, result: dict[str, Any]) -> None:
    """Write `directory`/`name`.json whole or not at all, with the command that made it, without absolute paths."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])
    text = json.dumps({"command": command, **result}, indent=1, allow_nan=False)
    replace_text(directory / f"{name}.json", text + "\n")
