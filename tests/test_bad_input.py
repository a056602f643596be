"""A mistake of the user ends with one line that says what is wrong, with exit code 2, and nothing is lost."""

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

import scratchformer.__main__
from scratchformer import config as configs
from scratchformer.training import checkpoints


@pytest.fixture
def own_corpus(corpus, tmp_path):
    """A copy of the corpus that a test may spoil."""
    return shutil.copytree(corpus, tmp_path / "data")


@pytest.fixture
def say_no(refused, own_run, corpus, small_settings, tmp_path, monkeypatch, files_of):
    """say_no(command) -> the line that refuses it; the command may name {run}, {corpus}, {tmp}, {out} and {SMALL}

    It must change no file and make no directory. Standard input holds a sentence.
    """
    settings = shlex.join(map(str, small_settings))
    places = {"run": own_run.path, "corpus": corpus, "tmp": tmp_path, "out": tmp_path / "new" / "run"}

    def call(command):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n")))
        before = files_of(tmp_path)
        said = refused(*shlex.split(command.format(SMALL=settings, **places)))
        assert files_of(tmp_path) == before
        return said

    return call


TRAIN = "train --out {out} {SMALL}"
EVALUATE = "evaluate {run} --source {corpus}/val.en --reference"
REFUSED = [
    # words
    ("", "the following arguments are required: COMMAND; see scratchformer --help"),
    ("translate", "the following arguments are required: RUN; see scratchformer translate --help"),
    ("plot run", "the following arguments are required: FIGURE; see"),
    ("plot run loss --checkpoint best", "--sentence and --checkpoint are for the figure attention"),
    ("plot run attention --sentence a\udcff", "is not valid UTF-8"),
    ("train --thraeds 3", "unrecognized arguments: --thraeds; see scratchformer train"),
    ("train --seed one", "argument --seed: 'one' is not a whole number; see scratchformer train --help"),
    ("train --seed -1", "--seed: -1 must lie between 0"),
    ("train --minutes ''", "argument --minutes: '' is not a number"),
    ("train tiny 'two\nlines'", "tiny two\\nlines: give at most a preset, a text and its translation"),
    ("train .", ".: is a directory; did you mean --data .?"),
    ("train --set dropout=0.1", "no setting 'dropout'; did you mean 'P_drop'?"),
    ("train a.en a.de --data .", "a.en and a.de: give the training text once, here or by an option"),
    ("doctor --code --data .", "--code examines only the code"),
    ("gradcheck LayerNrom", "did you mean 'LayerNorm'"),
    # presets and settings
    ("train tinny", "did you mean 'tiny'"),
    ("config nowhere.toml", "No such file"),
    ("train tiny --set source_language=de --set target_language=en", "the bundled corpus is English-German (en, de), "),
    (f"{TRAIN} --set steps=0", "training.steps=0 must lie between 1"),
    (f"{TRAIN} --set tokens_per_batch=5", "does not fit into a batch of tokens_per_batch = 5"),
    (f"{TRAIN} --nproc 2 --set tokens_per_batch=5", "does not fit into a batch"),
    (f"{TRAIN} --set vocab_size=6", "too small for this text"),
    (f"{TRAIN} --set max_length=1", "at most max_length = 1 tokens"),
    (f"{TRAIN} --set d_model={2**20} --set d_ff={2**20}", "Unable to allocate"),
    (f"{TRAIN} --set seed=1 --seed 2", "--set training.seed: an option sets the same"),
    (f"{TRAIN} --device gpu:99", "gpu"),
    # text
    (f"{TRAIN} --data {{tmp}}/nowhere", "which is not a directory"),
    (f"{TRAIN} --data {{tmp}}", "neither train.en nor train.en.gz"),
    (f"{TRAIN} --train-source a", "--data names a directory"),
    ("train --out {out} --train-source {tmp}/a --train-target {tmp}/b", "No such file"),
    ("train --out {out} --train-source {tmp}/a", "come in pairs"),
    (EVALUATE + " {corpus}/val.en", "val.en: named as source and as reference; these must be two files"),
    (EVALUATE.replace("evaluate", "heads") + " {corpus}/val.en", "named as source and as reference"),
    (EVALUATE + " {corpus}/train.de", "val.en has 20 lines"),
    (EVALUATE + " {tmp}/nowhere", "No such file"),
    (EVALUATE + " {corpus}/val.de --beam 1 --output {tmp}/nowhere/file", "cannot write"),
    # runs
    *((f"{command} {{tmp}}", "no run here") for command in ("translate", "average", "train --resume", "explore")),
    ("evaluate {run}/config.toml", "no run here"),
    ("train --out {run} {SMALL}", "holds a run already"),
    ("train --out {run}/config.toml/run {SMALL}", "cannot write the run's directory"),
    ("train tiny --resume {run}", "no preset, no --out"),
    ("train --resume {run} --set d_model=32", "model.d_model is 32, was 16"),
    ("train --resume {run} --seed 7", "training.seed is 7, was 0"),
    ("average {run} --last 5", "cannot average the last 5 checkpoints; there are 4"),
    # searches
    ("translate {run} --nbest 5", "--nbest 5 must be at most the beam, 4"),
    ("translate {run} --beam 0", "--beam: 0 must lie between 1"),
    ("translate {run} --checkpoint {tmp}/nowhere", "nowhere"),
    ("translate {run} nowhere.en", "nowhere.en"),
]


