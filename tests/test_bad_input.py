"""A mistake of the user ends with one line that says what is wrong, with exit code 2, and nothing is lost."""

import io
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from scratchformer import config as configs
from scratchformer.errors import UserError
from scratchformer.tasks import start
from scratchformer.training import checkpoints, trainer
from scratchformer.training.run import RunDirectory

EMPTY_LINES = b"\n \n\t\n"


@pytest.fixture
def own_corpus(corpus, tmp_path):
    """A copy of the corpus that a test may spoil."""
    directory = tmp_path / "data"
    directory.mkdir()
    for path in corpus.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    return directory


@pytest.fixture
def refused_training(refused, small_settings, tmp_path):
    """Train with these arguments, which must be refused and leave nothing -> the line that says why"""

    def call(*arguments):
        said = refused("train", "--out", tmp_path / "run", *small_settings, *arguments)
        assert not (tmp_path / "run").exists()
        return said

    return call


# --- text to train on


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        ("train.de", b"eins\nzwei\n", "train.en has 100 lines"),
        ("val.en", b"one\n", "val.en has 1 lines"),
        ("train.en", b"fine\nStra\xdfe\n" * 50, "train.en, line 2: not valid UTF-8"),
        ("train.en", "caf\u00e9\n".encode("utf-16"), "train.en, line 1: not valid UTF-8"),
        ("train.de", b"", "train.de has 0"),
        ("train.de", EMPTY_LINES * 50 + b"\n" * 100, "lines"),
        ("val.de", None, "neither val.de nor val.de.gz"),
        ("train.en.gz", b"no archive", None),
    ],
)
def test_spoiled_text(refused, cli, own_corpus, small_settings, tmp_path, name, content, complaint):
    path = own_corpus / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    command = ("train", "--out", tmp_path / "run", *small_settings, "--data", own_corpus)
    if complaint:
        assert complaint in refused(*command)
    else:
        assert cli(*command, "--set", "steps=1").code == 0, "the plain file comes first"


@pytest.mark.parametrize("content, complaint", [(b"", "every line is blank"), (EMPTY_LINES, "every line is blank")])
def test_text_without_text(refused, own_corpus, small_settings, tmp_path, content, complaint):
    for name in ("train.en", "train.de"):
        (own_corpus / name).write_bytes(content)
    assert complaint in refused("train", "--out", tmp_path / "run", *small_settings, "--data", own_corpus)


def test_missing_text(refused, refused_training, tmp_path):
    assert "which is not a directory" in refused_training("--data", tmp_path / "nowhere")
    train = ["train", "--out", tmp_path / "run", "--train-source", tmp_path / "a"]
    assert "No such file" in refused(*train, "--train-target", tmp_path / "b")
    assert "come in pairs" in refused(*train)
    assert not (tmp_path / "run").exists()


DOORS = [
    (["--data", "{0}"], ("train.en", "train.de"), "train source and as train target"),
    (["--data", "{0}"], ("train.de", "val.de"), "train target and as val target"),
    (["--set", "data.directory={0}"], ("train.en", "val.en"), "train source and as val source"),
    (["--train-source", "{0}/train.en", "--train-target", "{0}/train.de"], ("train.en", "train.de"), "train target"),
    (["{0}/own.toml"], ("train.en", "train.de"), "train source and as train target"),
]


@pytest.mark.parametrize("arguments, names, complaint", DOORS)
def test_one_file_for_two_texts(refused, own_corpus, tmp_path, arguments, names, complaint):
    (own_corpus / "own.toml").write_text(f"[data]\ndirectory = '{own_corpus}'\n", encoding="utf-8")
    first, second = (own_corpus / name for name in names)
    second.unlink()
    os.symlink(first, second)
    words = [word.format(own_corpus) for word in arguments]
    said = refused("train", *words, "--out", tmp_path / "run")
    assert f"{names[1]}: the same file as {first}, named as" in said and complaint in said
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=complaint):
        data = {"data.directory": str(own_corpus)}
        start.begin(RunDirectory(tmp_path / "run"), configs.with_settings(configs.TINY, data))


