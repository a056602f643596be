"""Compare the rows of an ablation: means over seeds with intervals, the paper's claims, and a verdict on each claim.

Perplexities are compared by their logarithm, the loss in nats per token: there a factor becomes a difference.

A seed sets the first weights and the order of the text, for all rows alike, and some seeds are luckier than others. So
a value is modelled as the effect of its row, plus the effect of its seed, plus chance. Rows are compared within seeds,
and chance is estimated from the residuals of all runs together (a two-way analysis of variance, which assumes that
chance is equally large in each row). Intervals are Student's, for 95 %. A single seed gives no interval and no verdict.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np

from scratchformer import config as configs
from scratchformer.experiments import figures
from scratchformer.experiments.ablation import FIGURE, PAGE, RESULTS, ROWS, Trial
from scratchformer.experiments.figures import Figure
from scratchformer.experiments.markdown import Markup, table, write_page
from scratchformer.experiments.paper import PAPER_TABLE3
from scratchformer.files import replace_text
from scratchformer.nn.sizes import parameter_counts

CONFIDENCE = 0.95
METRICS = {"loss": "nats", "bleu": "BLEU"}
NEARLY = {"loss": 0.05, "bleu": 1.0}
"""Smaller differences are called nearly identical: 5 % of perplexity, 1 BLEU."""

REPLICATES, CONTRARY, INCONCLUSIVE = "replicates", "does not replicate at this scale", "inconclusive"
TOO_FEW = "no verdict (too few seeds)"


class Claim(NamedTuple):
    """Something the paper says about two rows of Table 3. `better` is None if they are nearly the same."""

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

# Statistics -----------------------------------------------------------------------------------------------------------


@functools.cache
def student_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors on each side of a mean contain `confidence` of Student's distribution.

    With x = sqrt(freedom) tan u its density becomes that of cos(u)^(freedom - 1), on a finite interval.
    """
    u = np.linspace(0, math.pi / 2, 200_001)
    share = np.cumsum(np.cos(u) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(u[np.searchsorted(share, confidence * share[-1])])


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
        return value, student_quantile(self.freedom) * standard_error


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


# Results --------------------------------------------------------------------------------------------------------------


def collect_results(task: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """The results so far, for a JSON file: the base model's settings, what each row changes of them, and the runs."""
    done = sorted(
        (trial for trial in trials if trial.done), key=lambda trial: (trial.seed, list(ROWS).index(trial.row))
    )
    base = configs.flat(next(trial.config for trial in trials if trial.row == "base"))
    rows = {}
    for row in ROWS:
        config = next((trial.config for trial in done if trial.row == row), None)
        if config:
            changes = {key: value for key, value in configs.flat(config).items() if value != base[key]}
            rows[row] = {
                "changes": {key.split(".")[1]: value for key, value in changes.items() if key != "training.seed"},
                "parameters": sum(parameter_counts(config.model).values()),
            }
    settings = {key: value for key, value in base.items() if not key.startswith("data.") and key != "training.seed"}
    return {"task": task, "config": settings, "runs": [trial.result() for trial in done], "rows": rows}


def paper_value(row: str, metric: str) -> float:
    """The paper's number in Table 3: loss in nats, which is the logarithm of its perplexity, or BLEU."""
    return math.log(PAPER_TABLE3[row].ppl) if metric == "loss" else PAPER_TABLE3[row].bleu


def judge_claims(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every claim whose rows were run: by how much the better row is better, in the paper and here, and the verdict."""
    judgements = []
    for metric in METRICS:
        effects = fit_effects(results["runs"], metric)
        sign = -1 if metric == "loss" else 1  # a lower loss is better
        for claim in CLAIMS:
            if claim.metric == metric and effects.row_index.keys() >= set(claim.rows):
                first, second = claim.rows
                difference, margin = effects.difference(first, second)
                judgements.append(
                    {
                        "claim": claim.text,
                        "rows": claim.rows,
                        "metric": metric,
                        "paper": sign * (paper_value(first, metric) - paper_value(second, metric)),
                        "difference": sign * difference,
                        "margin": margin,
                        "verdict": verdict(claim, sign * difference, margin),
                    }
                )
    return judgements


# Tables ---------------------------------------------------------------------------------------------------------------


def rows_table(results: dict[str, Any]) -> str:
    """Table 3 with our columns beside the paper's: means over the seeds, and the range."""
    rows = []
    for row, described in results["rows"].items():
        loss, bleu = (np.array([run[metric] for run in results["runs"] if run["row"] == row]) for metric in METRICS)
        rows.append(
            {
                "row": row,
                "changes": ", ".join(f"{name} = {value}" for name, value in described["changes"].items()) or "–",
                "parameters": f"{described['parameters']:,}",
                "runs": len(loss),
                "loss, nats": f"{loss.mean():.3f} ({loss.min():.3f} to {loss.max():.3f})",
                "perplexity": f"{math.exp(loss.mean()):.3f}",
                "BLEU": f"{bleu.mean():.1f} ({bleu.min():.1f} to {bleu.max():.1f})",
                "the paper's perplexity": f"{PAPER_TABLE3[row].ppl:.2f}",
                "the paper's BLEU": f"{PAPER_TABLE3[row].bleu:.1f}",
            }
        )
    return table(rows[0], [row.values() for row in rows])


def claims_table(results: dict[str, Any]) -> str:
    """The paper's claims, how large the differences are there and here, and the verdicts."""
    rows = []
    for judgement in judge_claims(results):
        digits = 3 if judgement["metric"] == "loss" else 1
        here = f"{judgement['difference']:+.{digits}f}"
        if math.isfinite(judgement["margin"]):
            here += f" ± {judgement['margin']:.{digits}f}"
        emphasis = "" if judgement["verdict"] == INCONCLUSIVE else "**"
        rows.append(
            [
                judgement["claim"],
                " : ".join(judgement["rows"]),
                METRICS[judgement["metric"]],
                f"{judgement['paper']:+.{digits}f}",
                here,
                Markup(f"{emphasis}{judgement['verdict']}{emphasis}"),
            ]
        )
    return table(["claim", "rows", "measured in", "in the paper", "here", "verdict"], rows)


def verdict_counts(results: dict[str, Any]) -> str:
    """How many claims met which verdict, in one line."""
    counts = Counter(judgement["verdict"] for judgement in judge_claims(results))
    shown = [REPLICATES, CONTRARY, INCONCLUSIVE, *([TOO_FEW] if counts[TOO_FEW] else [])]
    return ", ".join(f"{verdict}: {counts[verdict]}" for verdict in shown)


# A figure -------------------------------------------------------------------------------------------------------------


@figures.as_default_style
def differences_figure(results: dict[str, Any]) -> Figure:
    """Each row's difference from the base model, with its interval, and the paper's difference as a ring."""
    figure = Figure(figsize=(9, 0.32 * len(results["rows"]) + 1.4), layout="constrained")
    rows = [row for row in results["rows"] if row != "base"]
    at = np.arange(len(rows))
    for axes, (metric, unit) in zip(figure.subplots(1, 2, sharey=True), METRICS.items()):
        effects = fit_effects(results["runs"], metric)
        ours, margins = np.array([effects.difference(row, "base") for row in rows]).reshape(-1, 2).T
        theirs = [paper_value(row, metric) - paper_value("base", metric) for row in rows]
        name, better = ("Loss", "lower") if metric == "loss" else ("BLEU", "higher")
        axes.axvline(0, color="0.6", linewidth=1)
        bars, here = margins if effects.freedom else None, f"here ({results['task']}), 95 %"
        axes.errorbar(ours, at, xerr=bars, fmt="o", color=figures.DARK, capsize=3, label=here)
        axes.plot(theirs, at, "o", markerfacecolor="none", markersize=9, color=figures.ACCENT, label="the paper")
        axes.set_yticks(at, rows)
        figures.label(axes, f"{name}: distance from the base model", x=f"{unit} ({better} is better)")
    axes.invert_yaxis()
    axes.legend(loc="best")
    return figure


# Output ---------------------------------------------------------------------------------------------------------------


def write(task: str, trials: Sequence[Trial], out: Path) -> list[str]:
    """Write ablations.json, ablations.md and ablations.png of the runs that are done -> messages for the user

    Raises UserError if a log is damaged, or if they cannot be written.
    """
    results = collect_results(task, trials)
    if not results["runs"]:
        return ["no run is done yet, so there is nothing to compare"]
    write_page(out / PAGE, f"{rows_table(results)}\n\n{claims_table(results)}\n")
    replace_text(out / RESULTS, json.dumps(results, indent=1) + "\n")
    if "base" in results["rows"]:
        figures.save(differences_figure(results), out / FIGURE)
    return [
        f"{out}: {RESULTS}, {PAGE} and {FIGURE}, of the {len(results['runs'])} runs that are done",
        f"the paper's claims: {verdict_counts(results)}",
    ]
