"""Score the shipped model, data/tiny_model, on the bundled test sets.

    python benchmarks/tiny_model.py [--quick] [--out DIR]

The model is that of the preset `tiny`, trained with seed 0 and averaged; nothing is trained here, it takes seconds.
Recorded for each test set, with the beam of the paper (4, alpha 0.6) and greedily: BLEU, the share of sentences that
are exactly the reference, and the length over that of the references; with the beam also that share for each
construction of `test`, and the pronouns of `test_coreference`.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from harness import number, record, rounded

from grammar import SEED
from scratchformer.experiments.demo import coreference_score
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import Example, read
from scratchformer.training.run import RunDirectory, load_run

RUN = RunDirectory(Path(__file__).parents[1] / "data" / "tiny_model")
SPLITS = ("test", "test_compositional", "test_long", "test_coreference")
QUICK = 8
"""Sentences of each set, when asked to be quick."""


def checksum() -> str:
    """SHA-256 of the weights that are loaded."""
    return hashlib.sha256(RUN.checkpoints.average.read_bytes()).hexdigest()


def scores(examples: list[Example], translations: list[str]) -> dict[str, Any]:
    found = corpus_scores(translations, [example.target for example in examples])
    exact = np.mean([translation == example.target for translation, example in zip(translations, examples)])
    return {
        "bleu": number(found.bleu),
        "exact": number(float(exact)),
        "length_ratio": number(found.length_ratio),
        "sentences": len(examples),
        "signature": found.bleu_signature,
    }


def exact_by_construction(examples: list[Example], translations: list[str]) -> dict[str, dict[str, float]]:
    right: dict[str, list[bool]] = defaultdict(list)
    for example, translation in zip(examples, translations):
        right[example.construction].append(translation == example.target)
    return {
        name: {"sentences": len(right[name]), "exact": number(float(np.mean(right[name])))} for name in sorted(right)
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    translator = load_run(RUN.path)
    sets = {split: read(split)[: QUICK if arguments.quick else None] for split in SPLITS}
    sources = {split: [example.source for example in examples] for split, examples in sets.items()}
    beam = {split: translator.translate(sources[split]) for split in SPLITS}
    greedy = {split: translator.translate(sources[split], beam=1) for split in SPLITS}
    result = {
        "parameters": int(translator.model.store.data.size),
        "beam": {split: scores(sets[split], beam[split]) for split in SPLITS},
        "greedy": {split: scores(sets[split], greedy[split]) for split in SPLITS},
        "exact_by_construction": exact_by_construction(sets["test"], beam["test"]),
        "pronouns": rounded(coreference_score(beam["test_coreference"], sets["test_coreference"])),
    }
    return {
        "config": {"model": "data/tiny_model", "sha256": checksum(), "beam": 4, "alpha": 0.6},
        "seeds": {"text": SEED, "training": 0},
        "results": result,
    }


if __name__ == "__main__":
    record("tiny_model", __doc__, measure)
