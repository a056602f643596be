"""Runs of a text encoder: it learns hidden pieces from texts, and with that, which noun "it" means."""

import io

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.tasks import start
from scratchformer.tasks.antecedent import NO, YES, is_right, pairs_of, with_two_nouns
from scratchformer.tasks.task import task_named
from scratchformer.text.bundled import both_right
from scratchformer.text.tokenizer import EOS
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_model


@pytest.fixture
def pretrained(task_run):
    return task_run("bert-tiny")


def test_a_masked_language_model_fills_in(cli, refused, pretrained, monkeypatch):
    assert [entry["step"] for entry in pretrained.read_log("accuracy")] == [6, 12]
    printed = cli("fill", pretrained.path, "The [MASK] sleeps.", "[MASK] [MASK]", "--top", 2)
    lines = printed.out.splitlines()
    assert printed.code == 0 and len(lines) == 5 and lines[0].endswith("sleeps.") and ", " in lines[1]
    assert [line[: line.index(":")] for line in lines if ":" in line] == ["  [MASK]", "  [MASK] 1", "  [MASK] 2"]
    unknown = cli("fill", pretrained.path, "The [MASK] 東 sleeps.", "東 [MASK]").err
    assert printed.err == "" and unknown.endswith(" tokens of the input are unknown to the model\n")
    assert "is for masked-language-model" in refused("translate", pretrained.path)
    assert "the text: no [MASK] to fill in" in refused("fill", pretrained.path, "The dog sleeps.")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The [MASK].\n\nThe [MASK].\n")))
    assert cli("fill", pretrained.path, "--top", 1).out.splitlines()[2] == ""


def test_scores_of_hidden_pieces(pretrained):
    scores, text, _ = task_named("masked-language-model").evaluate(load_model(pretrained.path))
    assert scores["split"] == "validation" and scores["n_pieces"] > 200
    assert 0 < scores["most_frequent"] < scores["after_previous"] < scores["between_neighbours"] < 100
    assert scores["interval"][0] <= scores["accuracy"] <= scores["interval"][1]
    assert "hidden one at a time" in text


def test_each_sentence_is_read_once_with_each_of_its_nouns(pretrained):
    tokenizer = load_model(pretrained.path).tokenizer
    examples = with_two_nouns("test_coreference")[:2]
    assert examples[0].source == "The cow avoids the square because it is too sick."
    pairs = pairs_of(examples, tokenizer, 64)
    (ids, types), targets = pairs.batch(np.arange(4))[:2]
    read = [tokenizer.decode([row[row > EOS].tolist()])[0] for row in ids]
    assert read[:2] == [f"{examples[0].source} the {noun}" for noun in ("cow", "square")]
    assert read[2:] == [f"{examples[1].source} the {noun}" for noun in ("square", "cow")]
    assert [tokenizer.decode([row[kind == 1].tolist()])[0] for row, kind in zip(ids, types)] == [
        "the cow",
        "the square",
        "the square",
        "the cow",
    ]
    assert targets.tolist() == [[YES], [NO], [YES], [NO]]


def test_a_model_that_knows_the_nouns_is_right(pretrained):
    """A stand-in for a model that says yes to the cow, whatever the sentence says."""
    tokenizer = load_model(pretrained.path).tokenizer
    examples = with_two_nouns("test_coreference")[:2]

    class ModelOfCows:
        def forward(self, ids, token_types):
            cow = [" cow" in tokenizer.decode([row[kind == 1].tolist()])[0] for row, kind in zip(ids, token_types)]
            return np.array([[[9.0, 0.0, float(found)]] for found in cow]), None

    right = is_right(ModelOfCows(), pairs_of(examples, tokenizer, 64))
    assert right.tolist() == [True, False]
    assert both_right(right, examples).tolist() == [False]


def test_fine_tuning_begins_with_the_weights_of_pretraining(task_config, pretrained, tmp_path):
    changes = {"steps": 2, "score_every": 2, "lr_factor": 1e-9}
    run = RunDirectory(tmp_path / "run")
    loop.train(start.begin(run, task_config("antecedent", **changes)))
    before, after = load_model(pretrained.path), load_model(run.path)
    assert after.tokenizer.serialized == before.tokenizer.serialized
    for name, weight in before.model.parameters().items():
        np.testing.assert_allclose(after.model.parameters()[name].data, weight.data, atol=1e-6)
    assert after.model.unembedding.weight.shape == (3, 16)
    assert [entry["step"] for entry in run.read_log("accuracy")] == [2]
    scores = task_named("antecedent").evaluate(after).record
    assert (scores["n_test"], scores["n_sentences"]) == (62, 240) and scores["first"] + scores["last"] == 100


@pytest.mark.slow
def test_after_a_minute_the_model_guesses_far_better_than_the_most_frequent_piece(tmp_path):
    run = RunDirectory(tmp_path / "run")
    loop.train(
        start.begin(
            run, configs.with_settings(configs.PRESETS["bert-tiny"], {"steps": 350, "warmup": 150, "threads": 1})
        )
    )
    scores = task_named("masked-language-model").evaluate(load_model(run.path)).record
    assert (scores["split"], scores["n_pieces"]) == ("test", 4915)
    assert scores["accuracy"] > 35 > 3 * scores["most_frequent"]
