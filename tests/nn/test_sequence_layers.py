"""Convolutions and restricted attention: their definitions, which position reaches which, and what padding does."""

import numpy as np
import pytest

from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.gradient_cases import FLOAT64
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.sequence_layers import (
    Convolution,
    RestrictedAttention,
    RestrictedSelfAttention,
    SeparableConvolution,
)

T, D = 9, 6
EXACTLY = {"rtol": 0, "atol": 1e-12}
CAUSAL = Mask(causal=True)

LAYERS = {
    "convolution": lambda random, size, dilation: Convolution(D, size, random, FLOAT64, dilation),
    "separable": lambda random, size, dilation: SeparableConvolution(D, size, random, FLOAT64, dilation),
    "restricted": lambda random, size, dilation: RestrictedSelfAttention(D, 2, size, random, FLOAT64),
}
EVERY_LAYER = pytest.mark.parametrize("name", LAYERS)

WINDOWS = [  # size, dilation, mask -> which positions are read, counted from one's own
    (3, 1, Mask(), [-1, 0, 1]),
    (4, 1, Mask(), [-1, 0, 1, 2]),
    (1, 1, CAUSAL, [0]),
    (4, 1, CAUSAL, [-3, -2, -1, 0]),
    (3, 2, Mask(), [-2, 0, 2]),
    (2, 3, Mask(), [-1, 2]),
    (3, 3, CAUSAL, [-6, -3, 0]),
    (2, T, CAUSAL, [-T, 0]),
]


@pytest.mark.parametrize(
    "name, size, dilation, mask, window",
    [(name, *case) for name in LAYERS for case in WINDOWS if name != "restricted" or case[1] == 1],
)
def test_a_nudge_reaches_the_positions_whose_window_it_is_in(random, name, size, dilation, mask, window):
    layer, x = LAYERS[name](random, size, dilation), random.normal(size=(1, T, D))
    before, _ = layer.forward(x, mask)
    for nudged in range(T):
        after, _ = layer.forward(x + (np.arange(T) == nudged)[:, None], mask)
        reached = [nudged - offset for offset in window if 0 <= nudged - offset < T]
        assert np.flatnonzero((before != after)[0].any(axis=-1)).tolist() == sorted(reached)


@pytest.mark.parametrize("size, dilation, mask, window", WINDOWS)
def test_convolutions_are_their_definitions(random, size, dilation, mask, window):
    x = random.normal(size=(2, T, D))
    full, separable = (LAYERS[name](random, size, dilation) for name in ("convolution", "separable"))
    full.bias.data[...], separable.pointwise.bias.data[...] = random.normal(size=(2, D))
    W, w, pointwise = full.weight.data, separable.weight.data, separable.pointwise
    for t in range(T):
        read = [(i, x[:, t + offset]) for i, offset in enumerate(window) if 0 <= t + offset < T]
        y = full.bias.data + sum(vectors @ W[i] for i, vectors in read)
        np.testing.assert_allclose(full.forward(x, mask)[0][:, t], y, **EXACTLY)
        y = sum(vectors * w[i] for i, vectors in read) @ pointwise.weight.data + pointwise.bias.data
        np.testing.assert_allclose(separable.forward(x, mask)[0][:, t], y, **EXACTLY)


class Banded(Ops):
    """The NumPy operations, but attention is restricted to a band by a mask of T x T."""

    def __init__(self, band):
        super().__init__(np)
        self.band = band

    def masked_softmax(self, scores, scale, key_lengths, causal):
        return super().masked_softmax(np.where(self.band, scores, -np.inf), scale, key_lengths, causal)


