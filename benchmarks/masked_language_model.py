"""Accuracy in guessing hidden pieces, with and without the text that follows them.

    python benchmarks/masked_language_model.py RUN ... [--jobs N] [--quick] [--out DIR]

RUN is a masked language model. The recorded results used

    for seed in 0 1 2; do scratchformer train bert-tiny --seed $seed --threads 1 --out runs/bert$seed; done

For each run a second model is trained, with the same settings, seed, batches and hidden pieces. It differs in one
thing: a position attends to itself and to those before it, and to none after it. Both then guess each piece of the test
text in turn, all the others being shown, and so do the three baselines of
`scratchformer.tasks.masked_language_model`, which count.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

from small_training import number, record, spread

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.attention import Mask
from scratchformer.nn.models import ARCHITECTURES
from scratchformer.nn.parameter import Array
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.tasks import start
from scratchformer.tasks.masked_language_model import MaskedLanguageModelTask
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, Trained, load_model

BASELINES = ("between_neighbours", "after_previous", "most_frequent")


class LeftEncoder(TextEncoder):
    """A TextEncoder that reads from left to right."""

    def mask(self, ids: Array) -> Mask:
        return super().mask(ids)._replace(causal=True)


@contextmanager
def in_place_of_text_encoders(kind: type[TextEncoder]) -> Iterator[None]:
    """Inside the block, this class is what a configuration of an encoder asks for."""
    before, ARCHITECTURES["encoder"] = ARCHITECTURES["encoder"], f"{kind.__module__}:{kind.__name__}"
    try:
        yield
    finally:
        ARCHITECTURES["encoder"] = before


def trained(config: Config, directory: Path) -> Trained:
    """Train a new run in this directory -> its last weights"""
    run = RunDirectory(directory)
    loop.train(start.begin(run, config))
    return load_model(run.path, "last")


def scores_of(path: Path, quick: bool) -> dict[str, Any]:
    few_steps = {"training.steps": 4} if quick else {}
    config = configs.with_settings(configs.load(RunDirectory(path).config_file), few_steps)
    both = MaskedLanguageModelTask().evaluate(load_model(path, "last"))
    with in_place_of_text_encoders(LeftEncoder), tempfile.TemporaryDirectory() as directory:
        left = MaskedLanguageModelTask().evaluate(trained(config, Path(directory) / "left"))
    print(f"seed {config.training.seed}\n{both.text}\nreading to the left only: {left.text}", flush=True)
    baselines = {name: both.record[name] for name in BASELINES}
    shares = {"both_sides": both.record["accuracy"], "left_side": left.record["accuracy"]} | baselines
    return {"seed": config.training.seed, "n_pieces": both.record["n_pieces"]} | {
        name: number(shares[name]) for name in shares
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with ProcessPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(scores_of, arguments.runs, [arguments.quick] * len(arguments.runs)))
    names = ("both_sides", "left_side", *BASELINES)
    return {
        "config": configs.to_dict(configs.load(RunDirectory(arguments.runs[0]).config_file)),
        "seeds": [result["seed"] for result in results],
        "accuracy": {name: spread([result[name] for result in results]) for name in names},
        "results": results,
    }


if __name__ == "__main__":
    record("masked_language_model", __doc__, measure, options)