@pytest.mark.parametrize("command, complaint", REFUSED)
def test_a_mistake_is_one_line_and_changes_nothing(say_no, command, complaint):
    assert complaint.lower() in say_no(command).lower()


def test_what_nobody_foresaw_is_one_line_with_its_place(refused, cli, monkeypatch):
    def fail(*arguments):
        raise KeyError("a\nb")

    monkeypatch.setattr("scratchformer.commands.config.load_config", fail)
    said = refused("config", "tiny")
    assert "unexpected KeyError in test_bad_input.py, line " in said and "SCRATCHFORMER_TRACEBACK=1 shows" in said
    monkeypatch.setenv("SCRATCHFORMER_TRACEBACK", "1")
    assert "Traceback" in cli("config", "tiny").err


# --- spoiled files


SPOILED = [
    ("train.de", b"eins\nzwei\n", "train.en has 100 lines"),
    ("val.en", b"one\n", "val.en has 1 lines"),
    ("train.en", b"fine\nStra\xdfe\n" * 50, "train.en, line 2: not valid UTF-8"),
    ("train.en", "caf\u00e9\n".encode("utf-16"), "train.en, line 1: not valid UTF-8"),
    ("train.de", b"", "train.de has 0"),
    ("val.de", None, "neither val.de nor val.de.gz"),
]


@pytest.mark.parametrize("name, content, complaint", SPOILED)
def test_a_spoiled_file_is_named(say_no, own_corpus, name, content, complaint):
    (own_corpus / name).unlink(missing_ok=True)
    if content is not None:
        (own_corpus / name).write_bytes(content)
    assert complaint in say_no(f"{TRAIN} --data {{tmp}}/data")


def test_text_without_text(say_no, own_corpus):
    for name in ("train.en", "train.de"):
        (own_corpus / name).write_bytes(b"\n \n\t\n")
    assert "every line is blank" in say_no(f"{TRAIN} --data {{tmp}}/data")


@pytest.mark.parametrize(
    "name, other, complaint",
    [
        ("train.en", "train.de", "train source and as train target"),
        ("train.de", "val.de", "train target and as val target"),
    ],
)
def test_one_file_for_two_texts(say_no, own_corpus, name, other, complaint):
    (own_corpus / other).unlink()
    os.symlink(own_corpus / name, own_corpus / other)
    said = say_no("train --data {tmp}/data --out {out}")
    assert f"{other}: the same file as {own_corpus / name}, named as" in said and complaint in said


def test_a_language_model_reads_one_side_and_may_have_it_named_twice(cli, own_corpus, tmp_path):
    (own_corpus / "val.de").unlink()
    os.link(own_corpus / "train.en", own_corpus / "val.de")
    german = ["--data", own_corpus, "--set", "source_language=de", "--set", "vocab_size=300", "--set", "steps=1"]
    assert cli("train", "gpt-tiny", "--out", tmp_path / "run", "--set", "max_length=16", *german).code == 0


def test_equal_texts_in_two_files_are_told(cli, own_corpus, small_settings, tmp_path):
    for name in ("train.de", "val.en", "val.de"):
        shutil.copy(own_corpus / "train.en", own_corpus / name)
    train = ["train", "--out", tmp_path / "run", *small_settings, "--data", own_corpus, "--set", "steps=1"]
    outcome = cli(*train, "--set", "vocab_size=50")
    assert outcome.code == 0 and "the training text are the same: the model learns to copy" in outcome.err
    assert "the validation text is the training text: " in outcome.err


