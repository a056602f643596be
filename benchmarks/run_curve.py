"""Write the curve and the final score of a training run as one JSON file.

    python benchmarks/run_curve.py RUN --source test.en.gz --reference test.de.gz --name NAME [--out DIR]

Scores the run's preferred checkpoint (the average, if `scratchformer average` made one) with the run's beam and alpha,
and adds the curve of validation losses and scores from its log. Wall seconds of a shared machine say little; so each
point also has `quiet_seconds`: its padded positions times the 10th percentile of all steps' seconds per position, which
is what the steps would have taken had every one run as undisturbed as the quickest tenth.
"""

from __future__ import annotations

import argparse
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from harness import record

from scratchformer import config as configs
from scratchformer.nn.sizes import parameter_counts
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import read_lines
from scratchformer.training.run import RunDirectory, load_run


def curve(run: RunDirectory) -> list[dict[str, Any]]:
    """One point per validation: step, target tokens, wall and quiet seconds, loss, perplexity, greedy BLEU if taken."""
    steps = run.read_log("step")
    positions = np.array([entry["positions"] for entry in steps])
    seconds_per_position = np.percentile([entry["seconds"] for entry in steps] / positions, 10)
    quiet = dict(zip([entry["step"] for entry in steps], accumulate(positions * seconds_per_position)))
    bleu = {entry["step"]: entry["bleu"] for entry in run.read_log("bleu")}
    return [
        {
            "step": entry["step"],
            "target_tokens": entry["all_target_tokens"],
            "wall_seconds": round(entry["train_seconds"]),
            "quiet_seconds": round(quiet[entry["step"]]),
            "loss": round(entry["loss"], 4),
            "perplexity": round(entry["perplexity"], 3),
            **({"greedy_bleu": round(bleu[entry["step"]], 2)} if entry["step"] in bleu else {}),
        }
        for entry in run.read_log("validation")
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--name", default="run_curve", help="of the result (default: %(default)s)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    run = RunDirectory(arguments.run)
    config = configs.load(run.config_file)
    decoding, few = config.decoding, 8 if arguments.quick else None
    source, reference = (read_lines(file)[:few] for file in (arguments.source, arguments.reference))
    scores = corpus_scores(load_run(run.path).translate(source, decoding.beam, decoding.alpha), reference)
    print(f"BLEU {scores.bleu:.2f} ({scores.bleu_signature}), chrF {scores.chrf:.2f}")
    data = Path(config.data.directory).name  # a path would say where, not what
    return {
        "name": arguments.name,
        "data": data,
        "test": arguments.source.name.split(".")[0],
        "checkpoint": run.checkpoints.preferred().name,
        "beam": decoding.beam,
        "alpha": decoding.alpha,
        **scores._asdict(),
        "n_parameters": sum(parameter_counts(config.model).values()),
        "validation": curve(run),
        "config": configs.to_dict(configs.with_settings(config, {"data.directory": data})),
    }


if __name__ == "__main__":
    record("run_curve", __doc__, measure, options, threads=None)
