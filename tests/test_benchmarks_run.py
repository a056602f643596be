"""The run beside PyTorch takes the steps that training takes, gives both sides the same, and writes what it says."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import steps
from scratchformer.text.bleu import corpus_scores

pytest.importorskip("torch")
pytest.importorskip("threadpoolctl")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def cpu_run(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("cpu_run")


def test_our_side_takes_the_very_steps_of_training(cpu_run, begin):
    trainer = begin(P_drop=0.3, accumulation=3, threads=1)
    model = Transformer(trainer.config.model, trainer.config.training.seed)
    chosen = cpu_run.first_steps(trainer.data.train, trainer.config, 300)
    n_tokens = [len(pairs.target.ids) for pairs in chosen]
    assert sum(n_tokens[:-1]) < 300 <= sum(n_tokens) and len(chosen) > 2
    step = cpu_run.our_step(model, trainer.config, 3, threads=1)
    for pairs, place in zip(chosen, steps(trainer.plan)):
        assert step(pairs) == trainer.finish(trainer.step(*place))["loss"]
    assert np.array_equal(model.store.data, trainer.model.store.data)


def test_the_weights_come_back_from_the_rival(cpu_run, small_config):
    rival_module, config = importlib.import_module("rival"), small_config(N=2)
    model = Transformer(config.model, seed=1)
    rival = rival_module.Rival(config.model, 10)
    rival_module.copy_weights(model, rival)
    assert np.array_equal(cpu_run.ours_of(rival, config).store.data, model.store.data)


def test_without_dropout_both_learn_the_same(cpu_run, corpus):
    task = cpu_run.read_task(corpus, "val", 8000, quick=True)
    task = task._replace(config=configs.with_settings(task.config, {"P_drop": 0.0}))
    curve = np.array(cpu_run.run(task, threads=1, validate_every=2)["curve"])
    assert len(curve) > 5 and curve[-1, 4] < 0.75 * curve[0, 4]
    assert np.allclose(curve[:, 4], curve[:, 5], rtol=1e-3)


def test_totals_of_the_clock_and_what_a_disturbance_does_to_them(cpu_run):
    positions = np.array([[10, 20]] * 50)
    seconds = positions * [0.2, 0.3]
    seconds[7, 0] += 100  # somebody else's work, in our turn
    found = cpu_run.times(seconds, positions)
    assert found["seconds"] == {
        "sum": {"scratchformer": 200, "pytorch": 300},
        "quiet": {"scratchformer": 100, "pytorch": 300},
    }
    assert found["time_over_ours"] == {"sum": 1.5, "quiet": 3, "median_step": 3, "quartiles_of_steps": [3, 3]}


@pytest.mark.slow
def test_a_quick_run_writes_curves_and_scores_of_both(corpus, tmp_path):
    subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            BENCHMARKS / "cpu_run.py",
            "--quick",
            "--data",
            corpus,
            "--threads",
            "1",
            "--out",
            tmp_path,
        ],
        check=True,
    )
    text = (tmp_path / "cpu_run.json").read_text(encoding="utf-8")
    result = json.loads(text)
    assert str(corpus) not in text and str(tmp_path) not in text  # a path would say where, not what
    assert {"command", "seeds", "config", "threads", "commit", "hardware", "versions"} <= result.keys()
    assert result["threads_pinned"] == {"scratchformer": [1], "pytorch": 1}
    curve = np.array(result["curve"])
    assert curve.shape[1] == len(result["curve_columns"]) == 6
    assert curve[0, :4].tolist() == [0, 0, 0, 0] and curve[0, 4] == pytest.approx(curve[0, 5], rel=1e-4)
    assert curve[-1, :2].tolist() == [result["steps"], result["target_tokens"]] and result["target_tokens"] >= 3000
    assert (np.diff(curve[:, :4], axis=0) > 0).all()
    assert (curve[-1, 4:] < curve[0, 4:]).all()  # both have learnt
    assert curve[-1, 2:4] == pytest.approx(list(result["seconds"]["sum"].values()))
    assert result["bleu"]["signature"] == corpus_scores(["a"], ["a"]).bleu_signature
    for beam in ("beam 1", "beam 4"):
        assert result["bleu"][beam].keys() == {"scratchformer", "pytorch"}
    assert (tmp_path / "cpu_run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "nowhere"],
        ["--test", "test"],
        ["--threads", "0"],
        ["--target-tokens", "x"],
        ["--validate-every", "0"],
        ["--out", "nowhere"],
    ],
)
def test_bad_input_ends_in_one_line(cpu_run, arguments, corpus, tmp_path, monkeypatch, capsys):
    good = ["--quick", "--data", str(corpus), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["cpu_run.py", *good, *arguments])
    with pytest.raises(SystemExit) as stop:
        cpu_run.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("cpu_run.py: error: ")