def test_input_that_is_not_utf8(refused, trained, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n\xff\n")))
    assert "standard input, line 2: not UTF-8" in refused("translate", trained.path)
    (tmp_path / "latin1").write_bytes(b"a\nb\n\xe4\n")
    assert "latin1, line 3: not valid UTF-8" in refused("translate", trained.path, tmp_path / "latin1")


def test_odd_but_legal_text_is_translated(cli, trained, monkeypatch):
    lines = ["\u202eabc", "e\u0301\u0327", "\ufeff", "a\u2028b", "a\x00b", "a\tb\x0bc", "\U0010ffff", "<s> </s> <pad>"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    outcome = cli("translate", trained.path, "--beam", 1)
    assert outcome.code == 0 and outcome.out.count("\n") == len(lines)


# --- directories


def test_a_refused_run_leaves_what_was_there_and_another_can_begin(say_no, cli, small_settings, tmp_path):
    out = tmp_path / "new" / "run"
    (out / "checkpoints").mkdir(parents=True)
    assert "at most max_length = 1" in say_no(f"{TRAIN} --set max_length=1")
    assert cli("train", "--out", out, *small_settings, "--set", "steps=1").code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    assert "holds notes, which no training wrote" in say_no("train --out {tmp}/mine {SMALL}")


# --- damaged runs


DAMAGE = {
    "cut short": lambda data: data[:-100],
    "a bit is wrong": lambda data: data[:-50] + bytes([data[-50] ^ 4]) + data[-49:],
    "text": lambda data: b"no checkpoint\n" * 100,
    "empty": lambda data: b"",
}
READERS = ["translate {run}", EVALUATE + " {corpus}/val.de", "plot {run} attention", "explore {run}"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint(say_no, own_run, damage):
    last = own_run.checkpoints.of_step(12)
    last.write_bytes(DAMAGE[damage](last.read_bytes()))
    for command in READERS if damage == "a bit is wrong" else READERS[:1]:
        assert last.name in say_no(f"{command} --checkpoint last")
    assert last.name in say_no("average {run}")


def test_a_checkpoint_of_another_model(say_no, own_run):
    last = own_run.checkpoints.of_step(12)
    loaded = checkpoints.load(last)
    loaded.weights["surplus"] = loaded.weights.pop("source_embedding.weight")
    checkpoints.save(last, loaded)
    assert last.name in say_no("translate {run} --checkpoint last")


@pytest.mark.parametrize(
    "name, damage", [*(("tokenizer.model", each) for each in ("cut short", "text", "empty")), ("config.toml", "text")]
)
def test_other_damaged_files(say_no, own_run, name, damage):
    path = own_run.path / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert name in say_no("train --resume {run}")


def test_a_configuration_of_another_model(say_no, own_run, small_config):
    own_run.write_config(small_config(d_model=32))
    assert "model.d_model is 32, was 16" in say_no("translate {run}")


def test_a_run_without_checkpoints(say_no, own_run):
    for path in own_run.checkpoints.directory.iterdir():
        path.unlink()
    assert "no checkpoint here" in say_no("translate {run}")
    assert "there are 0" in say_no("average {run}")


# --- the machine


def no_space(*arguments):
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_when_a_run_begins_leaves_no_directory(say_no, monkeypatch):
    monkeypatch.setattr("scratchformer.training.run.replace_text", no_space)  # the tokenizer is written before
    assert "No space left on device" in say_no(TRAIN)


def test_a_disk_that_is_full_when_a_checkpoint_is_due(cli, own_run, monkeypatch, files_of):
    before = files_of(own_run.checkpoints.directory)
    monkeypatch.setattr(checkpoints, "serialized", no_space)
    code, _, said = cli("train", "--resume", own_run.path, "--set", "steps=20")
    assert code == 2
    assert said.splitlines()[-1].startswith("scratchformer: ") and said.endswith("No space left on device\n")
    assert files_of(own_run.checkpoints.directory) == before
    monkeypatch.undo()
    assert configs.load(own_run.config_file).training.steps == 20


def shell(command):
    return subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m scratchformer {command}"], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "command, complaint",
    [("config base > /dev/full", "No space left on device"), ("translate '{run}' <&-", "standard input is closed")],
)
def test_streams_that_fail(trained, command, complaint):
    done = shell(command.format(run=trained.path))
    assert done.returncode == 2 and complaint in done.stderr
    assert done.stderr.startswith("scratchformer: ") and done.stderr.count("\n") == 1


def test_a_loss_that_explodes_is_told_in_one_line(tmp_path, small_settings):
    done = shell(shlex.join(map(str, ["train", "--out", tmp_path / "run", *small_settings, "--set", "lr_factor=1e30"])))
    assert done.returncode == 2 and "the loss is" in done.stderr
    assert [line for line in done.stderr.splitlines() if "Warning" in line or "Traceback" in line] == []


def test_ctrl_c_before_the_first_step(small_settings, tmp_path, monkeypatch, cli):
    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("scratchformer.tasks.translation.read_corpus", interrupted)
    code, printed, said = cli("train", "--out", tmp_path / "run", *small_settings)
    assert (code, printed, said) == (130, "", "scratchformer: interrupted\n")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("scratchformer.cli.main", interrupted)  # as if during its imports
    assert scratchformer.__main__.main() == 130