def test_one_file_for_source_and_reference(refused, trained, corpus):
    for command in ("evaluate", "heads"):
        said = refused(command, trained.path, "--source", corpus / "val.en", "--reference", corpus / "val.en")
        assert "val.en: named as source and as reference; these must be two files" in said


def test_a_language_model_reads_one_side_and_may_have_it_named_twice(cli, small_settings, own_corpus, tmp_path):
    (own_corpus / "val.de").unlink()
    os.link(own_corpus / "train.en", own_corpus / "val.de")
    german = ["--data", own_corpus, "--set", "source_language=de", "--set", "vocab_size=300", "--set", "steps=1"]
    train = ["train", "gpt-tiny", "--out", tmp_path / "run", "--set", "max_length=16"]
    assert cli(*train, *german).code == 0


@pytest.mark.parametrize(
    "command", [["train", "tiny"], ["train", "multi30k", "--data", "x"], ["config", "base"], ["train", "{0}"]]
)
def test_two_sides_of_one_language(refused, tmp_path, command):
    own = tmp_path / "own.toml"
    own.write_text("[data]\nsource_language = 'de'\n", encoding="utf-8")
    german = [] if "{0}" in command else ["--set", "source_language=de"]
    assert "data.target_language are both 'de'" in refused(*(word.format(own) for word in command), *german)
    with pytest.raises(UserError, match="are both 'fr'"):
        configs.Config(data=configs.DataConfig(source_language="fr", target_language="fr"))


def test_the_bundled_corpus_has_its_languages(refused, tmp_path):
    settings = ["--set", "source_language=de", "--set", "target_language=en"]
    said = refused("train", "tiny", "--out", tmp_path / "run", *settings)
    assert "the bundled corpus is English-German (en, de), not de, en: " in said


def test_equal_texts_in_two_files_are_told(cli, own_corpus, small_settings, tmp_path):
    shutil.copy(own_corpus / "train.en", own_corpus / "train.de")
    for side in ("en", "de"):
        shutil.copy(own_corpus / "train.en", own_corpus / f"val.{side}")
    train = ["train", "--out", tmp_path / "run", *small_settings, "--data", own_corpus, "--set", "steps=1"]
    outcome = cli(*train, "--set", "vocab_size=50")
    assert outcome.code == 0 and "the training text are the same: the model learns to copy" in outcome.err
    assert "the validation text is the training text: " in outcome.err


# --- settings


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--set", "P_dorp=0.1"], "did you mean 'P_drop'"),
        (["--set", "P_drop=much"], "P_drop"),
        (["--set", "P_drop=1"], "model.P_drop=1.0 must lie between 0 and 0.999999"),
        (["--set", "tokens_per_batch=0"], "training.tokens_per_batch=0 must lie between 1"),
        (["--set", "steps=0"], "training.steps=0 must lie between 1"),
        (["--set", "h=3"], "not a multiple of model.h=3"),
        (["--set", "norm=middle"], "post, pre"),
        (["--seed", "-1"], "--seed: -1 must lie between 0"),
        (["--minutes", "nan"], "--minutes: nan must lie between 0"),
        (["--threads", "-1"], "--threads: -1 must lie between 0"),
        (["--set", "tokens_per_batch=5"], "does not fit into a batch of tokens_per_batch = 5"),
        (["--set", "vocab_size=100000"], "too large for this text"),
        (["--set", "vocab_size=6"], "too small for this text"),
        (["--set", "max_length=1"], "at most max_length = 1 tokens"),
        (["--set", "positions=learned", "--set", "max_positions=10"], "max_positions=10"),
        (["--set", f"d_model={2**20}", "--set", f"d_ff={2**20}"], "Unable to allocate"),
        (["--set", "d_model=1\nsteps=3"], "in one line"),
        (["--set", "seed=1", "--seed", "2"], "--set training.seed: an option sets the same"),
        (["--train-source", "a"], "--data names a directory"),
    ],
)
def test_impossible_settings(refused_training, arguments, complaint):
    assert complaint.lower() in refused_training(*arguments).lower()


