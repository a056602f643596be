"""Measure what the mean of the last checkpoints of a run gains (paper §6.1).

    python benchmarks/averaging.py [--quick] [--out DIR]

A small model is trained on the text of the preset tiny, and its weights are kept every 30 steps. Then the means of the
last n of them are taken: of one (no mean at all), 2, 5, 10, 20 and 40. Two controls put the usual explanation to the
test, that the last weights swing around a better place. Weights of five successive steps have hardly swung: their mean
should be worth little. And if the learning rate falls to 0 in the last 300 steps, from the same weights and with the
same batches, the swings die down: there, too, a mean should be worth little.
"""

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import number, spread
from small_training import WRITTEN_TEXT, Part, adam_of, add_gradient, batches, conduct, read_text, schedule_of

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import find_split, read_pairs
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


def weights_of_runs(model: Transformer, data: TrainingData, config: Config) -> dict[str, dict[int, Array]]:
    """Train twice; the runs part where the rate begins to fall. -> for each rate: step -> weights

    "to 0" falls on a straight line to almost 0 (a step of 0 would be no step).
    """
    settings, schedule = config.training, schedule_of(config, PEAK)
    some_batches = list(islice(batches(data, config), settings.steps))
    decay = settings.steps // SHARE_OF_DECAY
    optimizer, kept = adam_of(model, config), {}

    def train(rate: str, last: int, weights: dict[int, Array]) -> dict[int, Array]:
        for step in range(optimizer.t + 1, last + 1):
            add_gradient(model, some_batches[step - 1], config, step)
            fall = min(1.0, (settings.steps + 1 - step) / decay) if rate == "to 0" else 1.0
            optimizer.step(fall * schedule(step))
            if step % settings.save_every == 0 or step > settings.steps - 5:
                weights[step] = model.store.data.copy()
        return weights

    common = train("schedule", settings.steps - decay, {})
    state = [array.copy() for array in (model.store.data, optimizer.m, optimizer.v)]
    for rate in ("schedule", "to 0"):
        for array, start in zip((model.store.data, optimizer.m, optimizer.v), state):
            array[...] = start
        model.store.refresh()
        optimizer.t = settings.steps - decay
        kept[rate] = train(rate, settings.steps, dict(common))
    return kept


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    few, settings = 8 if config.training.steps < 100 else None, config.training
    test = read_pairs(*find_split(Path(WRITTEN_TEXT["data.directory"]), "test", "en", "de"))
    tokenizer, data = read_text(config)
    found: dict[System, list[dict[str, Any]]] = {system: [] for system in SYSTEMS}
    for seed in seeds:
        seeded = configs.with_settings(config, {"training.seed": seed})
        model = Transformer(seeded.model, seed)
        weights = weights_of_runs(model, data, seeded)
        for system in SYSTEMS:
            apart = 1 if system.apart == "one step" else settings.save_every
            steps = [settings.steps - apart * i for i in range(system.n)]
            model.store.data[...] = np.mean([weights[system.rate][step] for step in steps], axis=0, dtype="float64")
            model.store.refresh()
            translations = Translator(model, tokenizer).translate(test.source[:few], beam=1)
            loss = validation_loss(model, data.val, settings.tokens_per_batch)
            scores = {"loss": number(loss), "bleu": number(corpus_scores(translations, test.target[:few]).bleu)}
            found[system].append(scores | {"translations": translations})
            print(f"seed {seed}, {system}: {scores}", flush=True)
    results = []
    for system, runs in found.items():
        values = {name: [run[name] for run in runs] for name in ("loss", "bleu")}
        means = {f"mean_{name}": spread(each)["mean"] for name, each in values.items()}
        results.append({**system._asdict(), **values, **means})
    translations = [
        {"seed": seed, "n": system.n, "rate": system.rate, "lines": run["translations"]}
        for system in KEPT
        for seed, run in zip(seeds, found[system])
    ]
    return {"results": results, "translations": translations}


if __name__ == "__main__":
    conduct(__doc__, {"averaging": Part(EXPERIMENT, QUICK, (0, 1, 2), measure)})
