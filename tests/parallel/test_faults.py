"""Whatever happens to one rank, at any moment: the job ends, says why, leaves nothing behind, and can be resumed."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from scratchformer.parallel import launcher

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

GRACE, START_GRACE, LONG_GRACE = 3.0, 6.0, 60.0  # seconds; the long one where no rank has to be killed
WAIT = 20.0  # more seconds for the other ranks and the launcher
MESSAGES = {
    "raise": ("unexpected RuntimeError in faulty.py", "a fault was built in", "rank {} failed (exit code 1)"),
    "kill": ("rank {} was killed by SIGKILL",),
    "stop": ("rank {} stopped responding",),
    "hang": ("Timeout", "in hang", "scratchformer: rank {} "),
}

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).parent)
    faults = importlib.import_module("job_faults")
TRIALS = faults.all_trials(faults.SEED)


QUICK = [
    next(number for number, trial in enumerate(TRIALS) if (trial.fault, trial.moment) == (fault, "step"))
    for fault in ("kill", "raise")
]
"""One trial of each fault that ends a rank at once; the others are slow."""


@pytest.fixture(scope="module")
def site(tmp_path_factory, small_config, same):
    """All trials are carried out one after the other on the same run. At the end it must equal a run without faults."""
    site = faults.Site(tmp_path_factory.mktemp("faults"), small_config(validate_every=2, save_every=2))
    site.endings = []
    yield site
    assert_equals_a_run_without_faults(site, same)


def assert_equals_a_run_without_faults(site, same):
    """Bit for bit. Trials at the start of rank 0 have runs of their own, of which the losses are compared."""
    while site.one_step_more(site.run)[0] < max(ending.resumed[0] for ending in site.endings):
        pass
    _, found, complaints = site.run.checkpoints.newest_sound()
    undisturbed = site.undisturbed(found.progress.step)
    _, expected, _ = undisturbed.checkpoints.newest_sound()
    losses = faults.losses_of(undisturbed)
    assert all(losses[step] == loss for step, loss in (ending.resumed for ending in site.endings))
    assert faults.losses_of(site.run) == losses and not complaints
    assert same(found.weights, expected.weights) and same(found.moments, expected.moments)
    assert replace(found.progress, seconds=0) == replace(expected.progress, seconds=0)


def test_there_is_a_trial_of_every_fault_on_every_rank_at_every_moment():
    places = {(fault, rank, moment) for fault in faults.FAULTS for rank in range(2) for moment in faults.MOMENTS}
    assert {trial[:3] for trial in TRIALS} >= places and len(TRIALS) > len(places) >= 30


def trial_parameter(number):
    name = "-".join(map(str, TRIALS[number][:3]))
    return pytest.param(number, id=name, marks=[] if number in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("number", [trial_parameter(number) for number in range(len(TRIALS))])
def test_a_fault_ends_the_job_and_damages_nothing(number, site, monkeypatch):
    trial = TRIALS[number]
    grace = LONG_GRACE if trial.fault != "stop" else GRACE if trial.call else START_GRACE  # perhaps before they connect
    monkeypatch.setattr(launcher, "GRACE", grace)
    ending = site.carry_out(number, trial)
    site.endings.append(ending)
    assert ending.code == 1, ending.said
    for words in MESSAGES[trial.fault]:
        assert words.format(trial.rank) in ending.said
    assert ending.said.count("the job was ended") == 1
    limit = {"stop": faults.TIMEOUT + GRACE, "hang": faults.TIMEOUT}.get(trial.fault, 0)
    assert 0 <= ending.seconds < limit + WAIT
    assert not ending.left and not ending.harmed
