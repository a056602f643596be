"""The experiments behind the lessons run, do what they say, and wrote the results that the lessons read."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.optim import Adam

pytest.importorskip("threadpoolctl")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
EXPERIMENTS = ["attention_scaling", "norm_and_warmup"]


@pytest.fixture
def experiment(monkeypatch):
    """experiment("name") -> the script as a module"""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def layout(value):
    """The keys of nested dictionaries; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: layout(inner) for key, inner in value.items()}
    return [layout(item) for item in value[:1]] if isinstance(value, list) else None


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_writes_what_is_recorded_of_it(name, tmp_path):
    subprocess.run([sys.executable, "-W", "error", BENCHMARKS / f"{name}.py", "--quick", "--out", tmp_path], check=True)
    result = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    recorded = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert {"command", "provenance", "config", "seeds", "results"} <= result.keys()
    assert layout(result) == layout(recorded)
    assert len(result["results"]) == len(recorded["results"])
    assert recorded["command"] == f"python benchmarks/{name}.py"                   # all of it, not the quick one


def test_another_factor_of_the_scores_comes_with_its_gradient(experiment):
    attention = experiment("attention_scaling").DotProductAttention(0.7)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, length, 3, width)) for length, width in ((4, 6), (5, 6), (5, 7)))
    weights = np.exp(0.7 / np.sqrt(6) * np.einsum("bthk,bshk->bhts", q, k))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert np.allclose(attention.forward(q, k, v)[0], np.einsum("bhts,bshk->bthk", weights, v), rtol=1e-12)
    report = gradcheck(attention, q, k, v)
    assert report.passed, report


def test_smaller_weights_make_up_for_the_factor_until_the_first_step(experiment, small_config):
    module, config = experiment("attention_scaling"), small_config()
    ids = np.array([[7, 8, 9, 10], [11, 12, 13, 14]])
    paper, small, unscaled = (module.model_of(name, config).forward(ids, ids)[0]
                              for name in ("1/sqrt(d_k)", "1, smaller start", "1"))
    assert np.allclose(small, paper, atol=1e-5)
    assert not np.allclose(unscaled, paper, atol=1e-2)


def test_the_gradients_of_queries_and_keys_are_not_those_of_values(experiment, small_config):
    module = experiment("attention_scaling")
    model = module.model_of("1", small_config())
    for layer in module.attention_layers(model).values():
        for array, gradient in module.query_key_parameters(layer):
            array[...], gradient[...] = 0, 1
        n_marked = sum(parameter.grad.sum() for parameter in layer.parameters().values())
        assert n_marked == 2 * (16 + 1) * layer.h * layer.d_k                      # weights and biases; d_model = 16
    ids = np.array([[7, 8, 9, 10]])
    caches = list(module.attention_caches(model.forward(ids, ids)[1]))
    assert len(caches) == len(module.attention_layers(model))
    assert all(np.ptp(module.scores(cache)) == 0 for cache in caches)              # no queries, no keys


def test_other_steps_are_other_steps_of_queries_and_keys_alone(experiment, small_config):
    module, config = experiment("attention_scaling"), small_config()
    moved = []
    for ratio in (1.0, 0.5):
        model = module.model_of("1", config)
        before = model.store.data.copy()
        model.store.grad[...] = np.random.default_rng(0).standard_normal(before.size)
        module.AdamWithOtherSteps(model, config, ratio).step(0.01)
        shares = model.store.named_views(model.store.data - before)
        moved.append(np.array([np.abs(shares[f"decoder.layers.0.cross_attention.{name}"]).mean()
                               for name in ("q.weight", "q.bias", "output.weight")]))
    assert np.allclose(moved[0], 0.01, rtol=1e-3)
    assert np.allclose(moved[1], [0.005, 0.005, 0.01], rtol=1e-3)


def test_with_start_and_steps_both_smaller_training_goes_as_the_paper_s(experiment, begin):
    module, trainer = experiment("attention_scaling"), begin()
    paper, both, start = ([loss for _, loss in module.run(variant, trainer.data, trainer.config)["curve"]]
                          for variant in ("1/sqrt(d_k)", "1, both smaller", "1, smaller start"))
    assert both == pytest.approx(paper, rel=1e-4)
    assert start[-1] != pytest.approx(paper[-1], rel=1e-3)


def test_without_warm_up_only_the_rates_before_its_end_differ(experiment, small_config):
    module, config = experiment("norm_and_warmup"), small_config()                 # warmup = 20
    rates = {way: [module.learning_rate(step, way, 0.01, config) for step in (1, 10, 20, 80)]
             for way in ("warm-up", "none")}
    assert rates["warm-up"] == pytest.approx([0.0005, 0.005, 0.01, 0.005])
    assert rates["none"] == pytest.approx([0.01, 0.01, 0.01, 0.005])


def test_averaging_v_moves_no_weight_and_leaves_the_first_step_its_length(experiment, begin):
    module, trainer = experiment("norm_and_warmup"), begin()
    store, config, optimizer = trainer.model.store, trainer.config, Adam(trainer.model)
    weights = store.data.copy()
    module.average_v(trainer.model, optimizer, trainer.data, config)
    assert np.array_equal(store.data, weights)
    mean_square = (0.98 * optimizer.v + 0.02 * store.grad**2) / (1 - 0.98**21)     # warmup = 20, and this step
    optimizer.step(0.01 * module.correction_of_m(1, config))
    used = mean_square > 1e-10
    expected = -0.01 * store.grad[used] / np.sqrt(mean_square[used])
    assert used.mean() > 0.5
    assert np.allclose((store.data - weights)[used], expected, rtol=1e-2, atol=1e-5)


def test_training_ends_where_the_loss_is_no_number(experiment, begin):
    trainer, module = begin(), experiment("small_training")
    curve = module.train(trainer.model, Adam(trainer.model), trainer.data, trainer.config, lambda step: 1e30)
    assert module.numbers(curve)[-1][1] is None and curve[-1][0] < trainer.config.training.steps
    assert module.spread([1.0, None]) == {"mean": None, "lowest": None, "highest": None}
    assert module.spread([1.0, 2.0, 6.0]) == {"mean": 3.0, "lowest": 1.0, "highest": 6.0}
