"""The shipped model is the one that results were recorded of, and does what they say."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from exercises import lesson_00
from scratchformer.text.bundled import coreference_score
from scratchformer.training.run import load_run

pytest.importorskip("threadpoolctl")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORDED = json.loads((BENCHMARKS / "results" / "tiny_model.json").read_text(encoding="utf-8"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("tiny_model")


def test_the_recorded_results_are_of_the_committed_weights(script):
    assert RECORDED["config"]["sha256"] == script.checksum(), "python benchmarks/tiny_model.py"
    assert RECORDED["command"] == "python benchmarks/tiny_model.py"  # all of it, not the quick one


@pytest.mark.slow
def test_the_recorded_scores_come_out_again(script):
    translator, pairs = load_run(script.RUN.path), script.read("test_coreference")
    translations = translator.translate([example.source for example in pairs])
    again = script.scores(pairs, translations)
    assert again["bleu"] == pytest.approx(RECORDED["results"]["beam"]["test_coreference"]["bleu"], abs=0.5)
    assert coreference_score(translations, pairs) == pytest.approx(RECORDED["results"]["pronouns"], abs=0.02)


@pytest.mark.slow
def test_the_script_runs_quickly_too(tmp_path):
    subprocess.run(
        [sys.executable, "-W", "error", BENCHMARKS / "tiny_model.py", "--quick", "--out", tmp_path], check=True
    )
    quick = json.loads((tmp_path / "tiny_model.json").read_text(encoding="utf-8"))
    assert quick.keys() == RECORDED.keys() and quick["results"].keys() == RECORDED["results"].keys()
    assert {entry["sentences"] for entry in quick["results"]["beam"].values()} == {8}


def test_the_sentence_of_an_exercise_is_aligned_as_in_the_corpus(script):
    (example,) = [example for example in script.read("test") if example.source == lesson_00.SENTENCE.source]
    assert example._replace(tree="") == lesson_00.SENTENCE
    assert len(set(lesson_00.ENGLISH)) == len(lesson_00.ENGLISH) == len(set(lesson_00.GERMAN))
