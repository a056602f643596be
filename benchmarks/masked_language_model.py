"""Accuracy in guessing hidden pieces, with and without the text that follows them.

    python benchmarks/masked_language_model.py RUN ... [--jobs N] [--quick] [--out DIR]

RUN is a masked language model. The recorded results used

    for seed in 0 1 2; do scratchformer train bert-tiny --seed $seed --threads 1 --out runs/bert$seed; done

For each run a second model is trained, with the same settings, seed, batches and hidden pieces. It differs in one
thing: a position attends to itself and to those before it, and to none after it. Both then guess each piece of the test
text in turn, all the others being shown, and so do the three baselines of
`scratchformer.tasks.masked_language_model`, which count.
"""

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness import record, rounded, spread
from training_runs import trained

from scratchformer import config as configs
from scratchformer.nn.attention import Mask
from scratchformer.nn.models import ARCHITECTURES
from scratchformer.nn.parameter import Array
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.tasks.masked_language_model import MaskedLanguageModelTask
from scratchformer.training.run import RunDirectory, load_model

BASELINES = ("between_neighbours", "after_previous", "most_frequent")


class LeftEncoder(TextEncoder):
    """A TextEncoder that reads from left to right."""

    def mask(self, ids: Array) -> Mask:
        return super().mask(ids)._replace(causal=True)


def scores_of(path: Path, quick: bool) -> dict[str, Any]:
    few_steps = {"training.steps": 4} if quick else {}
    config = configs.with_settings(configs.load(RunDirectory(path).config_file), few_steps)
    both = MaskedLanguageModelTask().evaluate(load_model(path, "last")).record
    with patch.dict(ARCHITECTURES, encoder=f"{__name__}:LeftEncoder"), tempfile.TemporaryDirectory() as directory:
        left = MaskedLanguageModelTask().evaluate(trained(config, Path(directory) / "left")).record
    shares = {"both_sides": both["accuracy"], "left_side": left["accuracy"]} | {name: both[name] for name in BASELINES}
    print(f"seed {config.training.seed}", shares, flush=True)
    return {"seed": config.training.seed, "n_pieces": both["n_pieces"]} | rounded(shares)


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
        "accuracy": {name: spread(result[name] for result in results) for name in names},
        "results": results,
    }


if __name__ == "__main__":
    record("masked_language_model", __doc__, measure, options)
