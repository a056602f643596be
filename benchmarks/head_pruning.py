"""Remove attention heads from a trained model, in orders by two measures, as `scratchformer heads` does.

    python benchmarks/head_pruning.py [RUN --test SOURCE REFERENCE --val SOURCE REFERENCE] [--sentences N]
                                      [--name NAME] [--quick] [--out DIR]

Without RUN, the shipped model (data/tiny_model) on the bundled corpus. Orders in which to remove heads are found on
validation text: by loss, by gradient, and the reverse of the first. They and five random orders are followed on
test text, with BLEU at every twelfth part. In `results`, `removable` is for each order how many heads can be removed,
one after the other, before BLEU (greedy search) first falls by more than one point, and `needed` the heads without
which alone the loss rises by more than chance makes probable among so many (5 % for any of them).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from harness import record, rounded
from scipy.stats import spearmanr
from small_training import settings_of

from scratchformer.experiments.head_report import as_text, corrected_z, measure_heads, text_of
from scratchformer.text import bundled
from scratchformer.text.bundled import Example
from scratchformer.text.corpora import read_pairs
from scratchformer.training.run import load_run

SHIPPED = Path("data/tiny_model")
PARTS = 12
N_SAMPLES = 1000  # of the bootstrap
QUICK = 6  # sentences


def rank_correlation(some: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Compute Spearman's correlation of two scores, with the 95 % interval of a seeded percentile bootstrap."""
    some, others = some.reshape(-1), others.reshape(-1)
    drawn = np.random.default_rng(0).integers(0, len(some), (N_SAMPLES, len(some)))
    low, high = np.nanquantile([spearmanr(some[each], others[each]).statistic for each in drawn], [0.025, 0.975])
    return {"rho": float(spearmanr(some, others).statistic), "low": float(low), "high": float(high)}


def grid(record: dict[str, Any], key: str) -> np.ndarray:
    """A number of each head, (A, H)."""
    per_attention = int(list(record["heads"])[-1].rpartition(".")[2])
    return np.array([head[key] for head in record["heads"].values()]).reshape(-1, per_attention)


def claims(found: dict[str, Any]) -> dict[str, Any]:
    """The numbers that Michel et al. 2019 report, for this model."""
    removable = {}
    for name, curve in found["curves"].items():
        counts, bleus = list(curve["bleus"]), curve["bleus"]
        kept = [count for count in counts if bleus[count] < bleus[0] - 1]
        removable[name] = counts[counts.index(min(kept)) - 1] if kept else counts[-1]
    rises, gradients = grid(found, "rise"), grid(found, "gradient")
    needed = rises > corrected_z(rises.size) * grid(found, "error")
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)  # as Michel et al. do before they order all heads
    correlations = {
        "|dL/dxi|": rank_correlation(gradients, rises),
        "|dL/dxi| relative to its layer": rank_correlation(gradients / norms, rises),
    }
    return {
        "needed": [name for name, is_needed in zip(found["heads"], needed.reshape(-1)) if is_needed],
        "bleu_within_1_point_without": int((grid(found, "bleu") > found["bleu"] - 1).sum()),
        "removable": removable,
        "correlations": correlations,
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=Path, default=SHIPPED, metavar="RUN", help="the directory of a run")
    parser.add_argument("--test", nargs=2, type=Path, metavar="FILE", help="source and reference")
    parser.add_argument("--val", nargs=2, type=Path, metavar="FILE", help="source and reference")
    parser.add_argument("--sentences", type=int, default=300, metavar="N", help="of the test text; half as many of val")
    parser.add_argument("--name", default="head_pruning", help="of the result")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    n_sentences = QUICK if arguments.quick else arguments.sentences
    translator = load_run(arguments.run)
    pronouns = [] if arguments.test else bundled.read("test_coreference")[: 2 * n_sentences]
    test, val = (
        map(Example, *read_pairs(*files)[:2]) if files else bundled.read(split)
        for split, files in (("test", arguments.test), ("val", arguments.val))
    )
    text, to_order = text_of(translator, test, n_sentences), text_of(translator, val, n_sentences // 2)
    heads = measure_heads(translator, text, to_order, text, pronouns, 2 if arguments.quick else PARTS)
    print(as_text(heads))
    return {
        "name": arguments.name,
        "config": settings_of(arguments.run),
        "val_sentences": len(to_order.encoded),
        "results": rounded(claims(heads) | heads),
    }


if __name__ == "__main__":
    record("head_pruning", __doc__, measure, options)