def test_too_large_a_model_for_the_memory(refused_training, monkeypatch):
    monkeypatch.setattr(trainer, "machine_memory_bytes", lambda: 2**16)
    assert "not enough memory: the model's weights, gradients and moments take 0.0 GiB" in refused_training()


@pytest.mark.parametrize(
    "name, complaint", [("tinny", "did you mean 'tiny'"), ("nowhere.toml", "No such file"), ("", "it is empty")]
)
def test_an_unknown_preset(refused, name, complaint):
    assert complaint in refused("config", name)
    assert complaint in refused("train", name)


def test_a_bad_configuration_file(refused, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("[model]\nd_modell = 64\n", encoding="utf-8")
    assert "did you mean 'd_model'" in refused("train", path)
    path.write_bytes(b"\xff\xfe")
    assert "not a TOML file" in refused("config", path)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ([], "the following arguments are required: COMMAND; see scratchformer --help"),
        (["fly"], "argument COMMAND: invalid choice: 'fly'"),
        (["translate"], "the following arguments are required: RUN; see scratchformer translate --help"),
        (["plot", "run"], "the following arguments are required: FIGURE; see"),
        (["plot", "run", "Loss"], "argument FIGURE: invalid choice: 'Loss'"),
        (["train", "--thraeds", "3"], "unrecognized arguments: --thraeds; see scratchformer train"),
        (["train", "--set", "norm=per"], "did you mean 'pre'?"),
        (["train", "--seed", "one"], "argument --seed: 'one' is not a whole number; see scratchformer train --help"),
        (["train", "--minutes", ""], "argument --minutes: '' is not a number"),
        (["train", "tiny", "two\nlines"], "unrecognized arguments: two\\nlines"),
        (["plot", "run", "attention", "--sentence", "a\udcff"], "is not valid UTF-8"),
        (["explore", "run", "--port", "65536"], "argument --port: 65536 must lie between 0 and 65535"),
        (["plot", "run", "loss", "--sentence", "a dog"], "--sentence is for the figure attention"),
        (["plot", "run", "loss", "--checkpoint", "best"], "--checkpoint is for the figures attention and positions"),
        (["doctor", "--code", "--data", "."], "--code examines only the code"),
    ],
)
def test_words_that_mean_nothing(refused, arguments, complaint):
    assert complaint in refused(*arguments)


def test_what_nobody_foresaw_is_one_line_with_its_place(refused, cli, monkeypatch):
    def fail(*arguments):
        raise KeyError("a\nb")

    monkeypatch.setattr("scratchformer.commands.config.load_config", fail)
    said = refused("config", "tiny")
    assert "unexpected KeyError in test_bad_input.py, line " in said and "SCRATCHFORMER_TRACEBACK=1 shows" in said
    monkeypatch.setenv("SCRATCHFORMER_TRACEBACK", "1")
    assert "Traceback" in cli("config", "tiny").err


# --- directories


def test_a_prepared_corpus_is_no_place_for_a_run(prepare_corpus, small_config, tmp_path, files_of):
    directory = prepare_corpus(tmp_path / "prepared")
    before = files_of(directory)
    with pytest.raises(UserError, match="which no training wrote"):
        start.begin(RunDirectory(directory), small_config())
    assert files_of(directory) == before


def test_scores_are_not_appended_through_a_link(cli, own_run, corpus, tmp_path):
    victim = tmp_path / "bashrc"
    victim.write_text("theirs\n")
    own_run.evaluations_file.symlink_to(victim)
    outcome = cli(
        "evaluate", own_run.path, "--source", corpus / "val.en", "--reference", corpus / "val.de", "--beam", 1
    )
    assert outcome.code == 0 and "scores not recorded" in outcome.err
    assert victim.read_text() == "theirs\n"


