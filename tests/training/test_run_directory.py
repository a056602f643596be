"""A run's directory: others' files are left alone, and leftovers do not stop a training."""

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


def test_messages_and_hidden_files_are_no_obstacle(small_settings, tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    (run.path / ".DS_Store").write_text("theirs")
    command = [sys.executable, "-m", "scratchformer", "train", "--out", run.path, *map(str, small_settings)]
    with open(run.path / "messages", "wb") as messages:
        assert subprocess.run([*command, "--set", "steps=1"], stderr=messages).returncode == 0
    assert "1 steps done" in (run.path / "messages").read_text() and (run.path / ".DS_Store").read_text() == "theirs"


def test_what_a_run_leaves_that_was_killed_before_it_began_is_no_obstacle(tmp_path, small_config):
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.directory.mkdir(parents=True)
    for path in (run.tokenizer_file, run.path / ".config.toml.partial"):
        path.write_text("left over")
    assert loop.train(start.begin(run, small_config(steps=1))) == "1 steps done"


@pytest.mark.parametrize("name", ["log.jsonl", "train.en"])
def test_a_run_begins_only_in_a_directory_without_foreign_files(tmp_path, small_config, files_of, name):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / name).write_text("theirs")
    with pytest.raises(UserError, match=f"theirs: holds {name}, which no training wrote; choose another --out"):
        start.begin(RunDirectory(tmp_path / "theirs"), small_config())
    assert files_of(tmp_path / "theirs") == {tmp_path / "theirs" / name: b"theirs"}
