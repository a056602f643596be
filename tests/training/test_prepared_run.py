"""Training from a prepared directory is training from its text: the same batches, losses and weights, bit for bit."""

import json
import shutil

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.errors import UserError
from scratchformer.preparation.prepared import PreparedCorpus, crc32_of_file
from scratchformer.tasks import start, translation
from scratchformer.tasks.translation import follow_preparation, open_prepared
from scratchformer.text.batches import steps
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import checksum_of


@pytest.fixture
def on_prepared(prepared, small_config):
    """on_prepared(**changes) -> Config of a small run on the prepared text"""
    return lambda **changes: small_config(**{"data.directory": str(prepared)} | changes)


@pytest.fixture
def no_text_is_touched(monkeypatch):
    """Nothing may be tokenized, and nothing learnt."""

    def fail(*arguments):
        raise AssertionError("text is tokenized")

    for name in ("encode", "train"):
        monkeypatch.setattr(Tokenizer, name, fail)
    monkeypatch.setattr(translation, "read_corpus", fail)


# --- the same run


def finish(trainer):
    loop.train(trainer)
    return trainer.run


def test_the_same_batches(begin, on_prepared, tmp_path, no_text_is_touched, monkeypatch):
    prepared = start.begin(RunDirectory(tmp_path / "prepared"), on_prepared())
    monkeypatch.undo()
    in_memory = begin()
    assert prepared.data.checksum == in_memory.data.checksum and prepared.summary() == in_memory.summary()
    for (epoch, _, mine), (_, _, theirs), _ in zip(steps(prepared.plan), steps(in_memory.plan), range(40)):
        for batch, other in zip(prepared.plan.micro_batches(mine), in_memory.plan.micro_batches(theirs), strict=True):
            for array, expected in zip(
                (*batch.inputs, batch.targets, batch.indices), (*other.inputs, other.targets, other.indices)
            ):
                assert array.dtype == expected.dtype and np.array_equal(array, expected)
    assert epoch > 1


def test_the_same_run(trained, on_prepared, tmp_path, same_run):
    run = finish(start.begin(RunDirectory(tmp_path / "prepared"), on_prepared()))
    same_run(run, trained)
    assert run.tokenizer_file.read_bytes() == trained.tokenizer_file.read_bytes()


@pytest.mark.parametrize("roads", [("prepared", "prepared"), ("prepared", "in memory"), ("in memory", "prepared")])
def test_a_run_may_go_on_on_the_other_road(trained, small_config, on_prepared, tmp_path, same_run, roads):
    first, second = ({"prepared": on_prepared, "in memory": small_config}[road] for road in roads)
    run = finish(start.begin(RunDirectory(tmp_path / "run"), first(steps=5)))
    run.checkpoints.of_step(5).unlink()  # saved at the stop
    trainer, complaints = start.resume(run, second())
    assert complaints == [] and trainer.progress.step == 3
    same_run(finish(trainer), trained)


def test_the_same_with_two_ranks(together, small_config, on_prepared, tmp_path):
    def work_on(config, name):
        def work(ranks):
            trainer = start.begin(RunDirectory(tmp_path / name), config, ranks)
            entries = [trainer.finish(trainer.step(*place)) for place, _ in zip(steps(trainer.plan), range(6))]
            return [(entry["loss"], entry["grad_norm"]) for entry in entries], trainer.model.store.data

        return work

    (mine, weights), _ = together(2, work_on(on_prepared(threads=1), "prepared"))
    (theirs, other_weights), _ = together(2, work_on(small_config(threads=1), "plain"))
    assert mine == theirs and np.array_equal(weights, other_weights)


def test_a_pretrained_run_must_have_the_vocabulary_of_the_directory(trained, on_prepared, tmp_path, prepare_corpus):
    pretrained = {"training.pretrained": str(trained.path)}
    assert start.begin(RunDirectory(tmp_path / "same"), on_prepared(**pretrained)).remarks[0].startswith("33 of 33")
    other = prepare_corpus(tmp_path / "other", vocab_size=61)
    with pytest.raises(UserError, match="its vocabulary is not that of .*other"):
        config = on_prepared(**pretrained, **{"data.directory": str(other), "model.vocab_size": 61})
        start.begin(RunDirectory(tmp_path / "run"), config)


# --- what the preparation has settled


def test_settings_follow_the_preparation(cli, prepared, small_settings, tmp_path):
    changes = ["--data", prepared, "--set", "steps=1", "--set", "target_language=de"]
    settings = [
        word
        for option, setting in zip(small_settings[2::2], small_settings[3::2])
        if "vocab_size" not in setting
        for word in (option, setting)
    ]
    code, _, said = cli("train", "--out", tmp_path / "run", *settings, *changes)
    assert code == 0 and f"{prepared}: as its preparation says, model.vocab_size=60 (not 1600)\n" in said
    assert configs.load(tmp_path / "run" / "config.toml").model.vocab_size == 60
    code, _, said = cli("train", "--resume", tmp_path / "run", "--set", "steps=2")
    assert code == 0 and "prepared with" not in said