def test_a_second_run_in_the_same_directory(refused, own_run, small_settings, files_of):
    before = files_of(own_run.path)
    assert "holds a run already" in refused("train", "--out", own_run.path, *small_settings)
    assert files_of(own_run.path) == before


def test_a_directory_that_cannot_be(refused, small_settings, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file" / "run", tmp_path / "file"):
        assert "cannot write the run's directory" in refused("train", "--out", place, *small_settings)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.fixture
def out(tmp_path):
    """The directory of a new run, in others that do not exist, either."""
    return tmp_path / "new" / "directories" / "run"


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--data", "{tmp_path}"], "neither train.en nor train.en.gz"),
        (
            [
                *("--set", "train_source={corpus}/train.en", "--set", "train_target={corpus}/val.de"),
                *("--set", "val_source={corpus}/val.en", "--set", "val_target={corpus}/train.de"),
            ],
            "train.en has 100 lines",
        ),
        (["--set", "max_length=1"], "at most max_length = 1 tokens"),
        (["--set", "vocab_size=100000"], "too large for this text"),
        (["--set", f"d_model={2**20}", "--set", "N=1000"], "Unable to allocate"),
        (["--device", "gpu:99"], "gpu"),
        (["--nproc", 2, "--set", "tokens_per_batch=5"], "does not fit into a batch"),
    ],
)
def test_a_refused_run_leaves_no_directory(refused, small_settings, corpus, tmp_path, out, arguments, complaint):
    arguments = [str(word).format(tmp_path=tmp_path, corpus=corpus) for word in arguments]
    assert complaint in refused("train", "--out", out, *small_settings, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_when_a_run_begins_leaves_no_directory(refused, small_settings, tmp_path, out, monkeypatch):
    def full(path, text):
        raise UserError(f"{path}: cannot write: No space left on device")

    monkeypatch.setattr("scratchformer.training.run.replace_text", full)  # the tokenizer is written before
    assert "config.toml: cannot write" in refused("train", "--out", out, *small_settings)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_leaves_what_was_there_before(refused, small_settings, tmp_path, files_of):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "notes").write_text("mine")
    (tmp_path / "run" / "tokenizer.model").write_text("mine, too")
    before, paths = files_of(tmp_path), sorted(tmp_path.rglob("*"))
    refused("train", "--out", tmp_path / "run", *small_settings, "--set", "max_length=1")
    assert files_of(tmp_path) == before and sorted(tmp_path.rglob("*")) == paths


def test_a_run_can_begin_where_another_was_refused(cli, refused, small_settings, out):
    refused("train", "--out", out, *small_settings, "--set", "max_length=1")
    assert cli("train", "--out", out, *small_settings, "--set", "steps=1").code == 0


def test_resume_with_a_preset_or_another_directory(refused, trained):
    assert "no preset, no --out" in refused("train", "tiny", "--resume", trained.path)
    assert "no preset, no --out" in refused("train", "--out", "other", "--resume", trained.path)


@pytest.mark.parametrize(
    "command",
    [
        ["translate"],
        ["average"],
        ["train", "--resume"],
        ["plot"],
        ["explore"],
        ["evaluate", "--source", "{en}", "--reference", "{en}"],
    ],
)
@pytest.mark.parametrize("place", ["nowhere", "empty", "file"])
def test_a_directory_that_is_no_run(refused, corpus, tmp_path, command, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no run")
    command = [word.format(en=corpus / "val.en") for word in command]
    extra = ["loss"] if command == ["plot"] else []
    said = refused(*command, tmp_path / place, *extra)
    assert "no run here" in said


def test_a_run_without_checkpoints(refused, own_run, monkeypatch):
    for path in own_run.checkpoints.directory.iterdir():
        path.unlink()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n")))
    assert "no checkpoint here" in refused("translate", own_run.path)
    assert "cannot average the last 2 checkpoints; there are 0" in refused("average", own_run.path)
    for wanted in ("average", "best", "last", "nowhere"):
        assert "checkpoint" in refused("translate", own_run.path, "--checkpoint", wanted)


def test_resume_with_what_may_not_change(refused, own_run, files_of):
    before = files_of(own_run.path)
    assert "model.d_model is 32, was 16" in refused("train", "--resume", own_run.path, "--set", "d_model=32")
    assert "training.seed is 7, was 0" in refused("train", "--resume", own_run.path, "--seed", 7)
    assert files_of(own_run.path) == before


# --- damaged runs


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-50] ^= 4
    path.write_bytes(data)


