"""Write the curve and the final score of a training run as one JSON file.

    python benchmarks/run_curve.py RUN --source test.en.gz --reference test.de.gz --json FILE

Scores the run's preferred checkpoint (the average, if `scratchformer average` made one) with the run's beam and alpha,
and adds the curve of validation losses and scores from its log. Wall seconds of a shared machine say little; so each
point also has `quiet_seconds`: its padded positions times the 10th percentile of all steps' seconds per position, which
is what the steps would have taken had every one run as undisturbed as the quickest tenth.
"""

from __future__ import annotations

import argparse
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from provenance import surroundings

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()

    run = RunDirectory(arguments.run)
    config = configs.load(run.config_file)
    decoding = config.decoding
    translations = load_run(run.path).translate(read_lines(arguments.source), decoding.beam, decoding.alpha)
    scores = corpus_scores(translations, read_lines(arguments.reference))
    data = Path(config.data.directory).name  # a path would say where, not what
    result = {
        "benchmark": "run_curve",
        "data": data,
        "test": arguments.source.name.split(".")[0],
        "checkpoint": run.checkpoints.preferred().name,
        "beam": decoding.beam,
        "alpha": decoding.alpha,
        **scores._asdict(),
        "n_parameters": sum(parameter_counts(config.model).values()),
        "validation": curve(run),
        **surroundings(),
        "config": configs.to_dict(configs.with_settings(config, {"data.directory": data})),
    }
    print(f"{result['test']}: BLEU {scores.bleu:.2f} ({scores.bleu_signature}), chrF {scores.chrf:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
