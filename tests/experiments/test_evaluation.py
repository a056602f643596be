"""Scores that `evaluate` prints and records, and requests that it refuses."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.config import DataConfig
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import evaluation
from scratchformer.experiments.paper_bleu import paper_bleu_and_gap
from scratchformer.text import bundled
from scratchformer.text.bleu import corpus_scores
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_run
from support import bleu_by_hand

SOURCES = ["the dog sees a cat", "", "a big bird and the old cat", "the cat hears the old dog", "a dog"]
REFERENCES = ["Kater ein sieht Hund der", "Hund", "Kater alter der und Vogel großer ein", "", "„Hund ein“"]


@pytest.fixture
def test_files(tmp_path):
    """A directory with test.en and test.de; some lines are empty."""
    directory = tmp_path / "test set"
    directory.mkdir()
    for language, lines in (("en", SOURCES), ("de", REFERENCES)):
        (directory / f"test.{language}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return directory


@pytest.fixture
def named(test_files):
    """The options that name the test set."""
    return ["--source", test_files / "test.en", "--reference", test_files / "test.de"]


@pytest.fixture
def nothing_is_translated(monkeypatch):
    def fail(*arguments):
        raise AssertionError("translated before the arguments were checked")

    monkeypatch.setattr(Translator, "stream", fail)


def with_data(run, **data):
    """The run, as if it had been trained on other text."""
    config = configs.load(run.config_file)
    run.write_config(configs.with_settings(config, {f"data.{name}": str(value) for name, value in data.items()}))
    return run


# --- evaluate


def test_the_test_split_of_the_runs_data_is_the_default(cli, own_run, test_files):
    with_data(own_run, directory=test_files)
    code, printed, said = cli("evaluate", own_run.path, "--json")
    assert (code, said) == (0, "")
    translations = load_run(own_run.path).translate(SOURCES)
    scores = json.loads(printed)
    expected = corpus_scores(translations, REFERENCES)
    assert {name: scores[name] for name in expected._fields} == expected._asdict()
    assert scores["source"] == str(test_files / "test.en") and scores["paper"] is None


def test_what_is_recorded(cli, own_run, named, test_files, monkeypatch):
    monkeypatch.chdir(test_files)
    assert cli("evaluate", own_run.path, "--source", "test.en", "--reference", "test.de", "--beam", 1).code == 0
    assert cli("evaluate", own_run.path, *named, "--paper", "--checkpoint", "last", "--alpha", 1).code == 0
    first, second = own_run.read_evaluations()
    assert first.keys() == second.keys() and first["paper_bleu"] is first["gap"] is None
    for kept, checkpoint, beam, alpha in (
        (first, own_run.checkpoints.best, 1, 0.6),
        (second, own_run.checkpoints.of_step(12), 4, 1),
    ):
        assert (kept["checkpoint"], kept["beam"], kept["alpha"]) == (checkpoint.name, beam, alpha)
        assert (kept["source"], kept["reference"]) == (str(test_files / "test.en"), str(test_files / "test.de"))
        expected = corpus_scores(load_run(own_run.path, checkpoint).translate(SOURCES, beam, alpha), REFERENCES)
        assert {name: kept[name] for name in expected._fields} == expected._asdict()
    assert second["step"] == 12
    paper, _ = paper_bleu_and_gap(0.0, load_run(own_run.path, "last").translate(SOURCES, alpha=1), REFERENCES)
    assert (second["paper_bleu"], second["paper_signature"]) == (paper.bleu, paper.signature)


def test_a_read_only_run_can_be_evaluated(cli, own_run, named, tmp_path):
    own_run.evaluations_file.symlink_to(tmp_path / "elsewhere")
    code, printed, said = cli("evaluate", own_run.path, *named, "--beam", 1)
    assert code == 0 and printed.startswith("BLEU ") and said.startswith("scores not recorded: ")


def test_two_runs(cli, own_run, named, test_files, tmp_path):
    other = RunDirectory(shutil.copytree(own_run.path, tmp_path / "other"))
    config = configs.load(other.config_file)
    other.write_config(configs.with_settings(config, {"decoding.beam": 2, "decoding.alpha": 1.0}))
    options = ["--against", other.path, "--against-checkpoint", other.checkpoints.of_step(3)]
    command = ["evaluate", own_run.path, *named, *options]
    code, printed, said = cli(*command, "--json")
    assert (code, said) == (0, "")
    result = json.loads(printed)
    ours = load_run(own_run.path).translate(SOURCES)
    theirs = load_run(other.path, other.checkpoints.of_step(3)).translate(SOURCES, 2, 1.0)
    assert result["bleu"] == corpus_scores(ours, REFERENCES).bleu
    assert result["against"]["chrf"] == corpus_scores(theirs, REFERENCES).chrf
    assert (result["against"]["beam"], result["against"]["alpha"], result["against"]["step"]) == (2, 1, 3)
    compared = [each._asdict() for each in evaluation.compare(ours, theirs, REFERENCES)]
    assert result["comparison"] == json.loads(json.dumps(compared))
    assert [kept["bleu"] for kept in own_run.read_evaluations()] == [result["bleu"]]
    assert [kept["bleu"] for kept in other.read_evaluations()] == [result["against"]["bleu"]]

    printed = cli(*command, "--beam", 1).out
    assert (
        printed.count(f"{len(SOURCES)} sentences of {test_files / 'test.en'}, beam 1, alpha 0.6, ") == 1
    ), "alpha is each run's own"
    assert printed.count(f"{len(SOURCES)} sentences of {test_files / 'test.en'}, beam 1, alpha 1, ") == 1
    assert f"{other.path}: step_00000003.safetensors, step 3\n" in printed and "seed:12345" in printed


def test_what_a_run_is_scored_on_without_test_files(corpus):
    def found(**data):
        test = evaluation.find_test_set(replace(DataConfig(), **data), None, None)
        return test.name, test.source

    texts = {f"train_{side}": str(corpus / f"train.{end}") for side, end in (("source", "en"), ("target", "de"))}
    validation = {f"val_{side}": str(corpus / f"val.{end}") for side, end in (("source", "en"), ("target", "de"))}
    lines = {split: (corpus / f"{split}.en").read_text().splitlines() for split in ("train", "val")}
    assert found() == ("the bundled corpus, test", bundled.read_text("test").source)
    assert found(directory=str(corpus)) == found(**texts, **validation) == (str(corpus / "val.en"), lines["val"])
    assert found(**texts) == ("the pairs held out of the training text", lines["train"][19::20])


def test_a_run_without_a_test_set(refused, own_run, nothing_is_translated, tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("too few to hold some out\n" * 19)
    said = refused("evaluate", with_data(own_run, directory=tmp_path).path)
    assert "no test or validation text; give --source and --reference" in said


def test_what_is_refused_before_anything_is_translated(
    refused, own_run, named, test_files, tmp_path, nothing_is_translated
):
    evaluate = ["evaluate", own_run.path, *named]
    assert "give both" in refused(*evaluate[:4])
    assert "no run here" in refused(*evaluate, "--against", tmp_path / "nowhere")
    assert "--against-checkpoint needs --against" in refused(*evaluate, "--against-checkpoint", "best")
    assert "cannot write" in refused(*evaluate, "--output", tmp_path / "nowhere" / "file")
    assert "is a text of the run or of the test set" in refused(*evaluate, "--output", test_files / "test.de")
    other = with_data(RunDirectory(shutil.copytree(own_run.path, tmp_path / "other")), target_language="fr")
    assert "to fr: they cannot be compared" in refused(*evaluate, "--against", other.path)
    (test_files / "test.de").write_text("one line\n")
    assert "test.en has 5 lines" in refused(*evaluate, "--output", tmp_path / "out")
    for path in test_files.iterdir():
        path.write_text("")
    assert "no translations to score" in refused(*evaluate, "--output", tmp_path / "out")
    assert own_run.read_evaluations() == [] and not (tmp_path / "out").exists()


# --- scores


def test_the_language_decides_what_bleu_counts(cli, begin, corpus, named, tmp_path):
    files = {"data.train_source": str(corpus / "train.en"), "data.train_target": str(corpus / "train.de")}
    trainer, out = begin(target_language="th", steps=3, **files), tmp_path / "out"
    loop.train(trainer)
    run = trainer.run.path
    command = ["evaluate", run, *named, "--output", out, "--against", run, "--against-checkpoint", "last"]
    evaluated = json.loads(cli(*command, "--json").out)
    expected = corpus_scores(load_run(run).translate(SOURCES), REFERENCES, "th")
    assert evaluated["bleu"] == expected.bleu != corpus_scores(out.read_text().splitlines(), REFERENCES).bleu
    assert "|tok:char|" in evaluated["bleu_signature"] and "|tok:char|" in evaluated["comparison"][0]["signature"]
    printed = cli("evaluate", run, *named, "--paper", "--beam", 1).out
    assert "|tok:moses-th|" in printed and printed.count("no published procedure") == 1 and "here th," in printed


def test_unknown_tokens_and_doubtful_references_are_told(cli, own_run, tmp_path):
    sources, references = tmp_path / "odd.en", tmp_path / "odd.de"
    sources.write_text("the 🙂 dog\na cat\n", encoding="utf-8")
    references.write_text("u\u0308\nho\u0308rt\n", encoding="utf-8")
    code, printed, said = cli("evaluate", own_run.path, "--source", sources, "--reference", references)
    assert code == 0 and printed.startswith("BLEU 0.00")
    unknown, few = said.splitlines()
    n_tokens = sum(map(len, load_run(own_run.path).tokenizer.encode(["the 🙂 dog", "a cat"])))
    assert unknown == f"{own_run.path} (best): 1 of {n_tokens} tokens of the input are unknown to the model"
    assert few.startswith("BLEU means little: ") and "0 of 2 references have four (tok:13a)" in few


def test_the_papers_score_as_text():
    lines = evaluation.assess(REFERENCES, REFERENCES, "de", with_paper=True).text.splitlines()
    assert lines[0].startswith("BLEU 100.00  (nrefs:1|") and lines[2].startswith("BLEU 100.00 as the paper's script")
    assert lines[4].endswith("Moses tokens, unsmoothed +0.00, plain quotation marks +0.00, words cut at hyphens +0.00")


# --- two systems


def some_text(seed, n, wrong):
    random = np.random.default_rng(seed)
    references = [list(random.choice(list("abcdefgh"), random.integers(6, 14))) for _ in range(n)]
    return [
        [" ".join("x" if random.random() < share else word for word in line) for line in references]
        for share in (0, *wrong)
    ]


def test_the_bootstrap_is_that_of_the_lesson():
    references, ours, theirs = some_text(0, 120, (0.10, 0.13))
    tables = [
        bleu_by_hand.count_table([line.split() for line in lines], [line.split() for line in references])
        for lines in (ours, theirs)
    ]
    drawn = np.random.default_rng(12345).choice(120, size=(1000, 120), replace=True)
    a, b = (bleu_by_hand.bleu_of_samples(table, drawn) for table in tables)
    comparison = evaluation.compare(ours, theirs, references)[0]
    for values, (low, high), score, lines in (
        (a, comparison.interval, comparison.score, ours),
        (b, comparison.other_interval, comparison.other_score, theirs),
    ):
        half = np.subtract(*np.sort(values)[[974, 25]]) / 2
        assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-5)
        assert score == pytest.approx(corpus_scores(lines, references).bleu) and low < score < high
    beyond = abs(a - b) - abs(a - b).mean() > abs(comparison.score - comparison.other_score)
    assert 0.01 < comparison.p_value == pytest.approx((beyond.sum() + 1) / 1001, abs=0.002)


def test_verdicts():
    references, good, bad, also_good = some_text(3, 200, (0.1, 0.3, 0.1))
    assert evaluation.compare(good, bad, references) == evaluation.compare(good, bad, references), "the draw is seeded"
    for ours, theirs, verdict in (
        (good, bad, "A is better: by "),
        (bad, good, "B is better: by "),
        (good, also_good, "no difference beyond chance: "),
        (good, good, "the same score"),
    ):
        comparisons = evaluation.compare(ours, theirs, references)
        assert all(comparison.verdict("A", "B").startswith(verdict) for comparison in comparisons)
    assert [comparison.p_value for comparison in comparisons] == [1, 1]
