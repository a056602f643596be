"""Compare two groups of runs, such as three seeds of one setting with three of another: `scratchformer evaluate`.

An exact permutation test says whether the settings differ by more than the seeds. If the setting made no difference,
every division of the runs into two groups would be as likely as the one that was made; p is the share of divisions
whose means differ at least as much. Few runs have few divisions: p is never below 2/20 for 3 against 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scratchformer import config as configs
from scratchformer.errors import UserError, printable
from scratchformer.experiments.evaluation import SIGNIFICANT
from scratchformer.training.run import RunDirectory

MEASURES = {
    "translation": "bleu",
    "parsing": "f1",
    "language-model": "bits_per_character",
    "masked-language-model": "accuracy",
    "antecedent": "test",
    "digits": "accuracy",
}
"""Task -> the score in the record of an evaluation by which its runs are compared."""

PER_RUN = {f"training.{name}" for name in ("seed", "threads", "device", "save_every", "keep")}
"""Settings that may differ within a group without a warning."""

TWO_RUNS = "two runs do not show whether the setting or the seed makes the difference: train both with more seeds"


def require_comparable(group: Sequence[Path], others: Sequence[Path], same_run: bool) -> tuple[str, list[str]]:
    """Refuse runs of different tasks, and a run that is named twice -> the task, warnings about the groups

    same_run  whether a run may be in both groups, because two of its checkpoints are compared
    """
    found: dict[Path, dict[str, Any]] = {}
    remarks = []
    for paths in (group, others):
        settings: dict[Path, dict[str, Any]] = {}
        for path in paths:
            if path.resolve() in settings or not same_run and path.resolve() in found:
                raise UserError(f"{path}: is named twice; name each run once")
            own = configs.flat(RunDirectory(path).require())
            differing = {key for each in settings.values() for key in own if own[key] != each[key]} - PER_RUN
            if differing:
                remarks.append(f"{path}: differs from its group in more than the seed: {', '.join(sorted(differing))}")
            if own["training.seed"] in [each["training.seed"] for each in settings.values()]:
                remarks.append(f"{path}: has the seed of another run of its group")
            settings[path.resolve()] = own
        found |= settings
    tasks = {each["data.task"] for each in found.values()}
    if len(tasks) > 1:
        raise UserError(f"the runs are for different tasks, {' and '.join(sorted(tasks))}: name runs of one task")
    if comb(len(group) + len(others), len(group)) > 10**6:
        raise UserError(f"{len(group)} against {len(others)} runs: too many for the test; name at most 11 in a group")
    return tasks.pop(), remarks


def compare(task: str, runs: list[RunDirectory], records: list[dict[str, Any]], n: int) -> tuple[list[dict], str]:
    """Compare the first `n` runs with the others, if any, by each measure -> for JSON, and as text

    records  of each run's evaluation
    """
    if len({each.get("text_crc32") for each in records}) > 1:
        raise UserError("the runs have different test texts, so that their scores cannot be compared")
    measures = {MEASURES[task]: [each[MEASURES[task]] for each in records]}
    if task not in ("translation", "language-model"):  # whose score is the loss
        logged = [{entry["step"]: entry["loss"] for entry in run.read_log("validation")} for run in runs]
        losses = [each.get(made["step"]) for each, made in zip(logged, records)]
        if None not in losses and not any(each["checkpoint"].startswith("average") for each in records):
            measures["loss"] = losses
    found, lines = [], []
    for measure, scores in measures.items():
        lines += [f"{measure:18} {'mean':>8} {'spread':>8} {'runs':>5}", row("", runs[:n], scores[:n])]
        record: dict[str, Any] = {"measure": measure, "scores": scores[:n], "against": scores[n:]}
        if len(runs) > n:
            difference, p_value = mean(scores[:n]) - mean(scores[n:]), permutation_p(scores[:n], scores[n:])
            record |= {"difference": difference, "p_value": p_value}
            lines.append(row("against", runs[n:], scores[n:]))
            lines.append(f"difference {difference:+.3f}: {verdict(p_value, n, len(runs) - n)}")
        found.append(record)
    return found, "\n".join(lines)


def row(label: str, runs: list[RunDirectory], scores: list[float]) -> str:
    """Mean, standard deviation and number of the scores of a group, then the score of each run."""
    spread = f"{stdev(scores):.3f}" if len(scores) > 1 else "-"
    each = ", ".join(f"{printable(str(run.path))} {score:.3f}" for run, score in zip(runs, scores))
    return f"{label:18} {mean(scores):8.3f} {spread:>8} {len(scores):5}  {each}"


def permutation_p(scores: list[float], others: list[float]) -> float:
    """The share of all divisions of these scores whose means differ at least as much, in either direction."""
    n, total = len(scores), sum(scores) + sum(others)
    sums = [sum(chosen) for chosen in combinations([*scores, *others], n)]  # the first is the division that was made
    differences = [abs(each / n - (total - each) / len(others)) for each in sums]
    least = differences[0] - 1e-9 * max(map(abs, [*scores, *others]))  # an equal one may be rounded otherwise
    return sum(each >= least for each in differences) / len(sums)


def smallest_p(n: int, n_others: int) -> float:
    """The smallest p of the test. Groups of one size can be exchanged, so that each difference occurs twice."""
    return (1 + (n == n_others)) / comb(n + n_others, n)


def verdict(p_value: float, n: int, n_others: int) -> str:
    """Say whether the difference is more than the seeds, and if the groups are too small, how many runs are needed."""
    if n == n_others == 1:
        return TWO_RUNS
    said = f"{'more' if p_value < SIGNIFICANT else 'no more'} than the seeds: p = {p_value:.2g} "
    said += f"({comb(n + n_others, n)} ways to divide these {n + n_others} runs)"
    if (lowest := smallest_p(n, n_others)) >= SIGNIFICANT:
        needed = next(size for size in range(2, 10) if smallest_p(size, size) < SIGNIFICANT)
        said += f"\n{n} against {n_others} runs cannot show more: p is at least {lowest:.2g}, whatever they score; "
        said += f"with {needed} against {needed} it can be {smallest_p(needed, needed):.2g}"
    return said
