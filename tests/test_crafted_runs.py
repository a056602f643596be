"""Runs that somebody else has made: what their files say is believed only after it is checked."""

import json
import math
import os
import subprocess
import sys

import ml_dtypes  # noqa: F401  (with it, safetensors reads types that NumPy lacks)
import numpy as np
import pytest
from safetensors.numpy import save_file

from scratchformer.errors import UserError
from scratchformer.tasks import start
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, load_run

DEEP = "[" * 50_000
HUGE = 2**62


def rewrite(path, change):
    """Change a checkpoint's header and arrays, and give it the right checksum."""
    header, tensors = checkpoints.read_tensors(path, checkpoints.FORMAT)
    header.pop("checksum")
    change(header, tensors)
    header["checksum"] = checkpoints.checksum(header, tensors)
    save_file(tensors, path, header)


def in_part(part, **values):
    """A change of some values in a part of the header."""

    def change(header, tensors):
        header[part] = json.dumps(json.loads(header[part]) | values)

    return change


def in_model(**values):
    def change(header, tensors):
        config = json.loads(header["config"])
        header["config"] = json.dumps(config | {"model": config["model"] | values})

    return change


def replaced(part, text):
    return lambda header, tensors: header.update({part: text})


def weights(value):
    """A change of one weight."""

    def change(header, tensors):
        tensors["model.source_embedding.weight"][0, 0] = value

    return change


def moment(header, tensors):
    tensors.setdefault("adam.m.source_embedding.weight", np.ones((60, 16), np.float32))[0, 0] = math.nan


def of_integers(header, tensors):
    tensors["model.source_embedding.weight"] = tensors["model.source_embedding.weight"].astype(np.int32)


def too_many(header, tensors):
    tensors["model.more"] = np.ones(3, np.float32)


CRAFTED = {
    "no progress": lambda header, tensors: header.pop("progress"),
    "no config": lambda header, tensors: header.pop("config"),
    "progress not JSON": replaced("progress", "{"),
    "config not JSON": replaced("config", "]"),
    "progress a list": replaced("progress", "[]"),
    "progress null": replaced("progress", "null"),
    "config a list": replaced("config", "[]"),
    "config a string": replaced("config", '"model"'),
    "deep progress": replaced("progress", DEEP),
    "deep config": replaced("config", DEEP),
    "a number of many digits": replaced("progress", "9" * 5000),
    "an unknown field": in_part("progress", surprise=1),
    "a step that is text": in_part("progress", step="12"),
    "a step that is true": in_part("progress", step=True),
    "a negative step": in_part("progress", step=-1),
    "a huge step": in_part("progress", step=2**70),
    "an epoch that is a fraction": in_part("progress", epoch=0.5),
    "seconds not a number": in_part("progress", seconds=math.nan),
    "a best loss that is null": in_part("progress", best_loss=None),
    "a device state of text": in_part("progress", device_state=["a"]),
    "a device state that is a number": in_part("progress", device_state=1),
    "an unknown table": in_part("config", surprise={}),
    "a model that is text": in_part("config", model="large"),
    "a vocabulary that is text": in_model(vocab_size="60"),
    "a huge d_ff": in_model(d_ff=HUGE),
    "a large d_ff": in_model(d_ff=2**20),
    "N of 1000": in_model(N=1000),
    "weights not a number": weights(math.nan),
    "weights infinite": weights(math.inf),
    "weights of integers": of_integers,
    "a weight too many": too_many,
    "a moment that is not a number": moment,
}