@pytest.mark.parametrize(
    "setting, wanted",
    [
        ("vocab_size=61", "--set model.vocab_size=60"),
        ("byte_fallback=true", "--set data.byte_fallback=false"),
        ("target_language=fr", "--set data.target_language=de"),
        ("max_length=4", "longest pair has"),
        (
            "tokens_per_batch=5",
            "does not fit into a batch of tokens_per_batch = 5: raise that, or prepare the text again "
            "with --max-length 5",
        ),
    ],
)
def test_settings_that_contradict_are_refused(refused, prepared, small_settings, tmp_path, setting, wanted):
    said = refused("train", "--out", tmp_path / "run", *small_settings, "--data", prepared, "--set", setting)
    assert wanted in said and not (tmp_path / "run" / "config.toml").exists()


def test_other_languages_are_those_of_the_preparation(on_prepared, tmp_path, prepare_corpus):
    directory = prepare_corpus(tmp_path / "data", languages=("aa", "bb"), byte_fallback=True, vocab_size=300)
    config = on_prepared(**{"data.directory": str(directory)})
    followed, told = follow_preparation(config)
    assert (followed.data.source_language, followed.data.target_language) == ("aa", "bb")
    assert followed.data.byte_fallback and followed.model.vocab_size == 300 and "vocab_size=300 (not 60)" in told
    open_prepared(directory, followed)
    assert follow_preparation(followed) == (followed, "")
    with pytest.raises(UserError, match="--set model.vocab_size=300 --set data.byte_fallback=true"):
        open_prepared(directory, config)


# --- what may be wrong


@pytest.fixture
def own_prepared(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "data")


@pytest.mark.parametrize(
    "name, damage, complaint",
    [
        ("manifest.json", lambda path: path.unlink(), "its preparation is not finished"),
        ("manifest.json", lambda path: path.write_text("{"), "manifest.json: damaged"),
        ("train.source.ids.npy", lambda path: path.write_bytes(b""), "train.source.ids.npy: 0 bytes, but"),
        ("tokenizer.model", lambda path: path.unlink(), "tokenizer.model: No such file"),
        ("val.de", lambda path: path.unlink(), "val.de: No such file"),
    ],
)
def test_a_damaged_directory(refused, own_prepared, small_settings, tmp_path, name, damage, complaint):
    damage(own_prepared / name)
    for command in (["train", "--out", tmp_path / "run"], ["doctor"]):
        assert complaint in refused(*command, *small_settings, "--data", own_prepared)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_another_vocabulary_or_another_text_is_not_the_same_run(
    own_run, prepared, small_config, tmp_path, prepare_corpus
):
    other = prepare_corpus(tmp_path / "other", sample=10)
    with pytest.raises(UserError, match="its vocabulary is not the one this run began with"):
        start.resume(own_run, small_config(**{"data.directory": str(other)}))
    larger = prepare_corpus(tmp_path / "larger", vocab_size=61)
    with pytest.raises(UserError, match="one that goes on the directory that it began with"):
        start.resume(own_run, small_config(**{"data.directory": str(larger)}))


def test_another_text_with_the_same_vocabulary_is_not_the_same_run(own_run, own_prepared, small_config):
    """Whoever changes the ids may change the manifest, too; the run remembers their checksum."""
    config = small_config(**{"data.directory": str(own_prepared)})
    ids = np.load(own_prepared / "train.source.ids.npy", mmap_mode="r+")
    ids[:2] = ids[1::-1]
    ids.flush()
    manifest = json.loads((own_prepared / "manifest.json").read_text())
    manifest["files"]["train.source.ids.npy"]["crc32"] = crc32_of_file(own_prepared / "train.source.ids.npy")
    (own_prepared / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="the checksum of its ids is not that in manifest.json: prepare the text again"):
        start.resume(own_run, config)
    corpus = PreparedCorpus(own_prepared)
    checksum = checksum_of(corpus.pairs("train", 256), corpus.pairs("val", 256))
    (own_prepared / "manifest.json").write_text(json.dumps(manifest | {"ids_crc32": checksum}))
    with pytest.raises(UserError, match="the training text is not the one this run began with"):
        start.resume(own_run, config)


def test_the_doctor_examines_the_prepared_text(cli, prepared, small_settings, monkeypatch):
    monkeypatch.setattr("scratchformer.doctor.diagnosis.probe_code", lambda config: iter(()))
    monkeypatch.setattr("scratchformer.tasks.translation.TranslationTask.train_tokenizer", None)
    _, printed, said = cli("doctor", *small_settings, "--data", prepared, "--json")
    findings = {entry["probe"]: entry for entry in map(json.loads, printed.splitlines())}
    assert "100 pairs" in findings["repeated pairs"]["seen"] and "60 pieces" in findings["vocabulary"]["seen"], said
    assert "val" in findings["held-out text in training"]["seen"] and "remaining probes" not in findings
