"""What holds for every task: it is declared everywhere, ranks agree on its score, and pretrained weights must fit."""

import io

import pytest

from scratchformer import config as configs
from scratchformer.config import MODEL_OF_TASK, PRESETS
from scratchformer.errors import UserError
from scratchformer.experiments.task_scores import SCORES
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory
from scratchformer.training.tasks import TASKS

SMALL = {
    "N": 1,
    "d_model": 16,
    "d_ff": 16,
    "h": 2,
    "tokens_per_batch": 200,
    "accumulation": 2,
    "warmup": 10,
    "steps": 2,
    "threads": 1,
}
VOCABULARY = {"gpt-tiny": {"vocab_size": 300}, "bert-tiny": {"vocab_size": 70}}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"The dog saw {n} cats and a cow.\n" for n in range(60)))
    return path


@pytest.fixture(scope="module")
def small_config(text):
    """small_config(preset, **changes) -> its configuration with a small model, on a few lines if it reads files"""

    def build(preset, **changes):
        sizes = SMALL
        if preset in VOCABULARY:
            sizes = sizes | VOCABULARY[preset] | {"data.text": (str(text),), "max_length": 16}
        return configs.with_settings(PRESETS[preset], sizes | changes)

    return build


@pytest.fixture(scope="module")
def trained(small_config, tmp_path_factory):
    """trained(preset) -> the run of its small configuration"""
    runs = {}

    def train(preset):
        if preset not in runs:
            runs[preset] = RunDirectory(tmp_path_factory.mktemp("runs") / preset)
            loop.train(loop.begin(runs[preset], small_config(preset)))
        return runs[preset]

    return train


def test_a_task_has_a_model_a_score_and_a_preset():
    assert set(TASKS) == set(MODEL_OF_TASK) == {"translation", *SCORES}
    assert set(TASKS) == {config.data.task for config in PRESETS.values()}


@pytest.mark.parametrize("preset", ["bert-tiny", "antecedent", "vit-digits"])
def test_ranks_find_the_score_of_one_process(small_config, together, tmp_path, preset):
    config = small_config(preset)
    alone = loop.begin(RunDirectory(tmp_path / "alone"), config)

    def work(ranks):
        trainer = loop.begin(RunDirectory(tmp_path / "shared"), config, ranks)
        return trainer.task.score(trainer)

    expected = alone.task.score(alone)
    assert all(found == expected for found in together(2, work))


@pytest.mark.parametrize(
    "preset, pretrained, changes, complaint",
    [
        ("bert-tiny", "gpt-tiny", {}, "a run for language-model; one for masked-language-model cannot begin with it"),
        ("gpt-tiny", "bert-tiny", {}, "a run for masked-language-model; one for language-model cannot"),
        ("bert-tiny", "bert-tiny", {"h": 4}, "model.h=2, but here 4: its weights would mean nothing"),
        ("bert-tiny", "bert-tiny", {"activation": "relu"}, "model.activation=gelu, but here relu"),
        ("bert-tiny", "bert-tiny", {"d_model": 32, "d_ff": 48}, "no weight of it fits this model"),
        ("bert-tiny", None, {}, "missing: no run here (config.toml is missing)"),
    ],
)
def test_pretrained_weights_must_fit(small_config, trained, tmp_path, preset, pretrained, changes, complaint):
    path = trained(pretrained).path if pretrained else tmp_path / "missing"
    with pytest.raises(UserError) as refusal:
        loop.begin(RunDirectory(tmp_path / "run"), small_config(preset, **{"training.pretrained": str(path)} | changes))
    assert complaint in str(refusal.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("preset", ["gpt-tiny", "bert-tiny"])
def test_text_that_has_changed_is_not_scored(trained, text, refused, preset):
    run, before = trained(preset), text.read_text()
    text.write_text("One more line.\n" + before)
    try:
        assert "was trained on other text than its files have now" in refused("evaluate", run.path)
    finally:
        text.write_text(before)


def test_a_file_named_twice_and_a_pipe_are_refused(refused, text, tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to(text)
    assert "link.txt: named twice among the texts" in refused("train", "gpt-tiny", "--text", text, link, "--out", "r")
    assert "not a plain file" in refused("train", "bert-tiny", "--text", "/dev/null", "--out", tmp_path / "run")


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["tiny", "--text", "{text}"], "text.txt: --text is for language models"),
        (["gpt-tiny", "--text", "{text}", "--train-source", "x"], "--text names the files of a language model"),
        (["--resume", "{run}", "--pretrained", "{run}"], "no --pretrained"),
        (["gpt-tiny", "--set", "target_vocab_size=9"], "two vocabularies need an encoder and a decoder"),
    ],
)
def test_options_that_contradict_each_other(refused, trained, text, arguments, complaint):
    values = {"text": text, "run": trained("gpt-tiny").path}
    assert complaint in refused("train", *(word.format(**values) for word in arguments))


def test_fill_passes_blank_lines(cli, trained, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The [MASK].\n\nThe [MASK].\n")))
    printed = cli("fill", trained("bert-tiny").path, "--top", 1)
    assert printed.code == 0 and printed.out.splitlines()[2] == "" and len(printed.out.splitlines()) == 5