def foreign(path):
    save_file({"weight": np.ones(3, np.float32)}, path)


def text(path):
    path.write_text("no checkpoint\n" * 100)


def empty(path):
    path.write_bytes(b"")


def other_model(path):
    loaded = checkpoints.load(path)
    loaded.weights["surplus"] = loaded.weights.pop("source_embedding.weight")
    checkpoints.save(path, loaded)


@pytest.mark.parametrize("damage", [truncate, flip, foreign, text, empty, other_model])
def test_a_damaged_checkpoint(refused, own_run, corpus, monkeypatch, damage):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n")))
    last = own_run.checkpoints.of_step(12)
    damage(last)
    commands = [
        ["translate", own_run.path, "--checkpoint", "last"],
        ["translate", own_run.path, "--checkpoint", last],
        [
            "evaluate",
            own_run.path,
            "--checkpoint",
            "last",
            "--source",
            corpus / "val.en",
            "--reference",
            corpus / "val.de",
        ],
        ["plot", own_run.path, "positions", "--checkpoint", "last"],
        ["explore", own_run.path, "--checkpoint", "last"],
    ]
    if damage is not other_model:
        commands.append(["average", own_run.path])
    for command in commands:
        assert last.name in refused(*command)
    assert not own_run.checkpoints.average.exists()


@pytest.mark.parametrize(
    "name, damage",
    [("tokenizer.model", truncate), ("tokenizer.model", text), ("tokenizer.model", empty), ("config.toml", text)],
)
def test_other_damaged_files(refused, own_run, name, damage):
    damage(own_run.path / name)
    assert name in refused("train", "--resume", own_run.path)


def test_a_configuration_of_another_model(refused, own_run, small_config, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n")))
    own_run.write_config(small_config(d_model=32))
    assert "model.d_model is 32, was 16" in refused("translate", own_run.path)
    own_run.write_config(small_config(N=2))
    assert "model.N is 2, was 1" in refused("translate", own_run.path)


# --- searching and scoring


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--nbest", 5], "--nbest 5 must be at most the beam, 4"),
        (["--nbest", 0], "--nbest: 0 must lie between 1"),
        (["--beam", 0], "--beam: 0 must lie between 1"),
        (["--threads", -3], "--threads: -3 must lie between 0"),
        (["--nbest", 2, "--beam", 1], "--nbest 2"),
        (["--checkpoint", "/"], "/"),
        (["nowhere.en"], "nowhere.en"),
    ],
)
def test_impossible_searches(refused, trained, monkeypatch, arguments, complaint):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n")))
    assert complaint in refused("translate", trained.path, *arguments)


