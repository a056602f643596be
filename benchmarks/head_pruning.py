"""How many heads can a trained model do without, and which measure finds them? What `scratchformer heads` measures.

    python benchmarks/head_pruning.py [RUN --test SOURCE REFERENCE --val SOURCE REFERENCE] [--sentences N]
                                      [--name NAME] [--quick] [--out DIR]

Without RUN, the shipped model (data/tiny_model) on the bundled corpus. Orders in which to remove heads are found on
validation text: of loss and of gradient, and the reverse of the first. They and five random orders are followed on
test text, with BLEU at every twelfth part. In `results`, `removable` is for each order how many heads can be removed,
one after the other, before BLEU (greedy search) first falls by more than one point, and `needed` the heads without
which alone the loss rises by more than chance makes probable among so many (5 % for any of them).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from provenance import surroundings
from small_training import RESULTS, number
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.experiments.head_report import as_text, corrected_z, grid, measure_heads, text_of
from scratchformer.experiments.statistics import rank_correlation
from scratchformer.text import bundled
from scratchformer.text.corpora import read_pairs
from scratchformer.training.run import RunDirectory, load_run, replace_text

SHIPPED = Path("data/tiny_model")
PARTS = 12
QUICK = 6  # sentences


def rounded(value: Any) -> Any:
    """With five significant digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return number(value) if isinstance(value, float) else value


def claims(record: dict[str, Any]) -> dict[str, Any]:
    """What Michel et al. 2019 report, here."""
    removable = {}
    for name, curve in record["curves"].items():
        counts, bleus = list(curve["bleus"]), curve["bleus"]
        kept = [count for count in counts if bleus[count] < bleus[0] - 1]
        removable[name] = counts[counts.index(min(kept)) - 1] if kept else counts[-1]
    rises, gradients = grid(record, "rise"), grid(record, "gradient")
    needed = rises > corrected_z(rises.size) * grid(record, "error")
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)  # as Michel et al. do before they order all heads
    correlations = {
        "|dL/dxi|": rank_correlation(gradients, rises),
        "|dL/dxi| relative to its layer": rank_correlation(gradients / norms, rises),
    }
    return {
        "needed": [name for name, is_needed in zip(record["heads"], needed.reshape(-1)) if is_needed],
        "bleu_within_1_point_without": int((grid(record, "bleu") > record["bleu"] - 1).sum()),
        "removable": removable,
        "correlations": {name: found._asdict() for name, found in correlations.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", nargs="?", type=Path, default=SHIPPED, metavar="RUN", help="the directory of a run")
    parser.add_argument("--test", nargs=2, type=Path, metavar="FILE", help="source and reference")
    parser.add_argument("--val", nargs=2, type=Path, metavar="FILE", help="source and reference")
    parser.add_argument("--sentences", type=int, default=300, metavar="N", help="of the test text; half as many of val")
    parser.add_argument("--name", default="head_pruning", help="of the result")
    parser.add_argument("--quick", action="store_true", help="a few sentences, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    n_sentences = QUICK if arguments.quick else arguments.sentences
    provenance = surroundings()  # now: git may move while we measure
    translator = load_run(arguments.run)
    test, val = (
        read_pairs(*files) if files else bundled.read_text(split)
        for split, files in (("test", arguments.test), ("val", arguments.val))
    )
    text, to_order = text_of(translator, test, n_sentences), text_of(translator, val, n_sentences // 2)
    examples, pronouns = None, []
    if not arguments.test:
        annotated, pronouns = bundled.read("test"), bundled.read("test_coreference")[: 2 * n_sentences]
        examples = [annotated[line - 1] for line in text.pairs.line_numbers]
    with threadpool_limits(1):
        record = measure_heads(translator, text, to_order, text, examples, pronouns, 2 if arguments.quick else PARTS)
    print(as_text(record))
    config = configs.to_dict(configs.load(RunDirectory(arguments.run).config_file))
    result = {
        "benchmark": "head_pruning",
        "provenance": provenance,
        "config": {part: config[part] for part in ("model", "training")},
        "val_sentences": len(to_order.encoded),
        "results": rounded(claims(record) | record),
    }
    replace_text(arguments.out / f"{arguments.name}.json", json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
