"""Runs that learn to continue a text, from the command line and from Python."""

import math
from pathlib import Path

import pytest

import scratchformer as sf
from scratchformer import config as configs
from scratchformer.tasks import start
from scratchformer.tasks.language_model import LanguageModelTask, loss_on
from scratchformer.tasks.task import task_named
from scratchformer.training.run import RunDirectory, Trained
from scratchformer.training.validation import loss_of_validation

ROOT = Path(__file__).parents[2]


def test_from_a_text_to_its_continuation(cli, task_run, monkeypatch):
    run = task_run("gpt-tiny").path
    scores = cli("evaluate", run).out
    assert scores.startswith("bits per character ") and "characters of validation text" in scores
    written = cli("generate", run, "--prompt", "3 times", "--tokens", 5, "--temperature", 0).out
    assert written.startswith("3 times") and written.endswith("\n")
    assert sf.generate(sf.load_model(run), "3 times", 5, sf.Sampling(temperature=0)) + "\n" == written
    samples = cli("generate", run, "--samples", 2, "--tokens", 30, "--top-k", 40, "--top-p", 0.9, "--seed", 3)
    assert samples.code == 0 and samples.out.startswith("--- 1 ---\n") and "\n--- 2 ---\n" in samples.out
    many = ["generate", run, "--prompt", "3 times", "--tokens", 300, "--temperature", 2]
    at_once = cli(*many).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli(*many).out == at_once, "token by token"


def test_the_score_is_that_of_the_whole_text(task_config, tmp_path):
    alone = start.begin(RunDirectory(tmp_path / "run"), task_config("gpt-tiny"))
    expected = alone.goal.score(alone)
    texts = LanguageModelTask().read(alone.config)
    trained = Trained(alone.model, alone.tokenizer, alone.config, alone.run.path, alone.device, 1)
    nats, n_tokens = loss_on(trained, texts.val)
    n_ends = len(texts.val)
    assert n_tokens == n_ends + sum(map(len, alone.tokenizer.encode(texts.val)))
    bits = expected["bits per character"] * sum(map(len, texts.val))
    assert nats * n_tokens / math.log(2) == pytest.approx(bits)
    with_specials = loss_of_validation(alone) * n_tokens / math.log(2)
    assert 0.99 * with_specials < bits < with_specials  # padding, BOS and UNK have no share


WORDS = "the dog sees a cat and the cat sees the dog , "


@pytest.mark.parametrize(
    "preset, texts", [("gpt-tiny", [f"{WORDS}\r\n\r\n"] * 40), ("gpt-tiny", [WORDS] * 40), ("bert-tiny", [WORDS * 60])]
)
def test_text_of_every_shape_is_trained_on_and_validates(cli, task_settings, tmp_path, preset, texts):
    """Forty files from Windows, with a blank line; forty of one line; one line."""
    files = [tmp_path / f"{number:02}.txt" for number in range(len(texts))]
    for file, text in zip(files, texts):
        file.write_bytes(text.encode())
    small = {"vocab_size": 280 if preset == "gpt-tiny" else 40, "steps": 2, "validate_every": 2, "score_every": 2}
    settings = [*task_settings(preset), *(word for item in small.items() for word in ("--set", "%s=%s" % item))]
    run = tmp_path / "run"
    outcome = cli("train", preset, "--text", *files, "--out", run, *settings)
    assert outcome.code == 0, outcome.err
    assert len(RunDirectory(run).read_log("validation")) == 1
    read = task_named("language-model" if preset == "gpt-tiny" else "masked-language-model").read(
        configs.load(run / "config.toml")
    )
    held_out, all_text = sum(map(len, read.val)), sum(map(len, [*read.train, *read.val]))
    assert 0.08 < held_out / all_text < 0.12 and cli("evaluate", run).code == 0


@pytest.mark.parametrize(
    "contents, arguments, complaint",
    [
        ([b"one line"], [], "0: too little text: 9 characters in all"),
        ([b"a b\n" * 20], ["vocab_size=264", "max_length=128"], "fewer than the window of data.max_length=128"),
        ([b"a b\n" * 200], ["vocab_size=264", "tokens_per_batch=15"], "does not fit into a batch"),
    ],
)
def test_bad_text(refused, tmp_path, contents, arguments, complaint):
    files = [tmp_path / str(number) for number in range(len(contents))]
    for file, content in zip(files, contents):
        file.write_bytes(content)
    wrong = [word for argument in arguments for word in ("--set", argument)]
    small = ["--set", "max_length=16", "--out", tmp_path / "run", "--threads", 1]
    assert complaint in refused("train", "gpt-tiny", "--text", *files, *small, *wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_short_training_on_our_lessons(cli, tmp_path):
    """Guessing a token costs log2(1024) bits, 4.5 a character; 3.6 is beyond a unigram model of the tokens, 3.87."""
    lessons = sorted((ROOT / "docs" / "lessons").glob("[0-9][0-9]_*.md"))
    run = tmp_path / "run"
    settings = {"steps": 60, "warmup": 60, "N": 2, "score_every": 60, "validate_every": 60, "save_every": 60}
    changes = [word for item in settings.items() for word in ("--set", "%s=%s" % item)]
    assert cli("train", "gpt-tiny", "--text", *lessons, "--out", run, "--threads", 1, *changes).code == 0
    (entry,) = RunDirectory(run).read_log("bits per character")
    assert entry["bits per character"] < 3.6
    written = cli("generate", run, "--prompt", "Attention", "--tokens", 100, "--temperature", 0.8)
    assert written.code == 0 and len(written.out) > 80
