"""No output falls on a file of a run or a prepared corpus, nor replaces what the same command has not written."""

import os
import shutil

import pytest

FILES = {
    "evaluate": lambda place: ["evaluate", "own", "--beam", 1, "--output", place],
    "explore": lambda place: ["explore", "own", "--out", place],
    "export": lambda place: ["export", "own", "--to", "torch", place],
    "plot": lambda place: ["plot", "own", "schedule", "--out", place],
}
"""Commands that write one file, which the user names."""


@pytest.fixture
def stage(own_run, prepared, tmp_path, corpus, monkeypatch):
    """The working directory: the run `own`, another run, a prepared corpus, and links to them."""
    for language in ("en", "de"):  # the test set
        shutil.copy(corpus / f"val.{language}", tmp_path / f"test.{language}")
    config = own_run.config_file.read_text(encoding="utf-8")
    own_run.config_file.write_text(config.replace(str(corpus), str(tmp_path)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shutil.copytree("own", "other")
    shutil.copytree(prepared, "prepared")
    os.mkdir("foreign")
    os.mkfifo("pipe.png")
    for name, target in {"link": "other", "link.png": "own/config.toml", "dangling.png": "foreign/nothing"}.items():
        os.symlink(target, name)
    return tmp_path


OF_RUNS = [f"own/{name}" for name in ("config.toml", "tokenizer.model", "log.jsonl", "evaluations.jsonl")]
OF_RUNS += ["own/checkpoints/best.safetensors", "own/checkpoints/new.png", "own/figures/../config.toml"]
OF_RUNS += ["other/tokenizer.model", "link/config.toml"]
FORBIDDEN = [*OF_RUNS, "prepared/manifest.json", "prepared/new.png", "link.png", "dangling.png"]
FORBIDDEN += ["foreign", "pipe.png", "/dev/null", "nowhere/x.png", "own/config.toml/x.png"]
SOME = ["own/checkpoints/best.safetensors", "other/tokenizer.model", "dangling.png"]


@pytest.mark.parametrize(
    "command, place",
    [*(("plot", place) for place in FORBIDDEN), *((name, place) for name in FILES if name != "plot" for place in SOME)],
)
def test_a_file_that_may_not_be_written(refused, stage, files_of, command, place):
    before = files_of(stage)
    refused(*FILES[command](place))
    assert files_of(stage) == before


@pytest.mark.parametrize("command", FILES)
def test_only_an_output_of_the_same_command_is_replaced(cli, refused, stage, command):
    place = stage / "foreign" / ("page.html" if command == "explore" else "notes.png")
    assert cli(*FILES[command](place)).code == 0
    assert cli(*FILES[command](place)).code == (2 if command == "evaluate" else 0)  # lines of text bear no mark
    place.write_text("old")
    assert f"{place}: exists already and is not replaced: rm {place}, or choose" in refused(*FILES[command](place))
    assert place.read_text() == "old" and os.listdir("foreign") == [place.name]


def test_the_figures_of_a_run(cli, refused, stage):
    shutil.rmtree("own/figures", ignore_errors=True)
    assert cli("plot", "own", "schedule").out == "own/figures/schedule.png\n"
    shutil.rmtree("own/figures")
    os.symlink(stage / "foreign", "own/figures")
    assert "is a link, which may lead elsewhere" in refused("plot", "own", "schedule")
    assert os.listdir("foreign") == []
