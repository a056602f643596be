"""The block of 2026 against GPT-2's: each change alone and all together, in bits per character and seconds a step.

    python benchmarks/block_of_2026.py [--runs DIR] [--quick] [--out DIR]

The baseline is the preset `gpt-tiny`: GPT-2's block (pre-norm, GELU, learned positions) and the paper's schedule. It
learns the 22 lessons, of which a tenth validates, for 500 steps instead of 3,000, so it reads them 4.7 times. Each
variant differs in one point, and reads the same windows in the same order. So that all have as many parameters, d_ff
makes up for what the change adds or saves: `parameters` lie within 0.1 % of the baseline's. The highest learning rate
is the same in all, and was not tuned for any.

`difference` is a variant's bits per character minus the baseline's, three seeds each: the mean; `low` and `high`, the
95 % interval of the paired differences by Student's t with two degrees of freedom; and `p_value`, of the exact
permutation test. Of three seeds against three it cannot be below 0.1, which it is if all three lie on one side of the
others. `seconds` are those of whole steps, in which all variants take turns on one thread, before the training.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Callable, Iterator
from unittest.mock import patch

import numpy as np
from harness import record, rounded, spread, spread_of, take_turns
from language_model import LESSONS, QUICK, learned
from scipy.stats import permutation_test, ttest_rel

from scratchformer import config as configs
from scratchformer.backends.cpu import keep_freed_memory
from scratchformer.config import Config
from scratchformer.nn.layers import LearnedPositions
from scratchformer.nn.optim import noam
from scratchformer.nn.sizes import parameter_counts
from scratchformer.parallel.communicator import Communicator
from scratchformer.tasks.task import task_named
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer

SEEDS = (0, 1, 2)
PEAK, WARMUP = 0.003, 100
SHORT = {"training.steps": 500, "training.warmup": WARMUP, "training.lr_factor": PEAK / noam(WARMUP, 128, WARMUP)}
SHORT |= {"training.validate_every": 100, "training.save_every": 20, "training.score_every": 0}

BASELINE, PAPER, TOGETHER = "gpt-tiny", "the paper's block", "all five together"
LARGE = "learned positions, as large as words"
CHANGES: dict[str, dict[str, Any]] = {
    "RMSNorm": {"norm": "rms"},
    "SwiGLU, no biases in it": {"feed_forward": "swiglu"},
    "rotary positions": {"positions": "rotary"},
    "two heads share keys and values": {"h_kv": 2},
    "AdamW, cosine": {"schedule": "cosine", "learning_rate": PEAK, "weight_decay": 0.1, "beta2": 0.95},
}
VARIANTS: dict[str, dict[str, Any]] = {
    BASELINE: {},
    PAPER: {"norm": "post", "feed_forward": "relu", "positions": "sinusoidal"},
    **CHANGES,
    "ALiBi": {"positions": "alibi"},
    "sinusoids": {"positions": "sinusoidal"},
    "no positions": {"positions": "none"},
    LARGE: {},
    TOGETHER: {name: value for change in CHANGES.values() for name, value in change.items()}
    | {"attention_bias": False},
}
"""Variant -> how it differs from the baseline. All together are the preset `llama-tiny` but for d_ff and the rate."""


@contextmanager
def large_positions() -> Iterator[None]:
    """Let learned positions start with standard deviation 1, as words do, which are multiplied by sqrt(d_model)."""
    usual = LearnedPositions.__init__

    def large(layer: LearnedPositions, *arguments: Any, **more: Any) -> None:
        usual(layer, *arguments, **more)
        if layer.weight.data.flags.writeable:  # else a model that is only counted
            layer.weight.data *= np.float32(layer.weight.data.shape[1] ** 0.5)

    with patch.object(LearnedPositions, "__init__", large):
        yield


def size_of(config: Config) -> int:
    return sum(parameter_counts(config.model).values())


def of_size(n_parameters: int, config: Config) -> Config:
    """Choose the d_ff with which the model comes closest to this many parameters, which grow by the same with each."""
    d_ff = config.model.d_ff
    each = size_of(configs.with_settings(config, {"d_ff": d_ff + 1})) - size_of(config)
    return configs.with_settings(config, {"d_ff": d_ff + round((n_parameters - size_of(config)) / each)})


def step_times(variants: dict[str, Config], repetitions: int) -> dict[str, dict[str, float]]:
    """Seconds of a training step of each variant; all take turns on the first batch of the first epoch."""
    tokenizer, _, data = task_named("language-model").begin(variants[BASELINE], Communicator())

    def stepping(config: Config) -> Callable[[Any], Any]:
        trainer = Trainer(RunDirectory(Path("nowhere")), config, data, tokenizer)
        indices = trainer.plan.epoch(0)[0]
        return lambda _: trainer.finish(trainer.step(0, 0, indices))

    steps = {name: stepping(config) for name, config in variants.items()}
    return {name: spread_of(each) for name, each in take_turns(steps, [None], repetitions).seconds.items()}


def difference(bits: list[float], baseline: list[float]) -> dict[str, float] | None:
    """Of a variant to the baseline, with the same seeds; None for fewer than two, and for the baseline itself."""
    if len(bits) < 2 or bits is baseline:
        return None

    def of_means(x: Any, y: Any, axis: int) -> Any:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    low, high = ttest_rel(bits, baseline).confidence_interval()
    p_value = permutation_test((bits, baseline), of_means, n_resamples=np.inf).pvalue  # inf: all 20 ways
    found = {"mean": np.mean(bits) - np.mean(baseline), "low": low, "high": high, "p_value": p_value}
    return {name: round(float(value), 4) for name, value in found.items()}


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    keep_freed_memory()
    settings = {"data.text": [str(path) for path in LESSONS], "training.threads": 1, **SHORT}
    seeds, repetitions = SEEDS, 20
    if arguments.quick:
        settings |= {"data.text": [str(path) for path in LESSONS[:2]], **QUICK}
        seeds, repetitions = SEEDS[:1], 1
    baseline = configs.with_settings(configs.preset("gpt-tiny"), settings)
    of_all = {name: configs.with_settings(baseline, changes) for name, changes in VARIANTS.items()}
    variants = {name: of_size(size_of(baseline), config) for name, config in of_all.items()}
    seconds = step_times(variants, repetitions)
    about = configs.to_dict(configs.with_settings(baseline, {"data.text": []}))
    bits: dict[str, dict[str, list[float]]] = {}
    cells = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, config in variants.items():
            directory = (arguments.runs or Path(temporary)) / re.sub(r"\W+", "_", name)
            seeded = [configs.with_settings(config, {"seed": seed}) for seed in seeds]
            with large_positions() if name == LARGE else nullcontext():
                runs = [learned(each, directory / f"seed{each.training.seed}") for each in seeded]
            bits[name] = {which: [run["bits_per_character"][which] for run in runs] for which in ("last", "average")}
            cells.append({"variant": name, "changes": VARIANTS[name], "d_ff": config.model.d_ff})
            cells[-1] |= {"parameters": size_of(config), "seconds": rounded(seconds[name])}
            for which, each in bits[name].items():
                cells[-1][which] = {
                    "bits_per_character": spread(each),
                    "difference": difference(each, bits[BASELINE][which]),
                }
            cells[-1]["runs"] = runs
            print(name, bits[name], cells[-1]["last"]["difference"], flush=True)
            yield {"seeds": seeds, "config": about, "results": cells}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", type=Path, help="directory of the runs, which go on there (default: one that is removed)"
    )


if __name__ == "__main__":
    record("block_of_2026", __doc__, measure, options)
