"""Measure what the mean of the last checkpoints of a run gains (paper §6.1).

    python benchmarks/averaging.py [--quick] [--out DIR]

A small model is trained on the text of the preset tiny, and its weights are kept every 30 steps. Then the means of the
last n of them are taken: of one (no mean at all), 2, 5, 10, 20 and 40. Two controls put the usual explanation to the
test, that the last weights swing around a better place. Weights of five successive steps have hardly swung: their mean
should be worth little. And if the learning rate falls to 0 in the last 300 steps, from the same weights and with the
same batches, the swings die down: there, too, a mean should be worth little. README.md here says what is recorded.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np
from small_training import Part, adam_of, add_gradient, batches, conduct, number, spread

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.batches import Batch
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import read_lines
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss

EXPERIMENT = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "training.steps": 1500,
    "training.tokens_per_batch": 512,
    "training.warmup": 300,
    "training.save_every": 30,
}
QUICK = {"model.d_model": 16, "model.d_ff": 32, "training.steps": 45, "training.warmup": 5, "training.save_every": 1}
PEAK = 0.004  # of the learning rate
SHARE_OF_DECAY = 5  # its last fifth, if it falls to 0
SEEDS = (0, 1, 2)
TEXT = Path(__file__).parents[1] / "data" / "tiny"


class System(NamedTuple):
    """The weights to translate with: the mean of the last `n`, so many steps apart, of a run whose learning rate
    follows the paper's schedule or falls to 0."""

    n: int
    apart: str = "save_every"
    rate: str = "schedule"


SYSTEMS = (
    *(System(n) for n in (1, 2, 5, 10, 20, 40)),
    System(5, apart="one step"),
    System(1, rate="to 0"),
    System(5, rate="to 0"),
)
KEPT = System(1), System(5), System(1, rate="to 0")
"""The systems whose translations are recorded, line by line."""


def learning_rate(step: int, rate: str, config: Config) -> float:
    """The paper's schedule; "to 0": in its last fifth on a straight line to almost 0 (a step of 0 would be no step)."""
    settings, d_model = config.training, config.model.d_model
    fall = min(1.0, (settings.steps + 1 - step) / (settings.steps // SHARE_OF_DECAY)) if rate == "to 0" else 1.0
    return fall * noam(step, d_model, settings.warmup, PEAK / noam(settings.warmup, d_model, settings.warmup))


def train(
    model: Transformer, optimizer: Adam, some_batches: list[Batch], config: Config, rate: str, weights: dict[int, Array]
) -> None:
    """Go on from step `optimizer.t`; into `weights` goes a copy of all numbers of the model after each step to keep."""
    settings = config.training
    for step in range(optimizer.t + 1, settings.steps + 1):
        add_gradient(model, some_batches[step - 1], config, step)
        optimizer.step(learning_rate(step, rate, config))
        if step % settings.save_every == 0 or step > settings.steps - 5:
            weights[step] = model.store.data.copy()


def train_both(model: Transformer, some_batches: list[Batch], config: Config) -> dict[str, dict[int, Array]]:
    """Both runs part where the rate begins to fall. -> for each `rate`: step -> weights"""
    settings = config.training
    optimizer = adam_of(model, config)
    begins_to_fall = settings.steps - settings.steps // SHARE_OF_DECAY
    first = configs.with_settings(config, {"training.steps": begins_to_fall})
    common: dict[int, Array] = {}
    train(model, optimizer, some_batches, first, "schedule", common)
    state = [array.copy() for array in (model.store.data, optimizer.m, optimizer.v)]
    kept = {}
    for rate in "schedule", "to 0":
        for array, start in zip((model.store.data, optimizer.m, optimizer.v), state):
            array[...] = start
        model.store.refresh()
        optimizer.t = begins_to_fall
        kept[rate] = dict(common)
        train(model, optimizer, some_batches, config, rate, kept[rate])
    return kept


def mean_weights(system: System, weights: dict[int, Array], config: Config) -> Array:
    """The mean of the system's weights, taken in float64."""
    settings = config.training
    apart = 1 if system.apart == "one step" else settings.save_every
    steps = [settings.steps - apart * i for i in range(system.n)]
    return np.mean([weights[step] for step in steps], axis=0, dtype="float64")


def run(config: Config, judge: Callable[[Transformer], dict[str, Any]], data: TrainingData) -> dict[str, Any]:
    """Train from one seed, then judge every system, and every one of the last ten checkpoints."""
    settings = config.training
    model = Transformer(config.model, settings.seed)
    weights = train_both(model, list(islice(batches(data, config), settings.steps)), config)

    def judged(numbers: Array) -> dict[str, Any]:
        model.store.data[...] = numbers
        model.store.refresh()
        return judge(model)

    systems = {system: judged(mean_weights(system, weights[system.rate], config)) for system in SYSTEMS}
    last = [settings.steps - settings.save_every * i for i in reversed(range(10))]
    checkpoints = [{"seed": settings.seed, "step": step, **judged(weights["schedule"][step])} for step in last]
    for each in checkpoints:
        del each["translations"]
    for system, found in systems.items():
        print(f"seed {settings.seed}, {system}: loss {found['loss']}, BLEU {found['bleu']}", flush=True)
    return {"systems": systems, "checkpoints": checkpoints}


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    few = 8 if config.training.steps < 100 else None
    sources, references = (read_lines(TEXT / f"test.{language}")[:few] for language in ("en", "de"))
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)
    data = encode_corpus(corpus, tokenizer, config)

    def judge(model: Transformer) -> dict[str, Any]:
        translations = Translator(model, tokenizer).translate(sources, beam=1)
        return {
            "loss": number(validation_loss(model, data.val, config.training.tokens_per_batch)),
            "bleu": number(corpus_scores(translations, references).bleu),
            "translations": translations,
        }

    runs = [run(configs.with_settings(config, {"training.seed": seed}), judge, data) for seed in seeds]
    results = [
        {
            **system._asdict(),
            **{name: [each["systems"][system][name] for each in runs] for name in ("loss", "bleu")},
            "mean_loss": spread([each["systems"][system]["loss"] for each in runs])["mean"],
            "mean_bleu": spread([each["systems"][system]["bleu"] for each in runs])["mean"],
        }
        for system in SYSTEMS
    ]
    return {
        "results": results,
        "checkpoints": [checkpoint for each in runs for checkpoint in each["checkpoints"]],
        "translations": [
            {"seed": seed, "n": system.n, "rate": system.rate, "lines": each["systems"][system]["translations"]}
            for seed, each in zip(seeds, runs)
            for system in KEPT
        ],
    }


if __name__ == "__main__":
    conduct(__doc__, {"averaging": Part(EXPERIMENT, QUICK, SEEDS, measure)})
