"""The recurrent layers: their gradients, how they keep the contract of layers, and PyTorch's as a second opinion."""

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from support.recurrent import LSTM, RNN, AdditiveAttention, left_of_a_nudge, sigmoid

B, D_IN, D_HIDDEN = 3, 5, 4
KINDS = {RNN: 1, LSTM: 2}
"""Layer -> how many arrays are its state"""


def make(kind, T, batch=B):
    """A layer whose biases are not zero, and its inputs."""
    random = np.random.default_rng(0)
    layer = kind(D_IN, D_HIDDEN, random, "float64")
    layer.input.bias.data += 0.5 * random.standard_normal(layer.input.bias.shape)
    shapes = [(batch, T, D_IN), *[(batch, D_HIDDEN)] * KINDS[kind]]
    return layer, *(random.standard_normal(shape) for shape in shapes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("T, batch", [(1, B), (2, B), (7, B), (4, 1)])
def test_backward_agrees_with_finite_differences(kind, T, batch):
    layer, *inputs = make(kind, T, batch=batch)
    report = gradcheck(layer, *inputs)
    assert report.passed, f"\n{report}"
    assert len(report) == len(inputs) + 3


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_first_state_it_begins_with_zeros(kind):
    layer, x, *states = make(kind, 4)
    dh = np.random.default_rng(1).standard_normal((B, 4, D_HIDDEN))
    h, cache = layer.forward(x)
    with_zeros, zeros_cache = layer.forward(x, *(0 * state for state in states))
    np.testing.assert_array_equal(h, with_zeros)
    for ours, theirs in zip(layer.backward(dh, cache), layer.backward(dh, zeros_cache), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_reading_on_from_the_last_state_is_reading_in_one_go():
    layer, x, h0 = make(RNN, 7)
    whole, _ = layer.forward(x, h0)
    beginning, _ = layer.forward(x[:, :3], h0)
    end, _ = layer.forward(x[:, 3:], beginning[:, -1])
    np.testing.assert_allclose(np.concatenate([beginning, end], axis=1), whole, rtol=1e-12)


def test_the_forget_gate_begins_open():
    layer = LSTM(D_IN, D_HIDDEN, np.random.default_rng(0))
    np.testing.assert_array_equal(layer.input.bias.data.reshape(4, D_HIDDEN), [[0] * 4, [1] * 4, [0] * 4, [0] * 4])


def test_sigmoid_does_not_overflow():
    np.testing.assert_allclose(sigmoid(np.array([-1e4, -1, 0, 1e4])), [0, 1 / (1 + np.e), 0.5, 1], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_of_a_nudge_is_what_a_nudge_leaves(kind):
    layer, x, *states = make(kind, 6, batch=1)
    zeros = [np.zeros_like(state) for state in states]
    before, left, size = layer.forward(x, *zeros)[0][0, -1], 0.0, 1e-6
    for k in range(D_HIDDEN):
        nudge = np.zeros((1, D_HIDDEN))
        nudge[0, k] = size
        moved = layer.forward(x, *zeros[:-1], zeros[-1] + nudge)[0][0, -1]
        left += ((moved - before) ** 2).sum() / size**2 / D_HIDDEN
    assert left_of_a_nudge(layer, x) == pytest.approx(left**0.5, rel=1e-4)
    assert not layer.input.weight.grad.any()


# Attention ------------------------------------------------------------------------------------------------------------


def test_additive_attention_is_its_definition():
    random = np.random.default_rng(0)
    layer, s, h = AdditiveAttention(6, 3, 5, random, "float64"), *(
        random.normal(size=(B, *n)) for n in ((4, 6), (7, 3))
    )
    W, U, v = layer.query.weight.data, layer.key.weight.data, layer.score.weight.data[:, 0]
    c, cache = layer.forward(s, h)
    for b, t in np.ndindex(s.shape[:2]):
        powers = np.exp([v @ np.tanh(s[b, t] @ W + state @ U) for state in h[b]])
        np.testing.assert_allclose(cache.weights[b, t], powers / powers.sum(), rtol=1e-12)
        np.testing.assert_allclose(c[b, t], powers @ h[b] / powers.sum(), rtol=1e-12, atol=1e-15)


def test_additive_attention_takes_large_scores():
    layer = AdditiveAttention(1, 1, 1, np.random.default_rng(0), "float64")
    for linear, weight in (layer.query, 0), (layer.key, 99), (layer.score, 1e4):
        linear.weight.data[...] = weight
    c, cache = layer.forward(np.ones((1, 1, 1)), np.array([[[2.0], [-3.0]]]))
    assert c.item() == 2 and cache.weights.tolist() == [[[1, 0]]]


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    layer, x, *states = make(kind, 6)
    twin = getattr(torch.nn, kind.__name__)(D_IN, D_HIDDEN, batch_first=True, dtype=torch.float64)
    W_x, b, W_h = layer.input.weight, layer.input.bias, layer.recurrent.weight
    pairs = [(W_x, twin.weight_ih_l0), (b, twin.bias_ih_l0), (W_h, twin.weight_hh_l0)]
    with torch.no_grad():
        for parameter, other in pairs:
            other.copy_(torch.tensor(parameter.data.T))
        twin.bias_hh_l0.zero_()
    inputs = [torch.tensor(array, requires_grad=True) for array in (x, *states)]
    first = tuple(state[None] for state in inputs[1:])
    theirs, _ = twin(inputs[0], first if kind is LSTM else first[0])
    ours, cache = layer.forward(x, *states)
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-12, atol=1e-14)

    dh = np.random.default_rng(1).standard_normal(ours.shape)
    theirs.backward(torch.tensor(dh))
    gradients = [*layer.backward(dh, cache), *(parameter.grad.T for parameter, _ in pairs)]
    expected = [*(array.grad for array in inputs), *(other.grad for _, other in pairs)]
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-11, atol=1e-13)
