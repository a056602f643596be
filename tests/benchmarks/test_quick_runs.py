"""Every benchmark runs from its command line, on a small scale, and writes its result."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def quick_run(name, out, *arguments):
    """Run a benchmark with --quick -> the JSON that it writes."""
    command = [sys.executable, "-W", "error", ROOT / "benchmarks" / f"{name}.py", "--quick", "--out", out, *arguments]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE)
    (path,) = out.glob("*.json")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


EXPERIMENTS = """
ablation
attention_scaling
attention_scaling --part attention_without_push
averaging
beam_lengths
block_of_2026
embeddings
feed_forward
first_symbol
label_smoothing
longer
one_file
paper_road
parsing
reversal
source_worth
stacks
table1
tiny_model
warm_up
wires
"""


@pytest.mark.parametrize("command", EXPERIMENTS.strip().splitlines())
def test_an_experiment(command, out):
    name, *arguments = command.split()
    result = quick_run(name, out, *arguments)
    assert result["runs" if name == "ablation" else "results"] and "provenance" in result


def test_parsing_of_a_treebank(tmp_path, out):
    for split in ("train", "val"):
        (tmp_path / f"{split}.trees").write_text("(S (NP (DT a) (NN dog)) (VP (VB sleeps)) (. .))\n" * 5)
    result = quick_run("parsing", out, "--treebank", tmp_path)
    assert len(result["rows"]) == 4 and str(tmp_path) not in str(result)
    for row in result["rows"].values():
        assert row["val"]["beam 4"]["unparsable"] == 0 <= row["val"]["beam 4, free"]["f1"]


def test_cpu_step(out):
    pytest.importorskip("torch")
    options = "--padding", "with", "--threads", "1", "--without", "pytorch_cut,bf16", "--models", "tiny"
    (cell,) = quick_run("cpu_step", out, *options)["cells"]
    assert cell["missing"].keys() == {"compile", "pytorch_cut", "bf16"}
    ours, theirs = (cell["seconds"][name]["minimum"] for name in ("scratchformer", "pytorch"))
    assert cell["time_over_ours"]["minimum"]["pytorch"] == pytest.approx(theirs / ours, rel=1e-2)
    assert cell["padding_share"] == pytest.approx(0.27, abs=0.01)
    assert cell["threads_pinned"] == {"scratchformer": [1], "pytorch": 1}


def test_language_model(out):
    result = quick_run("language_model", out)
    (run,) = result["results"]
    assert run["steps"] == 4 and all(4 < bits < 7 for bits in run["bits_per_character"].values())
    assert len(result["n_grams"]["characters"]) == 8 and min(result["n_grams"]["characters"]) < 3


def test_cpu_tricks(out):
    (entry,) = quick_run("cpu_tricks", out, "--models", "tiny")["results"]
    assert entry["gain_percent"]


def test_cpu_decode(out):
    pytest.importorskip("torch")
    cells = quick_run("cpu_decode", out, "--models", "small", "--threads", "1")["cells"]
    assert [cell["beam"] for cell in cells] == [1, 4]
    assert all(cell["identical_share"] >= 0.99 for cell in cells)
    assert all(len(cell["seconds"]) == 3 and cell["fastest_over_fastest"] for cell in cells)


def test_run_curve(trained, corpus, out):
    result = quick_run("run_curve", out, trained.path, "--source", corpus / "val.en", "--reference", corpus / "val.de")
    assert len(result["validation"]) == 3 and "bleu" in result


def test_scaling_on_cpus(out):
    rows = quick_run("scaling", out, "--device", "cpu")["results"]
    assert [(row["mode"], row["processes"]) for row in rows] == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    assert rows[1]["tokens"] == 2 * rows[0]["tokens"] and rows[3]["tokens"] == rows[2]["tokens"]
    assert rows[0]["efficiency"] == rows[2]["efficiency"] == 1 and rows[1]["efficiency"] > 0


def test_pipeline(out):
    found = quick_run("pipeline", out)["results"]
    assert [path.name for path in out.iterdir()] == ["pipeline.json"]
    assert found["stages"].keys() == {"clean", "vocabulary", "encode"} and found["memory_mb"] > 10
