"""What a set of ablations says: means over seeds with intervals, what the paper claims, and a verdict on each claim.

Perplexity is compared as the loss, in nats per token: its logarithm, in which a change by a factor is a difference.

A seed decides about the first weights and about the order of the text, for all rows alike, and some seeds are luckier
than others. So a value is taken for the sum of what its row is worth, what its seed is worth, and chance; rows are
compared within seeds, and chance is measured by what is left over in all runs together (a two-way analysis of variance,
which supposes that chance is as large in each row). Intervals are Student's, for 95 %. With a single seed there is no
interval, and no verdict.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from matplotlib.figure import Figure

from scratchformer import config as configs
from scratchformer.experiments import figures
from scratchformer.experiments.ablation import ROWS, Trial
from scratchformer.experiments.markdown import table
from scratchformer.experiments.paper import PAPER_TABLE3
from scratchformer.experiments.sizes import parameter_counts
from scratchformer.files import replace_text

CONFIDENCE = 0.95
METRICS = {"loss": "nats", "bleu": "BLEU"}
NEARLY = {"loss": 0.05, "bleu": 1.0}
"""Differences below these are called nearly identical: 5 % of perplexity, 1 BLEU."""

REPLICATES, CONTRARY, INCONCLUSIVE = "replicates", "does not at this scale", "inconclusive"
TOO_FEW = "no verdict (too few seeds)"


class Claim(NamedTuple):
    """Something the paper says about two rows of Table 3. `better` None: they are nearly the same."""

    text: str
    rows: tuple[str, str]
    better: str | None
    metric: str


def both(text: str, better: str, worse: str) -> list[Claim]:
    """A claim about quality, which both metrics measure."""
    return [Claim(text, (better, worse), better, metric) for metric in METRICS]


CLAIMS = [
    *both("(A) one head is worse than eight", "base", "A1"),
    *both("(A) too many heads are worse: 32 instead of 8", "base", "A4"),
    *both("(B) smaller keys are worse: d_k a half", "base", "B2"),
    *both("(B) smaller keys are worse: d_k a quarter", "base", "B1"),
    *both("(C) deeper is better: N two thirds rather than a third", "C2", "C1"),
    *both("(C) deeper is better: N whole rather than two thirds", "base", "C2"),
    *both("(C) deeper is better: N four thirds", "C3", "base"),
    *both("(C) wider is better: d_model whole rather than a half", "base", "C4"),
    *both("(C) wider is better: d_model twice as large", "C5", "base"),
    *both("(C) a wider feed-forward network is better: d_ff whole rather than a half", "base", "C6"),
    *both("(C) a wider feed-forward network is better: d_ff twice as large", "C7", "base"),
    *both("(D) dropout helps: 0.1 rather than none", "base", "D1"),
    Claim("(D) label smoothing hurts perplexity (§5.4)", ("D3", "base"), "D3", "loss"),
    Claim("(D) label smoothing improves BLEU (§5.4)", ("base", "D3"), "base", "bleu"),
    *(Claim("(E) learned positions: nearly identical", ("base", "E"), None, metric) for metric in METRICS),
]
"""Paper §6.2, where nothing else is said. For one step, from N = 6 to 8, its own BLEU says the contrary."""

# Statistics -----------------------------------------------------------------------------------------------------------


@functools.cache
def student(freedom: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors on each side of a mean hold `confidence` of Student's distribution.

    With x = sqrt(freedom) tan u its density becomes that of cos(u)^(freedom - 1), on a finite interval.
    """
    u = np.linspace(0, math.pi / 2, 200_001)
    share = np.cumsum(np.cos(u) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(u[np.searchsorted(share, confidence * share[-1])])


class Effects(NamedTuple):
    """value = effect of its row + effect of its seed + chance, by least squares.

    places   row -> its place among the effects
    effects  of the rows, then of the seeds; only differences mean something
    inverse  (effects, effects): of X^T X, where X (runs, effects) says with ones which run is of which row and seed
    chance   standard deviation, in the metric's unit;  freedom: how many runs more than effects there are
    """

    places: dict[str, int]
    effects: np.ndarray
    inverse: np.ndarray
    chance: float
    freedom: int

    def difference(self, first: str, second: str) -> tuple[float, float]:
        """By how much the value of one row exceeds that of another, and half the interval; NaN if nothing can tell."""
        contrast = np.zeros(len(self.effects))
        contrast[self.places[first]], contrast[self.places[second]] = 1, -1
        value = float(contrast @ self.effects)
        if not self.freedom:
            return value, math.nan
        return value, student(self.freedom) * self.chance * math.sqrt(contrast @ self.inverse @ contrast)


def effects_of(runs: Sequence[dict[str, Any]], metric: str) -> Effects:
    """runs  each with its row, its seed and the metric; not every row needs every seed, but base has them all"""
    places = {row: place for place, row in enumerate(dict.fromkeys(run["row"] for run in runs))}
    seeds = {seed: len(places) + place for place, seed in enumerate(dict.fromkeys(run["seed"] for run in runs))}
    X = np.zeros((len(runs), len(places) + len(seeds)))
    for i, run in enumerate(runs):
        X[i, places[run["row"]]] = X[i, seeds[run["seed"]]] = 1
    values = np.array([run[metric] for run in runs])
    inverse = np.linalg.pinv(X.T @ X)
    effects = inverse @ X.T @ values
    freedom = len(runs) - np.linalg.matrix_rank(X)
    left_over = values - X @ effects
    return Effects(
        places, effects, inverse, math.sqrt(left_over @ left_over / freedom) if freedom else math.nan, int(freedom)
    )


def verdict(claim: Claim, difference: float, margin: float) -> str:
    """difference: by how much the better row is better, or for `better` None, by how much the two differ."""
    if math.isnan(margin):
        return TOO_FEW
    lowest, highest = difference - margin, difference + margin
    if claim.better is None:
        nearly = NEARLY[claim.metric]
        if -nearly < lowest and highest < nearly:
            return REPLICATES
        return CONTRARY if lowest > nearly or highest < -nearly else INCONCLUSIVE
    if lowest > 0:
        return REPLICATES
    return CONTRARY if highest < 0 else INCONCLUSIVE


# Results --------------------------------------------------------------------------------------------------------------


def results(task: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """What is known so far, as it goes into a JSON file: the base model, what each row changes, and the runs."""
    done = sorted((trial for trial in trials if trial.done), key=lambda each: (each.seed, list(ROWS).index(each.row)))
    base = configs.flat(next(trial.config for trial in trials if trial.row == "base"))
    rows = {
        row: next(trial.config for trial in done if trial.row == row)
        for row in ROWS
        if any(trial.row == row for trial in done)
    }
    settings = {key: value for key, value in base.items() if not key.startswith("data.") and key != "training.seed"}
    return {
        "task": task,
        "config": settings,
        "runs": [trial.result() for trial in done],
        "rows": {
            row: {
                "changes": {
                    key.split(".")[1]: value
                    for key, value in configs.flat(config).items()
                    if value != base[key] and key != "training.seed"
                },
                "parameters": sum(parameter_counts(config.model).values()),
            }
            for row, config in rows.items()
        },
    }


def values_of(found: dict[str, Any], row: str, metric: str) -> np.ndarray:
    return np.array([run[metric] for run in found["runs"] if run["row"] == row])


def in_paper(row: str, metric: str) -> float:
    return math.log(PAPER_TABLE3[row].ppl) if metric == "loss" else PAPER_TABLE3[row].bleu


def judged(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Every claim whose rows were run: by how much the better row is better, in the paper and here, and the verdict."""
    judgements = []
    for metric in METRICS:
        effects = effects_of(found["runs"], metric)
        sign = -1 if metric == "loss" else 1  # a lower loss is better
        for claim in CLAIMS:
            if claim.metric == metric and effects.places.keys() >= set(claim.rows):
                first, second = claim.rows
                difference, margin = effects.difference(first, second)
                judgements.append(
                    {
                        "claim": claim.text,
                        "rows": claim.rows,
                        "metric": metric,
                        "paper": sign * (in_paper(first, metric) - in_paper(second, metric)),
                        "difference": sign * difference,
                        "margin": margin,
                        "verdict": verdict(claim, sign * difference, margin),
                    }
                )
    return judgements


# Tables ---------------------------------------------------------------------------------------------------------------


def with_margin(value: float, margin: float, form: str) -> str:
    return format(value, form) + (f" ± {margin:{form.lstrip('+')}}" if math.isfinite(margin) else "")


def rows_table(found: dict[str, Any]) -> str:
    """Table 3 with our columns beside the paper's: means over the seeds, and the range."""
    lines = []
    for row, described in found["rows"].items():
        changes = ", ".join(f"{name} = {value}" for name, value in described["changes"].items())
        loss, bleu = (values_of(found, row, metric) for metric in METRICS)
        lines.append(
            [
                row,
                changes or "–",
                f"{described['parameters']:,}",
                len(loss),
                f"{loss.mean():.3f} ({loss.min():.3f} to {loss.max():.3f})",
                f"{math.exp(loss.mean()):.3f}",
                f"{bleu.mean():.1f} ({bleu.min():.1f} to {bleu.max():.1f})",
                f"{PAPER_TABLE3[row].ppl:.2f}",
                f"{PAPER_TABLE3[row].bleu:.1f}",
            ]
        )
    return table(
        [
            "row",
            "changes",
            "parameters",
            "runs",
            "loss, nats",
            "perplexity",
            "BLEU",
            "the paper's perplexity",
            "the paper's BLEU",
        ],
        lines,
    )


def claims_table(found: dict[str, Any]) -> str:
    """The paper's claims, how large the differences are there and here, and the verdicts."""
    form = {"loss": "+.3f", "bleu": "+.1f"}
    return table(
        ["claim", "rows", "measured in", "in the paper", "here", "verdict"],
        [
            [
                judgement["claim"],
                " : ".join(judgement["rows"]),
                METRICS[judgement["metric"]],
                format(judgement["paper"], form[judgement["metric"]]),
                with_margin(judgement["difference"], judgement["margin"], form[judgement["metric"]]),
                f"**{judgement['verdict']}**" if judgement["verdict"] != INCONCLUSIVE else judgement["verdict"],
            ]
            for judgement in judged(found)
        ],
    )


def verdicts(found: dict[str, Any]) -> str:
    """How many claims met which verdict, in one line."""
    counts = Counter(judgement["verdict"] for judgement in judged(found))
    return ", ".join(
        f"{verdict}: {counts[verdict]}"
        for verdict in (REPLICATES, CONTRARY, INCONCLUSIVE, TOO_FEW)
        if counts[verdict] or verdict != TOO_FEW
    )


# A picture ------------------------------------------------------------------------------------------------------------


@figures.as_default_style
def differences_figure(found: dict[str, Any]) -> Figure:
    """Each row's distance from the base model, with its interval, and the paper's distance as a ring."""
    figure = Figure(figsize=(9, 0.32 * len(found["rows"]) + 1.4), layout="constrained")
    rows = [row for row in found["rows"] if row != "base"]
    at = np.arange(len(rows))
    for axes, (metric, unit) in zip(figure.subplots(1, 2, sharey=True), METRICS.items()):
        effects = effects_of(found["runs"], metric)
        ours, margins = np.array([effects.difference(row, "base") for row in rows]).reshape(-1, 2).T
        theirs = [in_paper(row, metric) - in_paper("base", metric) for row in rows]
        axes.axvline(0, color="0.6", linewidth=1)
        axes.errorbar(
            ours,
            at,
            xerr=margins if effects.freedom else None,
            fmt="o",
            color=figures.DARK,
            capsize=3,
            label=f"here ({found['task']}), 95 %",
        )
        axes.plot(theirs, at, "o", markerfacecolor="none", markersize=9, color=figures.ACCENT, label="the paper")
        axes.set_yticks(at, rows)
        better = "lower" if metric == "loss" else "higher"
        figures.label(
            axes,
            f"{'Loss' if metric == 'loss' else 'BLEU'}: distance from the base model",
            x=f"{unit} ({better} is better)",
        )
    axes.invert_yaxis()
    axes.legend(loc="best")
    return figure


# All of it ------------------------------------------------------------------------------------------------------------


def write(task: str, trials: Sequence[Trial], out: Path) -> list[str]:
    """Write ablations.json, ablations.md and ablations.png of the runs that are done. -> what to tell"""
    found = results(task, trials)
    if not found["runs"]:
        return ["no run is done yet, so there is nothing to compare"]
    replace_text(out / "ablations.json", json.dumps(found, indent=1) + "\n")
    replace_text(out / "ablations.md", f"{rows_table(found)}\n\n{claims_table(found)}\n")
    if "base" in found["rows"]:
        figures.save(differences_figure(found), out / "ablations.png")
    return [
        f"{out}: ablations.json, ablations.md and ablations.png, of the {len(found['runs'])} runs that are done",
        f"the paper's claims: {verdicts(found)}",
    ]