def test_input_that_is_not_utf8(refused, trained, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n\xff\n")))
    assert "standard input, line 2: not UTF-8" in refused("translate", trained.path)
    (tmp_path / "latin1").write_bytes(b"a\nb\n\xe4\n")
    assert "latin1, line 3: not valid UTF-8" in refused("translate", trained.path, tmp_path / "latin1")


def test_odd_but_legal_text_is_translated(cli, trained, monkeypatch):
    lines = [
        "\u202eabc",
        "e\u0301\u0327",
        "\ufeff",
        "\u200b",
        "a\u2028b",
        "a\x00b",
        "a\tb\x0bc",
        "👩‍👩‍👧",
        "\U0010ffff",
        "<s> </s> <pad>",
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    outcome = cli("translate", trained.path, "--beam", 1)
    assert outcome.code == 0 and outcome.out.count("\n") == len(lines)


def test_evaluate_what_is_not_parallel(refused, trained, corpus, tmp_path):
    evaluate = ["evaluate", trained.path, "--source", corpus / "val.en", "--reference"]
    assert "val.en has 20 lines" in refused(*evaluate, corpus / "train.de")
    assert "No such file" in refused(*evaluate, tmp_path / "nowhere")
    unwritable = tmp_path / "nowhere" / "file"
    assert "cannot write" in refused(*evaluate, corpus / "val.de", "--beam", 1, "--output", unwritable)
    empty_files = tmp_path / "empty", tmp_path / "also_empty"
    for file in empty_files:
        empty(file)
    evaluate = ["evaluate", trained.path, "--source", empty_files[0], "--reference", empty_files[1]]
    assert "no translations to score" in refused(*evaluate)


def test_an_average_of_more_than_there_are(refused, own_run):
    assert "cannot average the last 5 checkpoints; there are 4" in refused("average", own_run.path, "--last", 5)


def test_an_unknown_layer(refused):
    assert "did you mean 'LayerNorm'" in refused("gradcheck", "LayerNrom")


# --- the machine


def test_a_disk_that_is_full_when_a_checkpoint_is_due(cli, own_run, monkeypatch, files_of):
    before = files_of(own_run.checkpoints.directory)

    def no_space(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "serialized", no_space)
    code, _, said = cli("train", "--resume", own_run.path, "--set", "steps=20")
    assert code == 2
    assert said.splitlines()[-1].startswith("scratchformer: ") and said.endswith("No space left on device\n")
    assert files_of(own_run.checkpoints.directory) == before
    monkeypatch.undo()
    assert configs.load(own_run.config_file).training.steps == 20


def test_a_full_disk_leaves_the_configuration_whole(refused, own_run, monkeypatch):
    before = own_run.config_file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in refused("train", "--resume", own_run.path, "--set", "steps=20")
    assert own_run.config_file.read_bytes() == before


def shell(command, **options):
    environment = os.environ | {"PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, **options)


def test_a_checkpoint_that_grows_beyond_a_real_limit(tmp_path, own_run):
    done = shell(f"ulimit -f 8; $PYTHON -m scratchformer train --resume '{own_run.path}' --set steps=20")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("scratchformer: ")
    assert checkpoints.load(own_run.checkpoints.steps()[-1]).progress.step == 12


@pytest.mark.parametrize(
    "command, complaint",
    [
        ("config base > /dev/full", "No space left on device"),
        ("--version > /dev/full", "No space left on device"),
        ("translate '{run}' <&-", "standard input is closed"),
    ],
)
def test_streams_that_fail(trained, command, complaint):
    done = shell("$PYTHON -m scratchformer " + command.format(run=trained.path))
    assert done.returncode == 2 and complaint in done.stderr
    assert done.stderr.startswith("scratchformer: ") and done.stderr.count("\n") == 1


def test_a_loss_that_explodes_is_told_in_one_line(own_run, tmp_path, small_settings):
    arguments = " ".join(f"'{argument}'" for argument in ["--out", tmp_path / "run", *small_settings])
    done = shell(f"$PYTHON -m scratchformer train {arguments} --set lr_factor=1e30")
    assert done.returncode == 2 and "the loss is" in done.stderr
    assert [line for line in done.stderr.splitlines() if "Warning" in line or "Traceback" in line] == []


def test_ctrl_c_before_the_first_step(small_settings, tmp_path, monkeypatch, cli):
    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("scratchformer.tasks.translation.read_corpus", interrupted)
    code, printed, said = cli("train", "--out", tmp_path / "run", *small_settings)
    assert (code, printed, said) == (130, "", "scratchformer: interrupted\n")
    assert not (tmp_path / "run").exists()
