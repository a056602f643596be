"""Training from a prepared directory is training from its text: the same batches, losses and weights, bit for bit."""

import json
import shutil

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.errors import UserError
from scratchformer.preparation.prepared import crc32_of_file
from scratchformer.tasks import start, translation
from scratchformer.tasks.translation import follow_preparation, open_prepared
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory


@pytest.fixture
def on_prepared(prepared, small_config):
    """on_prepared(**changes) -> Config of a small run on the prepared text"""
    return lambda **changes: small_config(**{"data.directory": str(prepared)} | changes)


def finish(trainer):
    loop.train(trainer)
    return trainer.run


def test_the_same_run_and_no_text_is_touched(trained, on_prepared, tmp_path, same_run, monkeypatch):
    for owner, name in ((Tokenizer, "encode"), (Tokenizer, "train"), (translation, "read_corpus")):
        monkeypatch.setattr(owner, name, None)
    run = finish(start.begin(RunDirectory(tmp_path / "prepared"), on_prepared()))
    same_run(run, trained)
    assert run.tokenizer_file.read_bytes() == trained.tokenizer_file.read_bytes()


@pytest.mark.parametrize("first_is_prepared, second_is_prepared", [(True, True), (True, False), (False, True)])
def test_a_run_may_go_on_on_the_other_road(
    trained, small_config, on_prepared, tmp_path, same_run, first_is_prepared, second_is_prepared
):
    first, second = (on_prepared if each else small_config for each in (first_is_prepared, second_is_prepared))
    run = finish(start.begin(RunDirectory(tmp_path / "run"), first(steps=5)))
    run.checkpoints.of_step(5).unlink()  # saved at the stop
    trainer, complaints = start.resume(run, second())
    assert complaints == [] and trainer.progress.step == 3
    same_run(finish(trainer), trained)


def test_a_pretrained_run_must_have_the_vocabulary_of_the_directory(trained, on_prepared, tmp_path, prepare_corpus):
    pretrained = {"training.pretrained": str(trained.path)}
    assert start.begin(RunDirectory(tmp_path / "same"), on_prepared(**pretrained)).remarks[0].startswith("33 of 33")
    other = prepare_corpus(tmp_path / "other", vocab_size=61)
    with pytest.raises(UserError, match="other: its vocabulary is not that of"):
        config = on_prepared(**pretrained, **{"data.directory": str(other), "model.vocab_size": 61})
        start.begin(RunDirectory(tmp_path / "run"), config)


@pytest.mark.parametrize(
    "setting, wanted",
    [
        ("vocab_size=61", "--set model.vocab_size=60"),
        ("max_length=4", "longest pair has"),
        ("tokens_per_batch=5", "does not fit into a batch of tokens_per_batch = 5"),
    ],
)
def test_settings_that_contradict_are_refused(refused, prepared, small_settings, tmp_path, setting, wanted):
    said = refused("train", "--out", tmp_path / "run", *small_settings, "--data", prepared, "--set", setting)
    assert wanted in said and not (tmp_path / "run" / "config.toml").exists()


def test_other_settings_are_those_of_the_preparation(on_prepared, tmp_path, prepare_corpus):
    directory = prepare_corpus(tmp_path / "data", languages=("aa", "bb"), byte_fallback=True, vocab_size=300)
    config = on_prepared(**{"data.directory": str(directory)})
    followed, told = follow_preparation(config)
    assert (followed.data.source_language, followed.data.target_language) == ("aa", "bb")
    assert followed.data.byte_fallback and followed.model.vocab_size == 300 and "vocab_size=300 (not 60)" in told
    open_prepared(directory, followed)
    assert follow_preparation(followed) == (followed, "")
    with pytest.raises(UserError, match="--set model.vocab_size=300 --set data.byte_fallback=true"):
        open_prepared(directory, config)


def test_a_command_follows_the_preparation(cli, prepared, tmp_path):
    small = ("N=1", "d_model=16", "d_ff=16", "h=2", "steps=1", "tokens_per_batch=80", "target_language=de")
    settings = [word for each in small for word in ("--set", each)]
    code, _, said = cli("train", "tiny", "--out", tmp_path / "run", "--data", prepared, *settings)
    assert code == 0 and f"{prepared}: as its preparation says, model.vocab_size=60 (not 1600)\n" in said
    assert configs.load(tmp_path / "run" / "config.toml").model.vocab_size == 60


def test_ids_that_changed_with_their_own_checksum_are_refused(own_run, prepared, small_config, tmp_path):
    """The manifest has another checksum, of all ids together."""
    directory = shutil.copytree(prepared, tmp_path / "data")
    config = small_config(**{"data.directory": str(directory)})
    ids = np.memmap(directory / "train.source.ids.bin", np.uint16, mode="r+")
    ids[:2] = ids[1::-1]
    ids.flush()
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["files"]["train.source.ids.bin"]["crc32"] = crc32_of_file(directory / "train.source.ids.bin")
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="the checksum of its ids is not that in manifest.json: prepare the text again"):
        start.resume(own_run, config)


def test_the_doctor_examines_the_prepared_text(cli, prepared, small_settings, monkeypatch):
    monkeypatch.setattr("scratchformer.doctor.diagnosis.probe_code", lambda config: iter(()))
    monkeypatch.setattr("scratchformer.tasks.translation.TranslationTask.train_tokenizer", None)
    _, printed, said = cli("doctor", *small_settings, "--data", prepared, "--json")
    findings = {entry["probe"]: entry for entry in map(json.loads, printed.splitlines())}
    assert "100 pairs" in findings["repeated pairs"]["seen"] and "60 pieces" in findings["vocabulary"]["seen"], said
    assert "val" in findings["held-out text in training"]["seen"] and "remaining probes" not in findings
