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


EXPERIMENTS = """
ablation
attention_scaling
attention_scaling --part attention_rates
attention_scaling --part attention_without_push
averaging
beam_lengths
beam_lengths --sizes
embeddings
faults
feed_forward
first_symbol
first_symbol --part first_symbol_longer
head_pruning
heads
label_smoothing
longer
one_file
parsing
reversal
source_worth
stacks
table1
tiny_model
training_replay
vision
warm_up
warm_up --part adam_and_warmup
warm_up --part norm_and_warmup
wires
"""


@pytest.mark.parametrize("command", EXPERIMENTS.strip().splitlines())
def test_an_experiment(command, tmp_path):
    name, *arguments = command.split()
    result = quick_run(name, tmp_path, *arguments)
    assert result["runs" if name == "ablation" else "results"] and "provenance" in result


@pytest.mark.parametrize("name", ["masked_language_model", "antecedent"])
def test_what_begins_with_a_masked_language_model(name, tmp_path, cli):
    small = {"steps": 4, "d_model": 16, "d_ff": 32, "h": 2, "validate_every": 4, "score_every": 4, "threads": 1}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    assert cli("train", "bert-tiny", "--out", tmp_path / "run", *settings).code == 0
    (tmp_path / "out").mkdir()
    result = quick_run(name, tmp_path / "out", tmp_path / "run")
    assert result["results"] and "provenance" in result


def test_parsing_of_a_treebank(tmp_path):
    for split in ("train", "val"):
        (tmp_path / f"{split}.trees").write_text("(S (NP (DT a) (NN dog)) (VP (VB sleeps)) (. .))\n" * 5)
    (tmp_path / "out").mkdir()
    result = quick_run("parsing", tmp_path / "out", "--treebank", tmp_path)
    assert len(result["rows"]) == 4 and str(tmp_path) not in str(result["rows"])
    assert result["command"].startswith("python benchmarks/parsing.py --quick")
    for row in result["rows"].values():
        assert row["val"]["beam 4"]["unparsable"] == 0 <= row["val"]["beam 4, free"]["f1"]


def test_cpu_step(tmp_path):
    pytest.importorskip("torch")
    (cell,) = quick_run("cpu_step", tmp_path, "--models", "tiny", "--padding", "with", "--threads", "1")["cells"]
    assert cell["missing"].keys() == {"compile"}
    ours, theirs = (cell["seconds"][name]["minimum"] for name in ("scratchformer", "pytorch"))
    assert cell["time_over_ours"]["minimum"]["pytorch"] == pytest.approx(theirs / ours, rel=1e-2)
    assert all(seconds["minimum"] <= seconds["median"] for seconds in cell["seconds"].values())
    assert cell["padding_share"] == pytest.approx(0.27, abs=0.01)
    assert cell["threads_pinned"] == {"scratchformer": [1], "pytorch": 1}


def test_language_model(tmp_path):
    pytest.importorskip("torch")
    result = quick_run("language_model", tmp_path)
    (run,) = result["results"]
    assert run["steps"] == 4 and all(4 < bits < 7 for bits in run["bits_per_character"].values())
    assert len(result["n_grams"]["characters"]) == 8 and min(result["n_grams"]["characters"]) < 3
    assert all(len(each["tokens_per_second"]) == 4 for each in result["speed"]["generation"])


def test_cpu_tricks(tmp_path):
    (entry,) = quick_run("cpu_tricks", tmp_path, "--models", "tiny")["results"]
    assert entry["gain_percent"]


def test_cpu_scaling(tmp_path):
    for row in quick_run("cpu_scaling", tmp_path)["results"]:
        assert row["bytes"] == pytest.approx(row["counted_bytes"], rel=0.3)
        assert row["memory_exponent"]["measured"] == pytest.approx(row["memory_exponent"]["predicted"], abs=0.2)


def test_cpu_decode(tmp_path):
    pytest.importorskip("torch")
    options = "--models", "small", "--threads", "1", "--without", "pytorch_usual_bf16"
    cells = quick_run("cpu_decode", tmp_path, *options)["cells"]
    assert [cell["beam"] for cell in cells] == [1, 4]
    assert all(cell["identical_share"] >= 0.99 for cell in cells)
    for cell in cells:
        assert cell["missing"] == {"pytorch_usual_bf16": "left out"}
        assert cell["seconds"].keys() == {"scratchformer", "pytorch", "pytorch_usual", "pytorch_bf16"}
        assert cell["fastest_over_fastest"].keys() == {"fp32 over fp32"}


def test_cpu_run(corpus, tmp_path):
    pytest.importorskip("torch")
    result = quick_run("cpu_run", tmp_path, "--data", corpus, "--threads", "1")
    first, *_, last = result["curve"]
    assert first[:4] == [0, 0, 0, 0] and first[4] == pytest.approx(first[5], rel=1e-4)  # the same weights
    assert last[4] < first[4] and last[5] < first[5]
    assert (tmp_path / "cpu_run.png").exists()


def test_scaling_on_cpus(tmp_path):
    rows = quick_run("scaling", tmp_path, "--device", "cpu")["results"]
    assert [(row["mode"], row["processes"]) for row in rows] == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    assert rows[1]["tokens"] == 2 * rows[0]["tokens"] and rows[3]["tokens"] == rows[2]["tokens"]
    assert rows[0]["efficiency"] == rows[2]["efficiency"] == 1 and rows[1]["efficiency"] > 0


def test_cpu_ranks(corpus, tmp_path):
    assert quick_run("cpu_ranks", tmp_path, "--data", corpus)["processes_have_the_losses_of_threads"]


def test_batch_plans(corpus, tmp_path):
    result = quick_run("batch_plans", tmp_path, "--data", corpus)
    padding = {row["plan"]: row["padding"] for row in result["results"]}
    assert padding["sorted, mixed steps"] < padding["buckets, mixed steps"]
    assert [row["plan"] for row in result["longer"]["results"]] == ["buckets", "buckets, mixed steps"]
    assert str(corpus) not in json.dumps(result)


def test_pipeline(tmp_path):
    found = quick_run("pipeline", tmp_path)["results"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.json"]
    assert found["stages"].keys() == {"clean", "vocabulary", "encode"} and found["resume"]["exact"]
    assert found["memory"]["together_resident_mb"] >= found["memory"]["parent_resident_mb"] > 10


def test_paper_road(tmp_path):
    """Every command of docs/reproduction.md, from archives to scores; without --out it writes into --work."""
    command = [sys.executable, "-W", "error", "benchmarks/paper_road.py", "--quick", "--work", tmp_path]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE)
    assert json.loads((tmp_path / "paper_road.json").read_text(encoding="utf-8"))["scores"]["n_sentences"] == 20
