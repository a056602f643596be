"""The task of lesson 03, the ways to look back, and the gradients of the model as a whole."""

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import cross_entropy
from support.recurrent import RNN, AdditiveAttention
from support.reversal import SYMBOLS, DotAttention, EncoderDecoder, PlainMean, pairs, right, train

N = 5
KINDS = [
    dict(),
    dict(look=AdditiveAttention),
    dict(look=PlainMean),
    dict(look=DotAttention, positions="ed"),
    dict(look=AdditiveAttention, encoder=Linear, decoder=Linear, positions="ed"),
    dict(look=AdditiveAttention, encoder=RNN, decoder=Linear, positions="d"),
]


def test_the_answer_is_the_source_turned_round_and_what_is_read_is_one_position_behind():
    source, read, target = pairs(np.random.default_rng(0), 3, N)
    np.testing.assert_array_equal(target, source[:, ::-1])
    np.testing.assert_array_equal(read[:, 1:], target[:, :-1])
    assert not read[:, 0].any() and source.min() >= 1 and source.max() <= SYMBOLS


@pytest.mark.parametrize("kind", [PlainMean, DotAttention])
def test_backward_agrees_with_finite_differences(kind):
    random = np.random.default_rng(0)
    layer = kind(4, 5, 6, random, "float64")
    report = gradcheck(layer, random.standard_normal((2, 3, 4)), random.standard_normal((2, 7, 5)))
    assert report.passed, f"\n{report}"


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_the_whole_model_has_the_gradient_of_its_loss(options):
    model = EncoderDecoder(N, seed=0, d=6, **options)
    source, read, target = pairs(np.random.default_rng(0), 3, N)

    def loss():
        return cross_entropy(model.forward(source, read)[0], target)[0]

    scores, cache = model.forward(source, read)
    model.zero_grad()
    assert model.backward(cross_entropy(scores, target)[2], cache) is None
    for name, parameter in model.parameters().items():
        direction = np.random.default_rng(1).standard_normal(parameter.shape)
        middle = parameter.data.copy()
        parameter.data[...] = middle + 1e-5 * direction
        above = loss()
        parameter.data[...] = middle - 1e-5 * direction
        below = loss()
        parameter.data[...] = middle
        np.testing.assert_allclose(
            (parameter.grad * direction).sum(), (above - below) / 2e-5, rtol=1e-6, atol=1e-7, err_msg=name
        )


def test_positions_are_given_by_a_second_one():
    model = EncoderDecoder(N, seed=0, positions="e")
    rows = model.rows(np.full((2, N), 3), True)
    assert rows.shape == (2, N, 1 + SYMBOLS + N)
    np.testing.assert_array_equal(rows[1, 2].nonzero()[0], [3, 1 + SYMBOLS + 2])
    assert model.rows(np.full((2, N), 3), False).shape == (2, N, 1 + SYMBOLS)


def test_the_weights_of_a_position_sum_to_one():
    model = EncoderDecoder(N, seed=0, look=AdditiveAttention)
    weights = model.weights(*pairs(np.random.default_rng(0), 3, N)[:2])
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((3, N)))


def test_it_learns():
    model = EncoderDecoder(2, seed=0, look=AdditiveAttention, encoder=Linear, decoder=Linear, positions="ed", d=16)
    before = right(model).mean()
    assert right(train(model, steps=150)).mean() > 0.95 > before
