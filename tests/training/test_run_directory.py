"""A run's directory: others' files are left alone, and damaged or foreign ones are told."""

import os
import subprocess
import sys

import pytest

from scratchformer.errors import UserError
from scratchformer.tasks import start
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory


def test_weights_that_overflow_when_they_are_used(refused, own_run, corpus):
    found = checkpoints.load(own_run.checkpoints.best)
    for array in found.weights.values():
        array[...] = 3e38
    checkpoints.save(own_run.checkpoints.best, found)
    assert "the model's probabilities are not finite" in refused("translate", own_run.path, corpus / "val.en")
    assert "the model's probabilities are not finite" in refused("plot", own_run.path, "attention")


def test_a_file_with_another_name_than_ours_is_no_checkpoint(own_run):
    before = own_run.checkpoints.steps()
    for name in ("step_1", "step_00000099x", "step_9999999999999", "step_-0000099"):
        (own_run.checkpoints.directory / f"{name}.safetensors").write_bytes(before[-1].read_bytes())
    assert own_run.checkpoints.steps() == before


def test_the_messages_of_a_run_may_go_into_its_directory(small_settings, tmp_path):
    """And hidden files, which file managers make, are not an obstacle."""
    run = tmp_path / "run"
    run.mkdir()
    (run / ".DS_Store").write_text("theirs")
    command = [sys.executable, "-m", "scratchformer", "train", "--out", run, *map(str, small_settings)]
    with open(run / "messages", "wb") as messages:
        assert subprocess.run(command, stderr=messages).returncode == 0
    assert "12 steps done" in (run / "messages").read_text() and (run / ".DS_Store").read_text() == "theirs"


@pytest.mark.parametrize("name", ["tokenizer.model", "log.jsonl", "evaluations.jsonl", "train.en", "figures"])
def test_a_run_begins_only_in_a_directory_without_foreign_files(tmp_path, small_config, files_of, name):
    directory = tmp_path / "theirs"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / name).write_text("theirs")
    before = files_of(directory)
    with pytest.raises(UserError, match=f"theirs: holds {name}, which no training wrote; choose another --out"):
        start.begin(RunDirectory(directory), small_config())
    assert files_of(directory) == before


def test_what_a_run_leaves_that_was_killed_before_it_began_is_no_obstacle(tmp_path, small_config):
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.directory.mkdir(parents=True)
    run.figures.mkdir()
    for path in (run.tokenizer_file, run.path / ".config.toml.partial"):
        path.write_text("left over")
    assert loop.train(start.begin(run, small_config(steps=1))) == "1 steps done"


@pytest.mark.parametrize("name", ["config.toml", "tokenizer.model", "log.jsonl", "evaluations.jsonl"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(refused, own_run, corpus, name):
    path = own_run.path / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert f"{name}: not a plain file" in refused("translate", own_run.path, corpus / "val.en")
    assert f"{name}: not a plain file" in refused("train", "--resume", own_run.path)


def test_figures_are_no_reason_to_fail(cli, own_run, monkeypatch):
    own_run.figures.rename(own_run.path / "elsewhere")
    own_run.figures.write_text("a file")
    outcome = cli("train", "--resume", own_run.path, "--set", "steps=13")
    assert outcome.code == 0 and "no figures: " in outcome.err
    with open(own_run.log_file, "a") as log:
        log.write('{"event": "step", "step": 2, "loss": "low"}\n')
    assert cli("train", "--resume", own_run.path, "--set", "steps=14").code == 0
