"""Runs of a text encoder: it learns hidden pieces from texts, and with that, which noun "it" means."""

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.experiments import antecedent, masked_language_model
from scratchformer.experiments.heads import both_right
from scratchformer.text import bundled
from scratchformer.text.tokenizer import EOS
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_model
from scratchformer.training.task_antecedent import NO, YES, is_right, pairs_of, with_two_nouns

SMALL = {
    "vocab_size": 150,
    "N": 1,
    "d_model": 16,
    "d_ff": 32,
    "h": 2,
    "tokens_per_batch": 200,
    "warmup": 10,
    "steps": 6,
    "validate_every": 3,
    "score_every": 3,
    "save_every": 2,
    "average_last": 2,
    "threads": 1,
}


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A file of 200 sentences."""
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("".join(f"{line}\n" for line in bundled.read_text("val").source[:200]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def small_config(text):
    """small_config(**changes) -> Config of a masked language model of a second"""
    return lambda **changes: configs.with_settings(configs.BERT_TINY, {"data.text": (str(text),)} | SMALL | changes)


@pytest.fixture(scope="session")
def pretrained(small_config, tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("runs") / "pretrained")
    loop.train(loop.begin(run, small_config()))
    return run


def test_a_masked_language_model_fills_in(cli, refused, pretrained, tmp_path):
    scores = pretrained.read_log("accuracy")
    assert [entry["step"] for entry in scores] == [3, 6]
    assert cli("average", pretrained.path).code == 0
    printed = cli("fill", pretrained.path, "The [MASK] sleeps.", "[MASK] [MASK]", "--top", 2)
    lines = printed.out.splitlines()
    assert printed.code == 0 and len(lines) == 5 and lines[0].endswith("sleeps.") and ", " in lines[1]
    assert [line[: line.index(":")] for line in lines if ":" in line] == ["  [MASK]", "  [MASK] 1", "  [MASK] 2"]
    assert "is for masked-language-model" in refused("translate", pretrained.path)
    for argument, complaint in [
        ("The dog sleeps.", "the text: no [MASK] to fill in"),
        ("a [MASK] " * 40, "and the model was trained on at most 64"),
    ]:
        assert complaint in refused("fill", pretrained.path, argument)


def test_a_run_stopped_and_resumed_hides_the_same_pieces(small_config, tmp_path, same_run, pretrained):
    halves = RunDirectory(tmp_path / "halves")
    loop.train(loop.begin(halves, small_config(steps=4)))
    loop.train(loop.resume(halves, small_config())[0])
    same_run(halves, pretrained)


def test_scores_of_hidden_pieces(pretrained):
    scores = masked_language_model.evaluate(load_model(pretrained.path))
    assert scores.split == "validation" and scores.n_pieces > 200
    assert 0 < scores.most_frequent < scores.after_previous < scores.between_neighbours < 100
    assert scores.interval[0] <= scores.accuracy <= scores.interval[1]
    assert "hidden one at a time" in scores.as_text()


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


def test_fine_tuning_begins_with_the_weights_of_pretraining(refused, pretrained, tmp_path):
    changes = SMALL | {"steps": 2, "score_every": 2, "lr_factor": 1e-9, "training.pretrained": str(pretrained.path)}
    run = RunDirectory(tmp_path / "run")
    loop.train(loop.begin(run, configs.with_settings(configs.ANTECEDENT, changes)))
    before, after = load_model(pretrained.path), load_model(run.path)
    assert after.tokenizer.serialized == before.tokenizer.serialized
    for name, weight in before.model.parameters().items():
        np.testing.assert_allclose(after.model.parameters()[name].data, weight.data, atol=1e-6)
    assert after.model.unembedding.weight.shape == (3, 16)
    assert [entry["step"] for entry in run.read_log("accuracy")] == [2]
    scores = antecedent.evaluate(after)
    assert (scores.n_test, scores.n_sentences) == (62, 240) and scores.first + scores.last == 100


def test_the_antecedent_task_reads_no_files(refused, tmp_path):
    complaint = refused("train", "antecedent", "--out", tmp_path / "run", "--set", "data.text=['a.txt']")
    assert "data.task=antecedent reads the annotations of the bundled corpus, and no files" in complaint


@pytest.mark.slow
def test_after_a_minute_the_model_guesses_far_better_than_the_most_frequent_piece(tmp_path):
    run = RunDirectory(tmp_path / "run")
    loop.train(loop.begin(run, configs.with_settings(configs.BERT_TINY, {"steps": 350, "warmup": 150, "threads": 1})))
    scores = masked_language_model.evaluate(load_model(run.path))
    assert (scores.split, scores.n_pieces) == ("test", 4915)
    assert scores.accuracy > 35 > 3 * scores.most_frequent
