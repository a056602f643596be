"""Accuracy of each cross-attention head of trained models against the gold alignment.

    python benchmarks/heads.py [RUN ...] [--quick] [--out DIR]

Without RUN, the shipped model (data/tiny_model). The recorded results used it and three more, with other seeds:

    for seed in 1 2 3; do
        scratchformer train tiny --seed $seed --out runs/tiny_seed$seed
        scratchformer average runs/tiny_seed$seed --last 5
    done
    python benchmarks/heads.py data/tiny_model runs/tiny_seed1 runs/tiny_seed2 runs/tiny_seed3
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from harness import number, record

from scratchformer import config as configs
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import heads
from scratchformer.text import bundled
from scratchformer.text.bundled import Example, words
from scratchformer.training.run import RunDirectory, load_run

SHIPPED = Path("data/tiny_model")
QUICK = 20  # examples of each set


def scores_of(run: Path, test: list[Example]) -> dict[str, Any]:
    translator = load_run(run)
    seed = configs.load(RunDirectory(run).config_file).training.seed
    result = {"seed": seed, "alignment": alignment(translator, test)}
    print(result, flush=True)
    return result


def alignment(translator: Translator, test: list[Example]) -> dict[str, Any]:
    """heads: [layer][head]: AlignmentScore of cross-attention; of the mean over a layer's heads; of two baselines"""
    attended = [heads.sentence_attention(translator, example) for example in test]
    chosen = [heads.aligned_words(each.cross, each) for each in attended]
    blurred = [heads.aligned_words(each.cross.mean(axis=1), each) for each in attended]
    lengths = [(len(words(example.target)), len(words(example.source))) for example in test]
    N, H = chosen[0].shape[:2]
    return {
        "heads": [
            [plain(heads.alignment_score([each[layer, head] for each in chosen], test)) for head in range(H)]
            for layer in range(N)
        ],
        "mean_of_layer": [plain(heads.alignment_score([each[layer] for each in blurred], test)) for layer in range(N)],
        "diagonal": plain(heads.alignment_score([heads.diagonal_alignment(*each) for each in lengths], test)),
        "by_chance": number(heads.chance_accuracy(test)),
    }


def plain(scores: NamedTuple) -> dict[str, float | None]:
    return {name: number(value) for name, value in scores._asdict().items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", type=Path, default=[SHIPPED], metavar="RUN", help="directories of runs")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    test = bundled.read("test")[: QUICK if arguments.quick else None]
    results = [scores_of(run, test) for run in arguments.runs]
    return {
        "config": configs.to_dict(configs.load(RunDirectory(arguments.runs[0]).config_file)),
        "seeds": [result["seed"] for result in results],
        "results": results,
    }


if __name__ == "__main__":
    record("heads", __doc__, measure, options)
