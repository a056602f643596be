"""Whole runs of several processes, started as a user does."""

import json

import numpy as np
import pytest

from scratchformer.cli import main
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory


def log_of(path):
    """The lines of the log, without times."""
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]


def last_tensors(path):
    """The weights and moments in the last checkpoint."""
    last = checkpoints.load(RunDirectory(path).checkpoints.steps()[-1])
    return last.weights | last.moments


@pytest.fixture
def train(tmp_path, small_settings, capsys):
    """train("name", "--nproc", 2, ...) -> the run's directory"""

    def run(name, *options):
        words = ["train", "tiny", "--out", tmp_path / name, *small_settings, "--set", "accumulation=4", *options]
        assert main(list(map(str, words))) == 0
        return tmp_path / name

    return run


def resume(path, *options):
    assert main([str(word) for word in ("train", "--resume", path, *options)]) == 0
    return path


def test_a_run_of_two_processes_equals_a_run_of_two_threads(train):
    alone, two = train("alone", "--threads", 2), train("two", "--nproc", 2, "--threads", 1)
    assert log_of(two) == log_of(alone) and len(log_of(two)) == 15
    here, there = last_tensors(alone), last_tensors(two)
    assert here.keys() == there.keys() and all(np.array_equal(here[name], there[name]) for name in here)
    names = ["log.jsonl", "config.toml", "tokenizer.model"]
    assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in alone.iterdir())
    assert (alone / names[2]).read_bytes() == (two / names[2]).read_bytes()


@pytest.mark.slow
def test_a_run_can_be_resumed_with_more_or_fewer_processes(train):
    steps = "training.steps"
    expected = log_of(train("alone", "--threads", 4))
    run = train("moves", "--set", f"{steps}=4", "--nproc", 2, "--threads", 2)
    resume(run, "--set", f"{steps}=8", "--nproc", 4, "--threads", 1)
    resume(run, "--set", f"{steps}=12", "--threads", 4)
    entries = log_of(run)
    assert [entry["step"] for entry in entries] == [entry["step"] for entry in expected]
    assert [entry["loss"] for entry in entries] == pytest.approx([entry["loss"] for entry in expected], rel=1e-5)
