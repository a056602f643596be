"""Whatever happens to one rank, at any moment: the job ends, says why, leaves nothing behind, and can be resumed."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from scratchformer.parallel import launcher

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIMEOUT, GRACE, LONG_GRACE = 4.0, 2.0, 60.0  # seconds; the long grace applies where no rank has to be killed
WAIT = 20.0  # more seconds for the other ranks and the launcher
MESSAGES = {
    "raise": ("Traceback", "in throw", "RuntimeError: a fault was built in", "rank {} failed (exit code 1)"),
    "kill": ("rank {} was killed by SIGKILL",),
    "stop": ("rank {} stopped responding",),
    "hang": ("Timeout", "in hang", "scratchformer: rank {} "),
}

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(BENCHMARKS)
    faults = importlib.import_module("faults")
TRIALS = faults.all_trials(faults.SEED)


@pytest.fixture(scope="module")
def site(tmp_path_factory, small_config):
    """All trials are carried out one after the other on the same run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "TIMEOUT", TIMEOUT)
        patch.setattr(faults, "FAULTY", Path(__file__).with_name("patient_start.py"))
        yield faults.Site(tmp_path_factory.mktemp("faults"), small_config(validate_every=2, save_every=2))


@pytest.fixture(scope="module")
def endings():
    """The results of the trials so far."""
    return []


def test_there_is_a_trial_of_every_fault_on_every_rank_at_every_moment():
    places = {(fault, rank, moment) for fault in faults.FAULTS for rank in range(2) for moment in faults.MOMENTS}
    assert {trial[:3] for trial in TRIALS} >= places and len(TRIALS) > len(places) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TRIALS)), ids=["-".join(map(str, trial[:3])) for trial in TRIALS])
def test_a_fault_ends_the_job_and_damages_nothing(number, site, endings, monkeypatch):
    trial = TRIALS[number]
    monkeypatch.setattr(launcher, "FAILURE_GRACE", GRACE if trial.fault == "stop" else LONG_GRACE)
    ending = site.carry_out(number, trial)
    endings.append(ending)
    assert ending.code == 1, ending.said
    for words in MESSAGES[trial.fault]:
        assert words.format(trial.rank) in ending.said
    assert ending.said.count("the job was ended") == 1
    limit = {"stop": TIMEOUT + GRACE, "hang": TIMEOUT}.get(trial.fault, 0)
    assert 0 <= ending.seconds < limit + WAIT
    assert not ending.left and not ending.harmed


@pytest.mark.slow
def test_a_run_with_many_faults_equals_one_without_bit_for_bit(site, endings, same):
    _, struck, complaints = site.run.checkpoints.newest_sound()
    undisturbed = site.undisturbed(struck.progress.step)
    _, other, _ = undisturbed.checkpoints.newest_sound()
    losses = faults.losses_of(undisturbed)
    assert endings and all(losses[step] == loss for step, loss in (ending.resumed for ending in endings))
    assert faults.losses_of(site.run) == losses and not complaints
    assert same(struck.weights, other.weights) and same(struck.moments, other.moments)
    assert replace(struck.progress, seconds=0) == replace(other.progress, seconds=0)


def test_the_recorded_trials_ended_the_same_way():
    recorded = json.loads((BENCHMARKS / "results" / "faults.json").read_text(encoding="utf-8"))
    assert recorded["command"] == "python benchmarks/faults.py"  # not with --quick
    rows = recorded["results"]
    assert [[row[field] for field in faults.Trial._fields] for row in rows] == [list(trial) for trial in TRIALS]
    assert all(row["code"] == 1 and row["resumed_loss_equal"] and not row["left"] and not row["harmed"] for row in rows)
