"""The ablations of Table 3: rows at another scale, runs that continue after a stop, intervals, verdicts."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ablation import CLAIMS, NEARLY, ROWS, TASKS, Claim, fit_effects, judge_claims, verdict

from scratchformer import config as configs
from scratchformer.config import BASE
from scratchformer.experiments.paper import PAPER_TABLE3

# Rows -----------------------------------------------------------------------------------------------------------------


def test_on_wmt14_the_rows_are_the_papers():
    housekeeping = {"validate_every": 2000, "keep": 1, "save_every": 1500, "average_last": 5, "bucket_fineness": 1}
    for row in ROWS:
        assert TASKS["wmt14"].config(row, 0) == configs.with_settings(configs.preset(row), housekeeping)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("row", ROWS)
def test_a_row_changes_settings_in_the_papers_proportion(name, row):
    """A row multiplies or divides a setting by the same factor as in the paper, and leaves the other settings alone."""
    base, here = (configs.flat(TASKS[name].config(which, seed=7)) for which in ("base", row))
    in_paper = configs.flat(configs.with_settings(BASE, {configs.full_key(key): ROWS[row][key] for key in ROWS[row]}))
    for key, paper in in_paper.items():
        if paper == configs.flat(BASE)[key]:
            assert here[key] == base[key], key
        elif type(paper) in (int, float):
            assert here[key] / base[key] == pytest.approx(paper / configs.flat(BASE)[key]), key
        else:
            assert here[key] == paper, key


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_continues_after_a_stop_and_is_not_repeated(corpus, tmp_path):
    """The process is killed by SIGKILL after its first checkpoint, then the user repeats the command."""
    script, runs = Path(__file__).parents[2] / "benchmarks" / "ablation.py", tmp_path / "runs"
    options = ["--rows", "D1", "--seeds", "1", "--data", corpus, "--runs", runs, "--out", tmp_path]
    small = dict(vocab_size=60, N=1, d_model=16, d_ff=32, h=2, steps=60, validate_every=30, save_every=10, warmup=2)
    small |= dict(tokens_per_batch=80, extra_length=4, threads=1)
    command = [sys.executable, script, *options, *(f"--set={key}={value}" for key, value in small.items())]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not list(runs.glob("base-seed0/checkpoints/step_*")) and process.poll() is None:
            pass
        process.kill()
    first = subprocess.run(command, check=True, capture_output=True, text=True)
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "base, seed 0: loss " in first.stdout and "base, seed 0" not in again.stdout
    found = json.loads((tmp_path / "ablations.json").read_text(encoding="utf-8"))
    assert [(run["row"], run["seed"]) for run in found["runs"]] == [("base", 0), ("D1", 0)]
    assert found["rows"]["D1"]["changes"] == {"P_drop": 0.0} and found["rows"]["base"]["parameters"] < 10_000
    log = [json.loads(line) for line in (runs / "base-seed0" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [entry["step"] for entry in log if entry["event"] == "step"] == list(range(1, 61))
    assert found["runs"][0]["loss"] == [entry for entry in log if entry["event"] == "validation"][-1]["loss"]
    other = subprocess.run([*command, "--set=warmup=3"], capture_output=True, text=True)
    assert other.returncode and "training.warmup is 3, was 2" in other.stderr


# Statistics -----------------------------------------------------------------------------------------------------------


def runs_of(values):
    """values (rows, seeds), NaN where there is no run"""
    return [
        {"row": f"row {row}", "seed": seed, "loss": float(value)}
        for (row, seed), value in np.ndenumerate(values)
        if not math.isnan(value)
    ]


def test_a_missing_seed_is_no_advantage():
    """A row that lacks the unlucky seed is compared within the other seeds."""
    values = np.array([[1.0, 2.0, 9.0], [2.0, 3.0, math.nan], [1.5, 2.5, 9.5]])
    effects = fit_effects(runs_of(values), "loss")
    assert effects.difference("row 1", "row 0")[0] == pytest.approx(1.0)
    assert effects.difference("row 1", "row 2")[0] == pytest.approx(0.5) and effects.freedom == 3


def test_intervals_contain_the_true_difference_as_often_as_they_should():
    """With normally distributed chance, 95 % of the intervals of a difference contain the true one."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        values = np.array([[0.0], [1.0], [5.0], [-2.0]]) + random.normal(0, 3, size=3) + random.normal(0, 0.3, (4, 3))
        difference, margin = fit_effects(runs_of(values), "loss").difference("row 1", "row 0")
        held += abs(difference - 1.0) <= margin
    assert held / 1000 == pytest.approx(0.95, abs=0.02)


def test_a_single_seed_gives_no_interval_and_no_verdict():
    difference, margin = fit_effects(runs_of(np.array([[1.0], [2.0]])), "loss").difference("row 1", "row 0")
    assert difference == pytest.approx(1.0) and math.isnan(margin)
    assert {verdict(claim, 1.0, margin) for claim in CLAIMS} == {"no verdict (too few seeds)"}


@pytest.mark.parametrize(
    ("better", "difference", "margin", "expected"),
    [
        ("base", 0.2, 0.1, "replicates"),
        ("base", 0.2, 0.3, "inconclusive"),
        ("base", -0.2, 0.1, "does not replicate at this scale"),
        ("base", -0.2, 0.3, "inconclusive"),
        (None, 0.01, 0.02, "replicates"),
        (None, -0.04, 0.02, "inconclusive"),
        (None, -0.2, 0.1, "does not replicate at this scale"),
        (None, 0.0, 0.2, "inconclusive"),
    ],
)
def test_verdicts(better, difference, margin, expected):
    assert verdict(Claim("", ("base", "E"), better, "loss"), difference, margin) == expected


def test_the_papers_own_numbers_support_its_claims():
    """With one exception, which the module mentions: from N = 6 to 8, perplexity improves but BLEU does not."""
    found = {
        "rows": dict.fromkeys(PAPER_TABLE3),
        "runs": [
            {"row": row, "seed": 0, "loss": math.log(printed.ppl), "bleu": printed.bleu}
            for row, printed in PAPER_TABLE3.items()
        ],
    }
    judgements = judge_claims(found)
    assert len(judgements) == len(CLAIMS)
    nearly = [judgement for judgement in judgements if "identical" in judgement["claim"]]
    for judgement in judgements:
        assert judgement["difference"] == pytest.approx(judgement["paper"])
        if judgement in nearly:
            assert abs(judgement["paper"]) < NEARLY[judgement["metric"]]
        else:
            exception = (judgement["rows"], judgement["metric"]) == (("C3", "base"), "bleu")
            assert (judgement["paper"] > 0) is not exception
    assert len(nearly) == 2
