"""What a set of ablations says: means over seeds with intervals, what the paper claims, and a verdict on each claim.

Perplexity is compared as the loss, in nats per token: its logarithm, in which a change by a factor is a difference.

Intervals are Student's, for 95 %. Three seeds alone say little about how far runs scatter, so the scatter is taken from
all rows together, as an analysis of variance does: it supposes that it is the same in each. Runs with the same seed see
the same batches in the same order; they are taken for independent all the same, which makes intervals of differences
rather too wide than too narrow. With single runs there is no interval, and no verdict.
"""

from __future__ import annotations

import functools
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from matplotlib.figure import Figure

from scratchformer import config as configs
from scratchformer.files import replace_text
from scratchformer.study import figures
from scratchformer.study.ablation import ROWS, Trial
from scratchformer.study.markdown import table
from scratchformer.study.paper import PAPER_TABLE3
from scratchformer.study.sizes import parameter_counts

CONFIDENCE = 0.95
METRICS = {"loss": "nats", "bleu": "BLEU"}
NEARLY = {"loss": 0.05, "bleu": 1.0}
"""Differences below these are called nearly identical: 5 % of perplexity, 1 BLEU."""

REPLICATES, CONTRARY, INCONCLUSIVE = "replicates", "does not at this scale", "inconclusive"


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


class Sample(NamedTuple):
    """One metric of one row: a value for each seed."""

    values: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.values.mean())


class Scatter(NamedTuple):
    """How far runs of one row lie apart: standard deviation, pooled over all rows, and its degrees of freedom."""

    deviation: float
    freedom: int

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Scatter:
        freedom = sum(len(sample.values) - 1 for sample in samples)
        squares = sum(float(((sample.values - sample.mean) ** 2).sum()) for sample in samples)
        return cls(math.sqrt(squares / freedom) if freedom else math.nan, freedom)

    def margin(self, *samples: Sample) -> float:
        """Half the interval of a mean, or of the difference of two means; NaN for single runs."""
        if not self.freedom:
            return math.nan
        return student(self.freedom) * self.deviation * math.sqrt(sum(1 / len(sample.values) for sample in samples))


def verdict(claim: Claim, difference: float, margin: float) -> str:
    """difference: by how much the better row is better, or for `better` None, by how much the two differ."""
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
    rows = {row: next(trial.config for trial in done if trial.row == row) for row in ROWS
            if any(trial.row == row for trial in done)}
    return {"task": task, "config": base, "runs": [trial.result() for trial in done],
            "rows": {row: {"changes": {key.split(".")[1]: value for key, value in configs.flat(config).items()
                                       if value != base[key] and key != "training.seed"},
                           "parameters": sum(parameter_counts(config.model).values())}
                     for row, config in rows.items()}}


def samples(found: dict[str, Any], metric: str) -> dict[str, Sample]:
    """Row -> its values, in the order of Table 3."""
    values: dict[str, list[float]] = defaultdict(list)
    for run in found["runs"]:
        values[run["row"]].append(run[metric])
    return {row: Sample(np.array(values[row])) for row in found["rows"] if row in values}


def in_paper(row: str, metric: str) -> float:
    return math.log(PAPER_TABLE3[row].ppl) if metric == "loss" else PAPER_TABLE3[row].bleu