@pytest.mark.parametrize("lengths", [None, np.array([T, 0, 4])], ids=["full", "ragged"])
@pytest.mark.parametrize("size, mask, window", [(size, mask, window) for size, d, mask, window in WINDOWS if d == 1])
def test_restricted_attention_is_self_attention_with_a_band_mask(random, size, mask, window, lengths):
    mask = mask._replace(key_lengths=lengths)
    restricted, full = LAYERS["restricted"](random, size, 1), SelfAttention(D, 2, random, FLOAT64)
    for name, parameter in full.parameters().items():
        parameter.data[...] = restricted.parameters()[name].data
    x, dy = random.normal(size=(2, 3, T, D))
    y, cache = restricted.forward(x, mask)
    dx = restricted.backward(dy, cache)
    with using(Banded(np.isin(np.arange(T) - np.arange(T)[:, None], window))):
        expected, cache = full.forward(x, mask)
        expected_dx = full.backward(dy, cache)
    np.testing.assert_allclose(y, expected, **EXACTLY)
    np.testing.assert_allclose(dx, expected_dx, **EXACTLY)
    for name, parameter in full.parameters().items():
        np.testing.assert_allclose(restricted.parameters()[name].grad, parameter.grad, **EXACTLY)


@pytest.mark.parametrize("mask, window", [(Mask(), [-1, 0, 1]), (CAUSAL, [-2, -1, 0])], ids=["centred", "causal"])
def test_scores_far_below_zero_weigh_as_in_dense_attention(random, mask, window):
    """One number that is added to all scores of a query changes no weight."""
    mask = mask._replace(key_lengths=np.array([T, 0, 4]))
    q, k, v, dy = random.normal(size=(4, 3, T, 2, 4))
    q[..., 0], k[..., 0] = 1e3, -1e3
    y, cache = RestrictedAttention(3).forward(q, k, v, mask)
    gradients = RestrictedAttention(3).backward(dy, cache)
    q[..., 0] = k[..., 0] = 0
    full = ScaledDotProductAttention()
    with using(Banded(np.isin(np.arange(T) - np.arange(T)[:, None], window))):
        expected, cache = full.forward(q, k, v, mask)
        expected_gradients = full.backward(dy, cache)
    assert (expected[0] != 0).all()
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-8)
    for gradient, wanted in zip(gradients, expected_gradients):
        np.testing.assert_allclose(gradient[..., 1:], wanted[..., 1:], rtol=0, atol=1e-8)


@EVERY_LAYER
@pytest.mark.parametrize("mask", [Mask(), CAUSAL], ids=["centred", "causal"])
def test_padding_and_the_rest_of_the_batch_change_nothing(random, name, mask):
    layer, lengths, x = LAYERS[name](random, 3, 2), np.array([T, 0, 4]), random.normal(size=(3, T, D))
    y, cache = layer.forward(x, mask._replace(key_lengths=lengths))
    real = np.arange(T) < lengths[:, None]
    dx = layer.backward(random.normal(size=y.shape) * real[..., None], cache)
    assert np.isfinite(y).all() and (dx[~real] == 0).all() and (dx[real] != 0).all()

    other_padding, _ = layer.forward(np.where(real[..., None], x, 99), mask._replace(key_lengths=lengths))
    assert np.array_equal(other_padding[real], y[real])
    more_padding, _ = layer.forward(np.pad(x, ((0, 0), (0, 5), (0, 0))), mask._replace(key_lengths=lengths))
    np.testing.assert_allclose(more_padding[:, :T][real], y[real], **EXACTLY)
    for row in (0, 2):
        alone, _ = layer.forward(x[[row], : lengths[row]], mask)
        np.testing.assert_allclose(alone[0], y[row, : lengths[row]], **EXACTLY)


@EVERY_LAYER
def test_a_window_of_no_positions_is_refused(random, name):
    with pytest.raises(ValueError, match="=0: must be at least 1"):
        LAYERS[name](random, 0, 1)


def test_a_dilation_of_0_is_refused(random):
    with pytest.raises(ValueError, match="dilation=0: must be at least 1"):
        Convolution(D, 3, random, dilation=0)


def test_scores_outside_the_window_fit_into_half_precision(random):
    x = random.normal(size=(2, 5, 4))
    layer = RestrictedSelfAttention(4, 2, 3, random, "float16")
    y, _ = layer.forward(x.astype("float16"))
    for parameter in layer.parameters().values():
        parameter.data = parameter.data.astype("float64")
    np.testing.assert_allclose(y, layer.forward(x)[0], atol=0.01)
