"""No output falls on a file of a run or of a prepared corpus, nor replaces what we did not write, unless it was named.

The table has the commands that write where the user says, and places where they must not.
"""

import os
import shutil

import pytest

from scratchformer.training.run import RunDirectory

FILES = {
    "evaluate": lambda run, place: ["evaluate", run.path, "--beam", 1, "--output", place],
    "explore": lambda run, place: ["explore", run.path, "--out", place],
    "export": lambda run, place: ["export", run.path, "--to", "torch", place],
    "plot": lambda run, place: ["plot", run.path, "schedule", "--out", place],
}
"""Commands that write one file, which the user names."""


class Stage:
    """The places: the run that is read, another run, a prepared corpus, and links to them."""

    def __init__(self, run, prepared, directory):
        self.run, self.directory = run, directory
        self.other = RunDirectory(shutil.copytree(run.path, directory / "other"))
        self.prepared = shutil.copytree(prepared, directory / "prepared")
        self.foreign = directory / "foreign"
        self.foreign.mkdir()

    def made(self, make, target=None):
        """A link, a hard link or a pipe that `make` makes."""
        path = self.directory / "made.png"
        make(*([] if target is None else [target]), path)
        return path


@pytest.fixture
def stage(own_run, prepared, tmp_path, corpus):
    for language in ("en", "de"):  # the test set
        shutil.copy(corpus / f"val.{language}", tmp_path / f"test.{language}")
    config = own_run.config_file.read_text(encoding="utf-8")
    own_run.config_file.write_text(config.replace(str(corpus), str(tmp_path)), encoding="utf-8")
    return Stage(own_run, prepared, tmp_path)


def everything(directory):
    """Every path and, of plain files, the bytes."""
    return {path: path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


FORBIDDEN_FILES = {
    "the configuration": lambda stage: stage.run.config_file,
    "the tokenizer": lambda stage: stage.run.tokenizer_file,
    "the log": lambda stage: stage.run.log_file,
    "the evaluations": lambda stage: stage.run.evaluations_file,
    "a checkpoint": lambda stage: stage.run.checkpoints.best,
    "a new file among the checkpoints": lambda stage: stage.run.checkpoints.directory / "new.png",
    "by way of ..": lambda stage: stage.run.checkpoints.directory / ".." / "config.toml",
    "another run by way of a link": lambda stage: stage.made(os.symlink, stage.other.path) / "config.toml",
    "another run": lambda stage: stage.other.tokenizer_file,
    "a link to a file of the run": lambda stage: stage.made(os.symlink, stage.run.config_file),
    "a manifest": lambda stage: stage.prepared / "manifest.json",
    "a new file in a prepared corpus": lambda stage: stage.prepared / "new.png",
    "a directory": lambda stage: stage.foreign,
    "a dangling link": lambda stage: stage.made(os.symlink, stage.foreign / "nothing"),
    "a pipe": lambda stage: stage.made(os.mkfifo),
    "a device": lambda stage: "/dev/null",
    "nowhere": lambda stage: stage.directory / "nowhere" / "x.png",
    "below a file": lambda stage: stage.run.config_file / "x.png",
}


@pytest.mark.parametrize("place", FORBIDDEN_FILES)
def test_a_file_that_may_not_be_written(refused, stage, place):
    path = FORBIDDEN_FILES[place](stage)
    before = everything(stage.directory)
    refused(*FILES["plot"](stage.run, path))
    assert everything(stage.directory) == before


@pytest.mark.parametrize("place", ["a checkpoint", "another run", "a dangling link"])
@pytest.mark.parametrize("command", [name for name in FILES if name != "plot"])
def test_every_command_asks_before_it_writes(refused, stage, command, place):
    path = FORBIDDEN_FILES[place](stage)
    before = everything(stage.directory)
    refused(*FILES[command](stage.run, path))
    assert everything(stage.directory) == before


@pytest.mark.parametrize("command", [name for name in FILES if name != "explore"])  # it replaces pages of ours only
def test_a_plain_file_that_was_named_is_replaced(cli, stage, command):
    for path in (stage.foreign / "notes.png", stage.run.path / "notes.png"):
        path.write_text("old")
        assert cli(*FILES[command](stage.run, path)).code == 0
        assert path.read_bytes() != b"old"
    assert [path.name for path in stage.foreign.iterdir()] == ["notes.png"]


def test_the_figures_of_a_run_may_not_lead_elsewhere(refused, stage):
    stage.run.figures.symlink_to(stage.foreign)
    assert "is a link, which may lead elsewhere" in refused("plot", stage.run.path, "schedule")
    assert list(stage.foreign.iterdir()) == []


def test_missing_figures_are_made(cli, stage):
    assert cli("plot", stage.run.path, "schedule").out == f"{stage.run.figures / 'schedule.png'}\n"
