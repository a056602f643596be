"""Bits per character of a small GPT on our lessons, beside n-gram models.

    python benchmarks/language_model.py [--seeds 1] [--runs DIR] [--quick] [--out DIR]

The preset `gpt-tiny` is trained on the 22 lessons (`docs/lessons/NN_*.md`); a tenth of each validates.
`results` has the bits per character of the validation text for each seed, with the last weights, with the best
checkpoint (chosen by the same text), and with the mean of the last ones, as `scratchformer average` makes it; `n_grams`
those of Kneser-Ney's models. A run that is in the directory of --runs already goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import zlib
from pathlib import Path
from typing import Any, Iterable

from harness import record, rounded
from ngram import kneser_ney
from provenance import ROOT, git
from training_runs import average_of_last, finished

import scratchformer.config as configs
from scratchformer.config import Config
from scratchformer.tasks.language_model import LanguageModelTask, loss_on
from scratchformer.tasks.task import Corpus
from scratchformer.text.tokenizer import EOS
from scratchformer.training.run import RunDirectory, load_model

LESSONS = sorted((ROOT / "docs" / "lessons").glob("[0-9][0-9]_*.md"))
QUICK = {"model.vocab_size": 500, "model.d_model": 16, "model.d_ff": 32, "model.N": 1, "training.steps": 4}
QUICK |= {"training.validate_every": 2, "training.save_every": 2, "training.score_every": 2}
HIGHEST_ORDERS = 18, 12
"""Of the n-gram models over characters and over tokens: about a minute, and 3 GiB of memory."""


def learned(config: Config, path: Path) -> dict[str, Any]:
    """Train a run, or the rest of it, and score it -> its entry in the results."""
    run = RunDirectory(path)
    finished(run, config)
    average_of_last(run, config)
    steps, texts, bits = run.read_log("step"), LanguageModelTask().read(config), {}
    for which in ("last", "best", "average"):
        nats, n_tokens = loss_on(load_model(path, which), texts.val)
        bits[which] = per_character(nats * n_tokens / math.log(2), texts)
    return {
        "seed": config.training.seed,
        "steps": steps[-1]["step"],
        "target_tokens": steps[-1]["all_target_tokens"],
        "train_seconds": round(sum(step["seconds"] for step in steps)),
        "curve": rounded([[entry["step"], entry["loss"]] for entry in run.read_log("validation")]),
        "bits_per_character": bits,
    }


def per_character(bits: float, texts: Corpus) -> float:
    return round(bits / sum(map(len, texts.val)), 4)


def n_gram_bits(texts: Corpus, tokenizer: Any, of_characters: int, of_tokens: int) -> dict[str, list[float]]:
    """Bits per character of the validation text, by n-gram models for n = 1, 2, ... over characters and over tokens.

    The characters are those of the training text, the end of a text, and one for all others; such a character takes 8
    bits more for each of its bytes in UTF-8.
    """
    known = {character: number for number, character in enumerate(sorted(set("".join(texts.train))))}
    end, other = len(known), len(known) + 1

    def symbols(some: Iterable[str]) -> list[list[int]]:
        return [[*(known.get(character, other) for character in text), end] for text in some]

    def tokens(some: Iterable[str]) -> list[list[int]]:
        return [[*ids, EOS] for ids in tokenizer.encode(some)]

    spelled = sum(8 * len(character.encode()) for text in texts.val for character in text if character not in known)
    found = {}
    for name, encode, orders, size, more in (
        ("characters", symbols, of_characters, len(known) + 2, spelled),
        ("tokens", tokens, of_tokens, tokenizer.vocab_size, 0),
    ):
        val = encode(texts.val)
        models = kneser_ney(encode(texts.train), orders, size)
        found[name] = [per_character(more + sum(map(model.bits, val)), texts) for model in models]
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, help="how many runs to train (default: %(default)s)")
    parser.add_argument("--runs", type=Path, help="directory of the runs (default: one that is removed)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    preset = configs.with_settings(configs.preset("gpt-tiny"), QUICK if arguments.quick else {})
    lessons = LESSONS[:2] if arguments.quick else LESSONS
    config = configs.with_settings(preset, {"data.text": [str(path) for path in lessons], "training.threads": 1})
    with tempfile.TemporaryDirectory() as temporary:
        runs = arguments.runs or Path(temporary)
        seeded = [configs.with_settings(config, {"seed": seed}) for seed in range(arguments.seeds)]
        results = [learned(each, runs / f"seed{each.training.seed}") for each in seeded]
        texts, tokenizer = LanguageModelTask().read(config), load_model(runs / "seed0").tokenizer
    n_grams = n_gram_bits(texts, tokenizer, *((8, 5) if arguments.quick else HIGHEST_ORDERS))
    print([result["bits_per_character"] for result in results], {name: min(bits) for name, bits in n_grams.items()})
    text = {
        "files": len(lessons),
        "characters": {"train": sum(map(len, texts.train)), "validation": sum(map(len, texts.val))},
        "crc32": zlib.crc32(b"".join(path.read_bytes() for path in lessons)),
        "last_change": git("log", "-1", "--format=%H", "--", "docs/lessons"),
    }
    return {"text": text, "config": configs.to_dict(preset), "results": results, "n_grams": n_grams}


if __name__ == "__main__":
    record("language_model", __doc__, measure, options)
