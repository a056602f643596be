"""The benchmarks of several processes: quick runs, and the arithmetic of the model that stands in for GPUs."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from scratchformer import config as configs
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "results"


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("scaling")


def run(name, *arguments):
    """-> what it printed"""
    command = [sys.executable, "-W", "error", BENCHMARKS / f"{name}.py", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def recorded(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_scaling_measures_one_and_two_processes(tmp_path):
    printed = run("scaling", "--device", "cpu", "--quick", "--out", tmp_path)
    rows = json.loads((tmp_path / "scaling_cpu.json").read_text(encoding="utf-8"))["results"]
    assert [row.keys() for row in rows] == [row.keys() for row in recorded("scaling_cpu")["results"]]
    assert [(row["mode"], row["processes"]) for row in rows] == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    assert rows[1]["tokens"] == 2 * rows[0]["tokens"] and rows[3]["tokens"] == rows[2]["tokens"]
    assert rows[0]["efficiency"] == rows[2]["efficiency"] == 1 and rows[1]["efficiency"] > 0
    assert printed.count("tokens/s") == 4 and "expected" in printed


def test_without_a_gpu_scaling_prints_a_model_and_says_so(tmp_path, scaling, monkeypatch):
    if scaling.gpus():
        pytest.skip("there is a GPU")
    assert "a model, not a measurement" in run("scaling", "--out", tmp_path)
    rows = json.loads((tmp_path / "scaling_model.json").read_text(encoding="utf-8"))["results"]
    assert all(row["model"] for row in rows) and rows == recorded("scaling_model")["results"]


@pytest.mark.parametrize("preset", ["tiny", "multi30k", "C4"])
def test_the_model_has_the_buckets_of_training(preset, scaling):
    model = Transformer(configs.preset(preset).model)
    total = GradientSum(Communicator(), model.store.grad, model.layer_begins())
    assert scaling.bucket_sizes(configs.preset(preset)) == [bucket.stop - bucket.start for bucket in total.buckets]


def test_what_the_model_expects(scaling, monkeypatch):
    monkeypatch.setattr(scaling, "LATENCY", 0)
    expected = scaling.expected_seconds
    assert expected(3.0, 0.5, [10, 10, 10], 1, 1.0) == 3.5  # one device sends nothing
    assert expected(3.0, 0.5, [10, 10, 10], 2, 1e12) == pytest.approx(3.5)  # an infinitely fast link
    # forward 1 s, backward 2 s; half of the layers are done at 2 s, all at 3 s, the embeddings at 3 s
    assert expected(3.0, 0.5, [10, 10, 10], 2, 4 * 10 / 0.4) == pytest.approx(3.0 + 0.4 + 0.4 + 0.5)
    assert expected(3.0, 0.5, [10, 10, 10], 2, 4 * 10 / 5) == pytest.approx(2.0 + 15 + 0.5)


def test_cpu_ranks_measures_all_variants(tmp_path, corpus):
    printed = run("cpu_ranks", "--quick", "--data", corpus, "--out", tmp_path)
    result, known = json.loads((tmp_path / "cpu_ranks.json").read_text(encoding="utf-8")), recorded("cpu_ranks")
    assert result.keys() == known.keys() and result["processes_have_the_losses_of_threads"]
    assert [row["variant"] for row in result["results"]] == [row["variant"] for row in known["results"]]
    assert known["processes_have_the_losses_of_threads"] and printed.count("tokens/s") == 3


def test_the_page_shows_what_is_recorded():
    page = (BENCHMARKS.parent / "docs" / "parallel.md").read_text(encoding="utf-8")
    assert run("faults", "--table").strip() in page
    for row in recorded("cpu_ranks")["results"]:
        assert f"| {row['tokens_per_second']:,.0f} | {row['of_one_thread']:.3g} |" in page
    measured = {row["mode"]: row for row in recorded("scaling_cpu")["results"] if row["processes"] == 2}
    assert f"{measured['weak']['efficiency']:.0%}".replace("%", " %") + " weak" in page
    assert f"{measured['strong']['efficiency']:.0%}".replace("%", " %") + " strong" in page.replace("\n", " ")
    for row in recorded("scaling_model")["results"]:
        if row["preset"] == "base" and row["processes"] == 8:
            assert f"| {row['link']} | {row['weak'] * 100:.0f} % | {row['strong'] * 100:.0f} % |" in page
