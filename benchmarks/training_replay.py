"""Record what the model of the preset `tiny` knows after so many steps of its training.

    python benchmarks/training_replay.py [--quick] [--out DIR]

Trains with the settings of data/tiny_model on the bundled corpus, on one thread, and looks back at twelve steps: the
validation loss, the translation of one sentence, and one head of cross-attention while the model reads this sentence
and its reference. The head is the one that, after the last step, looks from "es" at "it" the most.

Writes data/tiny_model/replay.json, which `scratchformer explore` shows beside that model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from harness import number
from small_training import WRITTEN_TEXT
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.explorer.model_data import cross_attention, head_id, snapshot, thinned
from scratchformer.files import replace_text
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks import start
from scratchformer.text import bundled
from scratchformer.text.bleu import corpus_scores
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, load_run
from scratchformer.training.trainer import Trainer
from scratchformer.training.validation import validation_loss

SHIPPED = RunDirectory(Path(__file__).parents[1] / "data" / "tiny_model")
STEPS = (0, 50, 100, 200, 300, 400, 600, 800, 1000, 1300, 1600, 2000)
QUICK = {"model.d_model": 16, "model.d_ff": 32, "training.steps": 4, "training.warmup": 2, "training.save_every": 1}
SENTENCE = "The animal did not cross the street because it was too tired."
REFERENCE = "Das Tier überquerte die Straße nicht, weil es zu müde war."
QUERY, KEY = "▁es", "▁it"


def translator_of(trainer: Trainer, weights: Array) -> Translator:
    config = trainer.config
    model = Transformer(config.model, seed=0)
    model.store.data[...] = weights
    return Translator(model, trainer.tokenizer, config.decoding.extra_length)


def chosen_head(translator: Translator) -> tuple[int, int]:
    """The layer and the head of cross-attention with the largest weight in row QUERY and column KEY."""
    source, target = (translator.tokenizer.pieces(ids) for ids in translator.tokenizer.encode([SENTENCE, REFERENCE]))
    weights = cross_attention(translator, SENTENCE, REFERENCE)[:, :, target.index(QUERY), source.index(KEY)]
    layer, head = np.unravel_index(weights.argmax(), weights.shape)
    return int(layer), int(head)


def bleu(translator: Translator, examples: list[bundled.Example]) -> float:
    """Of translations with the run's beam, 4, and alpha, 0.6."""
    translations = translator.translate([example.source for example in examples])
    return corpus_scores(translations, [example.target for example in examples]).bleu


def replayed(run: RunDirectory, config: Config, steps: tuple[int, ...]) -> dict[str, Any]:
    """Train and look back -> what replay.json holds."""
    trainer = start.begin(run, config)
    weights = {0: trainer.model.store.data.copy()}
    loop.train(trainer)
    for step in steps[1:]:
        weights[step] = load_run(run.path, run.checkpoints.of_step(step)).model.store.data
    settings, head, snapshots = config.training, chosen_head(translator_of(trainer, weights[steps[-1]])), []
    for step in steps:
        translator = translator_of(trainer, weights[step])
        loss = validation_loss(translator.model, trainer.data.val, settings.tokens_per_batch)
        snapshots.append(snapshot(translator, config.decoding, SENTENCE, REFERENCE, head, step, loss))

    every = configs.load(SHIPPED.config_file).training.save_every if steps == STEPS else settings.save_every
    saved = sorted(range(settings.steps, 0, -every)[: settings.average_last])
    average = checkpoints.average([run.checkpoints.of_step(step) for step in saved])
    checkpoints.save(run.checkpoints.average, average)
    ours, shipped = load_run(run.path), load_run(SHIPPED.path)
    is_same = np.array_equal(ours.model.store.data, shipped.model.store.data)
    which = "while this model was trained" if is_same else "in a second run with the settings of this model"
    return {
        "weights_crc32": zlib.crc32(shipped.model.store.data.astype("<f4").tobytes()),
        "bleu": number(bleu(shipped, bundled.read("test")[: None if steps == STEPS else 4])),
        "log": thinned(run),
        "replay": {
            "caption": f"recorded {which}",
            "same_weights": is_same,
            "sentence": SENTENCE,
            "reference": REFERENCE,
            "attention": head_id(head),
            "snapshots": snapshots,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model, to see that it runs")
    parser.add_argument(
        "--out", type=Path, default=SHIPPED.path, help="directory of replay.json (default: data/tiny_model)"
    )
    arguments = parser.parse_args()
    quick = QUICK | WRITTEN_TEXT if arguments.quick else {"training.save_every": 50}
    settings = {"training.threads": 1, "training.keep": 100, **quick}
    config = configs.with_settings(configs.load(SHIPPED.config_file), settings)
    with threadpool_limits(1), tempfile.TemporaryDirectory() as directory:
        replay = replayed(RunDirectory(Path(directory) / "run"), config, (0, 2, 4) if arguments.quick else STEPS)
    replace_text(arguments.out / "replay.json", json.dumps(replay, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
