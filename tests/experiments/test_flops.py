"""The FLOPs that `flops` predicts are those of the products that the model asks for."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.config import BASE, PRESETS, ModelConfig
from scratchformer.doctor.setup_probes import random_batch
from scratchformer.experiments.flops import training_flops, weights_per_token
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.models import new_model
from scratchformer.nn.ops import ops_of
from scratchformer.nn.sizes import parameter_counts


@pytest.fixture
def counted(monkeypatch):
    """The FLOPs of each product that NumPy is asked for, appended one after another."""
    found = []

    def matmul(a, b, out=None):
        found.append(2 * a.size * b.shape[-1])
        return np.matmul(a, b, out=out)

    monkeypatch.setattr(ops_of(np.empty(0)), "matmul", matmul)
    return found


@pytest.mark.parametrize("sizes", [{}, {"d_k": 3, "d_v": 5}, {"N": 1, "h": 1}, {"norm": "pre", "tied": "none"}])
def test_the_flops_of_a_step_are_those_of_its_matrix_products(sizes, counted):
    config = ModelConfig(**{"vocab_size": 23, "N": 2, "d_model": 12, "d_ff": 20, "h": 2} | sizes)
    random, n_pairs, S, T = np.random.default_rng(0), 4, 5, 7
    source, target, targets = (random.integers(4, 23, (n_pairs, length)) for length in (S, T, T))
    batch_loss_backward(new_model(config, dtype="float64"), (source, target), targets)
    assert sum(counted) == training_flops(config, n_pairs, S, T)


@pytest.mark.parametrize(
    "preset, S, T",
    [("gpt-tiny", 0, 9), ("bert-tiny", 0, 9), ("antecedent", 9, 1), pytest.param("vit-digits", 17, 1, id="vit-digits")],
)
def test_the_flops_of_models_with_one_stack(preset, S, T, counted):
    config = replace(PRESETS[preset].model, N=2, P_drop=0.0)
    inputs, targets = random_batch(config, 3, 9, np.random.default_rng(0))
    batch_loss_backward(new_model(config, dtype="float64"), inputs, targets)
    assert sum(counted) == pytest.approx(training_flops(config, 3, S, T), rel=0.01)


def test_every_matrix_weight_multiplies_a_source_or_a_target_token():
    """That is all parameters but biases and LayerNorms; the shared embedding counts once, as the output matrix."""
    matrices = sum(weights_per_token(BASE.model))
    counts = parameter_counts(BASE.model)
    vectors = counts["layer norms"] + 6 * (3 * 4 * 512 + 2 * (2048 + 512))
    assert matrices == sum(counts.values()) - vectors
