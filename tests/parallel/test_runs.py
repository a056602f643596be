"""Whole runs of several processes, started as a user does, and what is refused before any is started."""

import signal
import subprocess
import sys
import time

import pytest

from scratchformer.cli import main
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory

TWO = ["--nproc", 2, "--threads", 1]


@pytest.fixture
def train(tmp_path, small_settings):
    """train("name", *options) -> the run, finished"""

    def call(name, *options):
        words = ["train", "tiny", "--out", tmp_path / name, *small_settings, "--set", "accumulation=4", *options]
        assert main(list(map(str, words))) == 0
        return RunDirectory(tmp_path / name)

    return call


def test_a_run_of_two_processes_equals_a_run_of_two_threads(train, same_run, tmp_path, monkeypatch):
    """Whatever modules are in the working directory."""
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "scratchformer").mkdir()
    monkeypatch.chdir(tmp_path)
    alone, two = train("alone", "--threads", 2), train("two", *TWO)
    same_run(alone, two)
    names = [sorted(path.name for path in run.path.iterdir()) for run in (alone, two)]
    assert names[0] == names[1] and alone.tokenizer_file.read_bytes() == two.tokenizer_file.read_bytes()


@pytest.mark.slow
def test_an_interrupted_run_can_be_resumed_with_more_or_fewer_processes(train, tmp_path, small_settings):
    run = RunDirectory(tmp_path / "moves")
    options = [*small_settings, "--set", "accumulation=4", "--set", "steps=100000", *TWO, "--out", run.path]
    command = [sys.executable, "-m", "scratchformer", "train", "tiny", *map(str, options)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None and not (run.log_file.exists() and len(run.read_log("step")) > 4):
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        said = job.communicate(timeout=60)[1]
    assert job.returncode == 130 and "interrupted; step" in said and "--nproc 2" in said
    n = checkpoints.load(run.checkpoints.steps()[-1]).progress.step
    assert [entry["step"] for entry in run.read_log("step")] == list(range(1, n + 1))
    for steps, nproc, threads in ((n + 3, 4, 1), (n + 6, 1, 4)):
        resumed = ["--resume", run.path, "--set", f"steps={steps}", "--nproc", nproc, "--threads", threads]
        assert main(["train", *map(str, resumed)]) == 0
    losses, expected = (
        [entry["loss"] for entry in one.read_log("step")] for one in (run, train("whole", "--set", f"steps={n + 6}"))
    )
    assert losses == pytest.approx(expected, rel=1e-4)


def test_a_run_belongs_to_one_process(own_run):
    run = RunDirectory(own_run.path)
    run.lock()
    RunDirectory(own_run.path).lock()  # the same process may lock it twice
    command = [sys.executable, "-m", "scratchformer", "train", "--resume", str(own_run.path)]
    refusal = subprocess.run(command, capture_output=True, text=True)
    assert refusal.returncode == 2
    assert refusal.stderr == f"scratchformer: {own_run.path}: another process is training in this run\n"


def test_more_processes_than_micro_batches_are_refused(refused, small_settings, tmp_path):
    said = refused("train", "--out", tmp_path / "run", *small_settings, "--nproc", 3)
    assert "3 processes, but a step has only 2 micro-batches; a step of the same size" in said
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_stray_environment_variable_is_reported_and_does_no_harm(refused, monkeypatch, tmp_path):
    (tmp_path / "memory").write_text("mine")
    monkeypatch.setenv("SCRATCHFORMER_JOB", str(tmp_path))
    assert "SCRATCHFORMER_JOB" in refused("train", "--out", tmp_path / "run", "--timeout", 0)
    assert (tmp_path / "memory").exists()