def of_type(dtype, n_bytes):
    """A safetensors file with an array of a type that NumPy lacks."""
    metadata = {"format": checkpoints.FORMAT, "progress": "{}", "config": "{}"}
    array = {"dtype": dtype, "shape": [2], "data_offsets": [0, n_bytes]}
    header = json.dumps({"__metadata__": metadata, "model.weight": array}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(n_bytes)


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_checkpoint_is_not_believed(own_run, name):
    *_, older, newest = own_run.checkpoints.steps()
    for path in (newest, own_run.checkpoints.best):
        rewrite(path, CRAFTED[name])
    with pytest.raises(UserError, match="best.safetensors: ") as error:
        load_run(own_run.path)
    assert len(str(error.value)) < 2000
    path, _, (complaint,) = own_run.checkpoints.newest_sound()
    assert path == older and newest.name in complaint, "the search for older ones goes on"


@pytest.mark.parametrize("name", ["no config", "deep progress", "weights not a number"])
def test_no_command_believes_it(refused, own_run, corpus, tmp_path, name):
    for path in [*own_run.checkpoints.steps(), own_run.checkpoints.best]:
        rewrite(path, CRAFTED[name])
    commands = [
        ["translate", own_run.path, corpus / "val.en"],
        ["evaluate", own_run.path, "--source", corpus / "val.en", "--reference", corpus / "val.de"],
        ["export", own_run.path, "--to", "torch", tmp_path / "exported"],
        ["plot", own_run.path, "positions"],
        ["explore", own_run.path],
        ["average", own_run.path],
        ["train", "--resume", own_run.path, "--set", "steps=20"],
    ]
    for command in commands:
        assert ("step_00000012" if command[0] in ("average", "train") else "best.safetensors") in refused(*command)
    assert not (tmp_path / "exported").exists()


def test_weights_that_overflow_when_they_are_used(refused, own_run, corpus):
    def huge(header, tensors):
        for array in tensors.values():
            array[...] = 3e38

    rewrite(own_run.checkpoints.best, huge)
    assert "the model's probabilities are not finite" in refused("translate", own_run.path, corpus / "val.en")
    assert "the model's probabilities are not finite" in refused("plot", own_run.path, "attention")


@pytest.mark.parametrize("dtype, n_bytes", [("F8_E4M3", 2), ("F8_E5M2", 2), ("BF16", 4), ("F4", 1), ("F8_E8M0", 2)])
def test_numbers_that_numpy_does_not_know(own_run, dtype, n_bytes):
    path = own_run.checkpoints.best
    path.write_bytes(of_type(dtype, n_bytes))
    with pytest.raises(UserError, match="best.safetensors: not a sound safetensors file"):
        load_run(own_run.path)


def test_a_file_with_another_name_than_ours_is_no_checkpoint(own_run):
    before = own_run.checkpoints.steps()
    for name in (
        "step_$(touch gotcha)",
        "step_1",
        "step_00000099x",
        "step_9999999999999",
        "step_-0000099",
        "step_99 99999",
    ):
        (own_run.checkpoints.directory / f"{name}.safetensors").write_bytes(before[-1].read_bytes())
    assert own_run.checkpoints.steps() == before


def test_a_configuration_that_asks_for_more_than_the_weights_builds_nothing(own_run, small_config, monkeypatch):
    """Also if config.toml and the checkpoint agree."""
    large = small_config(d_ff=2**20)
    rewrite(own_run.checkpoints.best, in_model(d_ff=2**20))
    own_run.write_config(large)
    monkeypatch.setattr("scratchformer.training.run.Transformer", lambda *arguments: pytest.fail("is built"))
    with pytest.raises(UserError, match="best.safetensors: .* weights, but a model of its configuration has"):
        load_run(own_run.path)


# Directories that are not ours ----------------------------------------------------------------------------------------


def test_the_messages_of_a_run_may_go_into_its_directory(small_settings, tmp_path):
    """And hidden files, which file managers make, are no obstacle."""
    run = tmp_path / "run"
    run.mkdir()
    (run / ".DS_Store").write_text("theirs")
    command = [sys.executable, "-m", "scratchformer", "train", "--out", run, *map(str, small_settings)]
    with open(run / "messages", "wb") as messages:
        assert subprocess.run(command, stderr=messages).returncode == 0
    assert "12 steps done" in (run / "messages").read_text() and (run / ".DS_Store").read_text() == "theirs"


@pytest.mark.parametrize("name", ["tokenizer.model", "log.jsonl", "evaluations.jsonl", "train.en", ".probe", "figures"])
def test_a_run_begins_only_in_a_directory_without_foreign_files(tmp_path, small_config, files_of, name):
    directory = tmp_path / "theirs"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / name).write_text("theirs")
    before = files_of(directory)
    with pytest.raises(UserError, match=f"theirs: holds {name}, which no training wrote; choose another --out"):
        start.begin(RunDirectory(directory), small_config())
    assert files_of(directory) == before


def test_a_prepared_corpus_is_no_place_for_a_run(prepare_corpus, small_config, tmp_path, files_of):
    directory = prepare_corpus(tmp_path / "prepared")
    before = files_of(directory)
    with pytest.raises(UserError, match="which no training wrote"):
        start.begin(RunDirectory(directory), small_config())
    assert files_of(directory) == before


def test_what_a_run_leaves_that_was_killed_before_it_began_is_no_obstacle(tmp_path, small_config):
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.directory.mkdir(parents=True)
    run.figures.mkdir()
    for path in (run.tokenizer_file, run.probe, run.path / ".config.toml.partial"):
        path.write_text("left over")
    assert loop.train(start.begin(run, small_config(steps=1))) == "1 steps done"


@pytest.mark.parametrize("name", ["config.toml", "tokenizer.model", "log.jsonl", "evaluations.jsonl"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(refused, own_run, corpus, name):
    path = own_run.path / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert f"{name}: not a plain file" in refused("translate", own_run.path, corpus / "val.en")
    assert f"{name}: not a plain file" in refused("train", "--resume", own_run.path)


def test_scores_are_not_appended_through_a_link(cli, own_run, corpus, tmp_path):
    victim = tmp_path / "bashrc"
    victim.write_text("theirs\n")
    own_run.evaluations_file.symlink_to(victim)
    outcome = cli(
        "evaluate", own_run.path, "--source", corpus / "val.en", "--reference", corpus / "val.de", "--beam", 1
    )
    assert outcome.code == 0 and "scores not recorded" in outcome.err
    assert victim.read_text() == "theirs\n"


def test_figures_are_no_reason_to_fail(cli, own_run, monkeypatch):
    own_run.figures.rename(own_run.path / "elsewhere")
    own_run.figures.write_text("a file")
    outcome = cli("train", "--resume", own_run.path, "--set", "steps=13")
    assert outcome.code == 0 and "no figures: " in outcome.err
    with open(own_run.log_file, "a") as log:
        log.write('{"event": "step", "step": 2, "loss": "low"}\n')
    assert cli("train", "--resume", own_run.path, "--set", "steps=14").code == 0
