"""The FLOPs that `flops` predicts are those of the products that the model asks for."""

import numpy as np
import pytest

from scratchformer.config import BASE, ModelConfig
from scratchformer.experiments.flops import training_flops, weights_per_token
from scratchformer.experiments.sizes import parameter_counts
from scratchformer.nn.loss import loss_backward
from scratchformer.nn.ops import ops_of
from scratchformer.nn.transformer import Transformer


@pytest.mark.parametrize("sizes", [{}, {"d_k": 3, "d_v": 5}, {"N": 1, "h": 1}, {"norm": "pre", "tied": "none"}])
def test_the_flops_of_a_step_are_those_of_its_matrix_products(sizes, monkeypatch):
    config = ModelConfig(**{"vocab_size": 23, "N": 2, "d_model": 12, "d_ff": 20, "h": 2} | sizes)
    random, n_pairs, S, T = np.random.default_rng(0), 4, 5, 7
    model, ops = Transformer(config, seed=0, dtype="float64"), ops_of(np.empty(0))
    counted = []

    def matmul(a, b, out=None):
        counted.append(2 * a.size * b.shape[-1])
        return np.matmul(a, b, out=out)

    monkeypatch.setattr(ops, "matmul", matmul)
    loss_backward(model, *(random.integers(4, 23, (n_pairs, length)) for length in (S, T, T)), 0.1, None, "others")
    assert sum(counted) == training_flops(config, n_pairs, S, T)


def test_every_matrix_weight_multiplies_a_source_or_a_target_token():
    """That is all parameters but biases and LayerNorms; the shared embedding counts once, as the output matrix."""
    matrices = sum(weights_per_token(BASE.model))
    counts = parameter_counts(BASE.model)
    vectors = counts["layer norms"] + 6 * (3 * 4 * 512 + 2 * (2048 + 512))
    assert matrices == sum(counts.values()) - vectors
