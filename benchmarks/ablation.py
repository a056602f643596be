"""Repeat Table 3 of the paper (§6.2): change one choice of the base model, train, and judge the paper's claims.

    python benchmarks/ablation.py                                                  # all rows of the bundled text
    python benchmarks/ablation.py --rows A,D1 --on multi30k --data DIR --runs runs/ablations-m30k --out DIR2
    python benchmarks/ablation.py --on wmt14 --data DIR --runs runs/table3 --out DIR2 --set device=gpu

Each row with each seed is an ordinary run in --runs. After a stop the same command resumes the unfinished run and skips
the finished ones. The result has all finished rows.

Perplexities are compared by their logarithm, the loss in nats per token. A value is modelled as the effect of its row,
plus the effect of its seed, plus chance (a two-way analysis of variance, which assumes equal chance in each row). The
intervals are Student's, for 95 %. A single seed gives no interval and no verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from harness import record
from provenance import git
from scipy.stats import t as student

from scratchformer import cli
from scratchformer import config as configs
from scratchformer.backends.device import open_device
from scratchformer.config import BASE, BIG, PRESETS, TABLE3, Config
from scratchformer.experiments.paper import PAPER_TABLE3
from scratchformer.files import replace_text
from scratchformer.tasks.translation import follow_preparation
from scratchformer.text import bundled
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import find_split, read_lines
from scratchformer.training.run import RunDirectory, load_model, translator_of

CONFIDENCE = 0.95
METRICS = {"loss": "nats", "bleu": "BLEU"}
NEARLY = {"loss": 0.05, "bleu": 1.0}
"""Smaller differences are called nearly identical: 5 % of perplexity, 1 BLEU."""

REPLICATES, CONTRARY, INCONCLUSIVE = "replicates", "does not replicate at this scale", "inconclusive"
TOO_FEW = "no verdict (too few seeds)"

BIG_CHANGES = {name: getattr(BIG.model, name) for name in ("d_model", "d_ff", "h", "P_drop")}
ROWS: dict[str, dict[str, Any]] = {"base": {}, **TABLE3, "big": BIG_CHANGES | {"steps": BIG.training.steps}}
"""Row of Table 3 -> its changes of the base model. Here big uses base's batching."""

# Rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A text to learn, and the scale of its models.

    preset    gives the vocabulary and the batches
    training  settings that differ from the preset's
    width_divisor, depth_divisor  divide the paper's d_model, d_ff, d_k and d_v, and its N. Heads, P_drop and eps_ls are
              the paper's, so that a row changes the model in the paper's proportion.
    """

    preset: str
    width_divisor: int
    depth_divisor: int
    training: dict[str, Any]

    @cached_property
    def base(self) -> Config:
        """The paper's base model made smaller, with a learning rate by equation 3 without a factor."""
        preset = PRESETS[self.preset]
        sizes = {name: getattr(BASE.model, name) for name in ("N", "d_model", "d_ff", "d_k", "d_v")}
        model = replace(BASE.model, vocab_size=preset.model.vocab_size, **self.scaled(sizes))
        settings = {"lr_factor": 1.0, "keep": 1, "score_every": 0, **self.training}
        return configs.with_settings(replace(preset, model=model), settings)

    def scaled(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The paper's settings at this task's scale."""
        divisors = {"N": self.depth_divisor, **dict.fromkeys(("d_model", "d_ff", "d_k", "d_v"), self.width_divisor)}
        return {name: value // divisors[name] if name in divisors else value for name, value in settings.items()}

    def config(self, row: str, seed: int, settings: dict[str, Any] = {}) -> Config:
        """The configuration of a row with this seed; other settings apply to all rows."""
        base = configs.with_settings(self.base, settings)
        changes = self.scaled(ROWS[row])
        if "steps" in changes:  # big trains three times as long
            changes["steps"] = base.training.steps * changes["steps"] // BASE.training.steps
        return configs.with_settings(base, {"training.seed": seed, **changes})


TINY_TRAINING = dict(steps=1000, tokens_per_batch=1024, accumulation=1, warmup=400, validate_every=250, save_every=250)
TASKS = {
    "tiny": Task("tiny", 8, 2, TINY_TRAINING),
    "multi30k": Task("multi30k", 4, 2, dict(steps=4000, max_tokens=0, validate_every=500, save_every=500)),
    "wmt14": Task("wmt14-en-de-base", 1, 1, dict(validate_every=2000)),
}


def chosen_rows(text: str) -> list[str]:
    """ "A,B2" -> base, A1 to A4 and B2, in the order of Table 3."""
    wanted = {"base"}
    for name in text.split(","):
        found = [row for row in ROWS if row == name or row[0] == name and row[1:].isdigit()]
        if not found:
            raise argparse.ArgumentTypeError(f"Table 3 has no row {name!r}; there are {', '.join(ROWS)}")
        wanted.update(found)
    return [row for row in ROWS if row in wanted]


# Runs -----------------------------------------------------------------------------------------------------------------


def finished(row: str, seed: int, config: Config, runs: Path) -> dict[str, Any]:
    """Train a row with a seed unless this is done, and score its last checkpoint without averaging (§6.2)."""
    run, steps = RunDirectory(runs / f"{row}-seed{seed}"), config.training.steps
    result_file = run.path.with_suffix(".json")
    if run.config_file.exists():
        may_change = {"training.threads"}
        configs.require_same(configs.load(run.config_file), config, run.config_file, may_change)
        if result_file.exists():
            return json.loads(result_file.read_text(encoding="utf-8"))
        arguments = ["--resume", str(run.path)]
    else:
        runs.mkdir(parents=True, exist_ok=True)
        replace_text(run.path.with_suffix(".toml"), configs.to_toml(config))
        arguments = [str(run.path.with_suffix(".toml")), "--out", str(run.path)]
    if not run.checkpoints.of_step(steps).exists() and (code := cli.main(["train", *arguments])):
        sys.exit(code)
    validations = [entry for entry in run.read_log("validation") if entry["step"] == steps]
    if not validations:
        sys.exit(f"{run.path}: was not validated after the last of {steps} steps, so it cannot be compared")

    data, decoding = config.data, config.decoding
    device = open_device(config.training.device, config.training.precision)
    trained = load_model(run.path, "last", threads=config.training.threads or 1, device=device)
    if data.directory:
        files = find_split(Path(data.directory), "val", data.source_language, data.target_language)
        source, reference = map(read_lines, files)
    else:
        source, reference, *_ = bundled.read_text("val")
    translations = translator_of(trained).translate(source, decoding.beam, decoding.alpha)
    scores = corpus_scores(translations, reference, data.target_language)
    result = {
        "row": row,
        "seed": seed,
        "loss": validations[-1]["loss"],
        "bleu": scores.bleu,
        "bleu_signature": scores.bleu_signature,
        "target_tokens": validations[-1]["all_target_tokens"],
        "train_seconds": validations[-1]["train_seconds"],
        "parameters": trained.model.store.data.size,
        "commit": git("rev-parse", "HEAD"),
    }
    replace_text(result_file, json.dumps(result))
    print(f"{row}, seed {seed}: loss {result['loss']:.3f}, BLEU {result['bleu']:.1f}", flush=True)
    return result


# Claims ---------------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A claim of the paper about two rows of Table 3. `better` is None if they are nearly the same."""

    text: str
    rows: tuple[str, str]
    better: str | None
    metric: str


def in_both_metrics(text: str, better: str, worse: str) -> list[Claim]:
    """A claim about quality, which both metrics measure."""
    return [Claim(text, (better, worse), better, metric) for metric in METRICS]


CLAIMS = [
    *in_both_metrics("(A) one head is worse than eight", "base", "A1"),
    *in_both_metrics("(A) too many heads are worse: 32 instead of 8", "base", "A4"),
    *in_both_metrics("(B) smaller keys are worse: half of d_k", "base", "B2"),
    *in_both_metrics("(B) smaller keys are worse: a quarter of d_k", "base", "B1"),
    *in_both_metrics("(C) deeper is better: two thirds of N rather than one third", "C2", "C1"),
    *in_both_metrics("(C) deeper is better: N rather than two thirds of it", "base", "C2"),
    *in_both_metrics("(C) deeper is better: four thirds of N", "C3", "base"),
    *in_both_metrics("(C) wider is better: d_model rather than half of it", "base", "C4"),
    *in_both_metrics("(C) wider is better: twice d_model", "C5", "base"),
    *in_both_metrics("(C) a wider feed-forward network is better: d_ff rather than half of it", "base", "C6"),
    *in_both_metrics("(C) a wider feed-forward network is better: twice d_ff", "C7", "base"),
    *in_both_metrics("(D) dropout helps: 0.1 rather than none", "base", "D1"),
    Claim("(D) label smoothing hurts perplexity (§5.4)", ("D3", "base"), "D3", "loss"),
    Claim("(D) label smoothing improves BLEU (§5.4)", ("base", "D3"), "base", "bleu"),
    *(Claim("(E) learned positions: nearly identical", ("base", "E"), None, metric) for metric in METRICS),
]
"""From paper §6.2 unless stated. The paper's own BLEU contradicts it in one case: N = 8 has a lower BLEU than N = 6."""


class Effects(NamedTuple):
    """A least-squares fit of: value = effect of its row + effect of its seed + chance.

    row_index  row -> index of its effect
    effects    of the rows, then of the seeds; only differences have a meaning
    inverse    (effects, effects) of X^T X; X (runs, effects) has a 1 for the row and a 1 for the seed of each run
    chance     standard deviation, in the metric's unit
    freedom    degrees of freedom: runs minus independent effects
    """

    row_index: dict[str, int]
    effects: np.ndarray
    inverse: np.ndarray
    chance: float
    freedom: int

    def difference(self, first: str, second: str) -> tuple[float, float]:
        """The first row minus the second, and half the width of its interval (NaN without degrees of freedom)."""
        contrast = np.zeros(len(self.effects))
        contrast[self.row_index[first]], contrast[self.row_index[second]] = 1, -1
        value = float(contrast @ self.effects)
        if not self.freedom:
            return value, math.nan
        standard_error = self.chance * math.sqrt(contrast @ self.inverse @ contrast)
        return value, float(student.ppf((1 + CONFIDENCE) / 2, self.freedom)) * standard_error


def fit_effects(runs: Sequence[dict[str, Any]], metric: str) -> Effects:
    """runs: each with its row, its seed and the metric. base needs every seed; another row may lack some."""
    row_index = {row: i for i, row in enumerate(dict.fromkeys(run["row"] for run in runs))}
    seeds = {seed: len(row_index) + i for i, seed in enumerate(dict.fromkeys(run["seed"] for run in runs))}
    X = np.zeros((len(runs), len(row_index) + len(seeds)))
    for i, run in enumerate(runs):
        X[i, row_index[run["row"]]] = X[i, seeds[run["seed"]]] = 1
    values = np.array([run[metric] for run in runs])
    inverse = np.linalg.pinv(X.T @ X)
    effects = inverse @ X.T @ values
    freedom = len(runs) - int(np.linalg.matrix_rank(X))
    residuals = values - X @ effects
    chance = math.sqrt(residuals @ residuals / freedom) if freedom else math.nan
    return Effects(row_index, effects, inverse, chance, freedom)


def verdict(claim: Claim, difference: float, margin: float) -> str:
    """difference: by how much the better row is better, or if `better` is None, by how much the two rows differ."""
    if math.isnan(margin):
        return TOO_FEW
    lowest, highest = difference - margin, difference + margin
    if claim.better is not None:
        replicates, contrary = lowest > 0, highest < 0
    else:
        nearly = NEARLY[claim.metric]
        replicates = -nearly < lowest and highest < nearly
        contrary = lowest > nearly or highest < -nearly
    return REPLICATES if replicates else CONTRARY if contrary else INCONCLUSIVE


def paper_value(row: str, metric: str) -> float:
    """The paper's number in Table 3: loss in nats, which is the logarithm of its perplexity, or BLEU."""
    return math.log(PAPER_TABLE3[row].ppl) if metric == "loss" else PAPER_TABLE3[row].bleu


def judge_claims(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Each claim whose rows were run: by how much the better row is better, in the paper and here, and the verdict."""
    judgements = []
    for metric in METRICS:
        effects = fit_effects(results["runs"], metric)
        sign = -1 if metric == "loss" else 1  # a lower loss is better
        for claim in CLAIMS:
            if claim.metric == metric and effects.row_index.keys() >= set(claim.rows):
                first, second = claim.rows
                difference, margin = effects.difference(first, second)
                judgement = {
                    "claim": claim.text,
                    "rows": claim.rows,
                    "metric": metric,
                    "paper": sign * (paper_value(first, metric) - paper_value(second, metric)),
                    "difference": sign * difference,
                    "margin": margin,
                    "verdict": verdict(claim, sign * difference, margin),
                }
                judgements.append(judgement)
    return judgements


# The whole experiment -------------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    rows = "groups or rows of Table 3, such as A,C1,big (default: A,B,C,D,E); the base model is always included"
    parser.add_argument("--rows", type=chosen_rows, default=chosen_rows("A,B,C,D,E"), help=rows)
    parser.add_argument("--on", choices=TASKS, default="tiny", help="the text (default: tiny, the bundled one)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the text, as `scratchformer data` writes it")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row (default: 3)")
    parser.add_argument("--runs", type=Path, default=Path("runs/ablations"), help="directory of the runs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all rows")


QUICK = {"N": 1, "d_model": 32, "d_ff": 32, "vocab_size": 300, "steps": 2, "validate_every": 2, "tokens_per_batch": 512}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    task, rows, seeds = TASKS[arguments.on], arguments.rows, range(arguments.seeds)
    settings = dict(configs.parse_setting(text) for text in arguments.set)
    if arguments.data:
        settings["data.directory"] = str(arguments.data.resolve())
    elif arguments.on != "tiny":
        sys.exit(f"--on {arguments.on} needs --data DIR, a directory that `scratchformer data` writes")
    if arguments.quick:
        settings, rows, seeds = QUICK | settings, [row for row in rows if row in ("base", "D1")], range(2)
        arguments.runs = arguments.out / "runs"
    configurations = {}
    for seed in seeds:
        for row in rows:
            config, _ = follow_preparation(task.config(row, seed, settings), list(settings))
            configurations[row, seed] = config
    runs = [finished(row, seed, config, arguments.runs) for (row, seed), config in configurations.items()]
    base = configs.flat(configurations["base", 0])
    described = {}
    for row in rows:
        flat = configs.flat(configurations[row, 0])
        changes = {key.split(".")[1]: value for key, value in flat.items() if value != base[key]}
        parameters = next(run["parameters"] for run in runs if run["row"] == row)
        described[row] = {"changes": changes, "parameters": parameters}
    shared = {key: value for key, value in base.items() if not key.startswith("data.") and key != "training.seed"}
    found = {"seeds": list(seeds), "task": arguments.on, "config": shared, "runs": runs, "rows": described}
    for judgement in judge_claims(found):
        print("{claim} ({metric}): {difference:+.3f} ± {margin:.3f}, {verdict}".format(**judgement))
    return found


if __name__ == "__main__":
    record("ablations", __doc__, measure, options, threads=None)