def judged(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Every claim whose rows were run: by how much the better row is better, in the paper and here, and the verdict."""
    judgements = []
    for claim in CLAIMS:
        of = samples(found, claim.metric)
        first, second = claim.rows
        if first not in of or second not in of:
            continue
        sign = -1 if claim.metric == "loss" else 1                                 # a lower loss is better
        difference = sign * (of[first].mean - of[second].mean)
        margin = Scatter.of(list(of.values())).margin(of[first], of[second])
        judgements.append({"claim": claim.text, "rows": claim.rows, "metric": claim.metric,
                           "paper": sign * (in_paper(first, claim.metric) - in_paper(second, claim.metric)),
                           "difference": difference, "margin": margin, "verdict": verdict(claim, difference, margin)})
    return judgements


# Tables ---------------------------------------------------------------------------------------------------------------


def with_margin(value: float, margin: float, form: str) -> str:
    return format(value, form) + (f" ± {margin:{form.lstrip('+')}}" if math.isfinite(margin) else "")


def rows_table(found: dict[str, Any]) -> str:
    """Table 3 with our columns beside the paper's."""
    losses, bleus = samples(found, "loss"), samples(found, "bleu")
    scatter = {"loss": Scatter.of(list(losses.values())), "bleu": Scatter.of(list(bleus.values()))}
    lines = []
    for row, described in found["rows"].items():
        changes = ", ".join(f"{name} = {value}" for name, value in described["changes"].items())
        loss, bleu = losses[row], bleus[row]
        lines.append([row, changes or "–", f"{described['parameters']:,}", str(len(loss.values)),
                      with_margin(loss.mean, scatter["loss"].margin(loss), ".3f"), f"{math.exp(loss.mean):.3f}",
                      with_margin(bleu.mean, scatter["bleu"].margin(bleu), ".1f"),
                      f"{PAPER_TABLE3[row].ppl:.2f}", f"{PAPER_TABLE3[row].bleu:.1f}"])
    return table(["row", "changes", "parameters", "runs", "loss, nats", "perplexity", "BLEU", "the paper's perplexity",
                  "the paper's BLEU"], lines)


def claims_table(found: dict[str, Any]) -> str:
    """The paper's claims, how large the differences are there and here, and the verdicts."""
    form = {"loss": "+.3f", "bleu": "+.1f"}
    return table(["claim", "rows", "measured in", "in the paper", "here", "verdict"], [
        [judgement["claim"], " : ".join(judgement["rows"]), METRICS[judgement["metric"]],
         format(judgement["paper"], form[judgement["metric"]]),
         with_margin(judgement["difference"], judgement["margin"], form[judgement["metric"]]),
         f"**{judgement['verdict']}**" if judgement["verdict"] != INCONCLUSIVE else judgement["verdict"]]
        for judgement in judged(found)])


def verdicts(found: dict[str, Any]) -> str:
    """How many claims met which verdict, in one line."""
    counts = {verdict: sum(judgement["verdict"] == verdict for judgement in judged(found))
              for verdict in (REPLICATES, CONTRARY, INCONCLUSIVE)}
    return ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())


# A picture ------------------------------------------------------------------------------------------------------------


@figures.as_default_style
def differences_figure(found: dict[str, Any]) -> Figure:
    """Each row's distance from the base model, with its interval, and the paper's distance as a ring."""
    figure = Figure(figsize=(9, 0.32 * len(found["rows"]) + 1.4), layout="constrained")
    for axes, (metric, unit) in zip(figure.subplots(1, 2, sharey=True), METRICS.items()):
        of = samples(found, metric)
        scatter, rows = Scatter.of(list(of.values())), [row for row in of if row != "base"]
        at = np.arange(len(rows))
        ours = [of[row].mean - of["base"].mean for row in rows]
        theirs = [in_paper(row, metric) - in_paper("base", metric) for row in rows]
        margins = [scatter.margin(of[row], of["base"]) for row in rows]
        axes.axvline(0, color="0.6", linewidth=1)
        axes.errorbar(ours, at, xerr=margins if scatter.freedom else None, fmt="o", color=figures.DARK, capsize=3,
                      label=f"here ({found['task']}), 95 %")
        axes.plot(theirs, at, "o", markerfacecolor="none", markersize=9, color=figures.ACCENT, label="the paper")
        axes.set_yticks(at, rows)
        better = "lower" if metric == "loss" else "higher"
        figures.label(axes, f"{'Loss' if metric == 'loss' else 'BLEU'}: distance from the base model",
                      x=f"{unit} ({better} is better)")
        axes.set_xscale("symlog", linthresh=0.1 if metric == "loss" else 1.0)
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
    return [f"{out}: ablations.json, ablations.md and ablations.png, of the {len(found['runs'])} runs that are done",
            f"the paper's claims: {verdicts(found)}"]
