"""Do the shift of sinusoids, rotary positions and ALiBi compute what they should, with the right gradient?"""

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import PositionalEncoding, sinusoids
from scratchformer.nn.transformer import Transformer
from support.positions import (
    AlibiAttention,
    RotaryAttention,
    Shifted,
    alibi_bias,
    alibi_slopes,
    give_positions,
    rotated,
    shift_matrix,
)

B, T, S, H, K, D_V = 3, 4, 6, 2, 8, 5
CONFIG = ModelConfig(vocab_size=30, N=2, d_model=16, d_ff=24, h=4, P_drop=0.0)


@pytest.fixture
def random():
    return np.random.default_rng(0)


def queries_keys_values(random):
    return [random.normal(size=(B, length, H, width)) for length, width in ((T, K), (S, K), (S, D_V))]


# Sinusoids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [-5, 0, 1, 12])
@pytest.mark.parametrize("d_model", [2, 10])
def test_one_matrix_shifts_every_position(k, d_model):
    np.testing.assert_allclose(
        sinusoids(20, 30, d_model) @ shift_matrix(k, d_model), sinusoids(20 + k, 30, d_model), rtol=0, atol=1e-13
    )


def test_it_is_a_rotation_and_steps_add_up():
    step, back = shift_matrix(4, 6), shift_matrix(-4, 6)
    np.testing.assert_allclose(step.T, back, rtol=0, atol=1e-15)
    np.testing.assert_allclose(step @ shift_matrix(3, 6), shift_matrix(7, 6), rtol=0, atol=1e-14)
    np.testing.assert_allclose(shift_matrix(1, 4)[:2, :2], [[0.54030231, -0.84147098], [0.84147098, 0.54030231]])


# Rotary positions -----------------------------------------------------------------------------------------------------


def test_a_rotation_is_that_of_complex_numbers(random):
    x, places = random.normal(size=(B, T, H, K)), np.array([0, 3, -2, 50])
    theta = 10000.0 ** (-np.arange(0, K, 2) / K)
    expected = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * places[:, None, None] * theta)
    assert np.allclose(rotated(x, places)[..., 0::2], expected.real, rtol=0, atol=1e-13)
    assert np.allclose(rotated(x, places)[..., 1::2], expected.imag, rtol=0, atol=1e-13)


# ALiBi ----------------------------------------------------------------------------------------------------------------


def test_slopes_are_the_published_ones():
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert np.allclose(alibi_slopes(16)[:2], [2**-0.5, 2**-1])


def test_the_last_query_stands_at_the_last_key():
    assert alibi_bias(2, 3, 1)[0].tolist() == [[-1 / 256, 0, -1 / 256], [-2 / 256, -1 / 256, 0]]


def test_alibi_is_its_definition(random):
    q, k, v = queries_keys_values(random)
    scores = np.einsum("bthk,bshk->bhts", q, k) / np.sqrt(K)
    for h, slope in enumerate([2**-4, 2**-8]):
        scores[:, h] -= slope * np.abs(np.arange(S - T, S)[:, None] - np.arange(S))
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    assert np.allclose(AlibiAttention().forward(q, k, v)[0], np.einsum("bhts,bshv->bthv", weights, v), rtol=1e-12)


# Both -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", [RotaryAttention, AlibiAttention])
@pytest.mark.parametrize(
    "mask", [Mask(), Mask(causal=True), Mask(np.array([6, 2, 0])), Mask(np.array([4, 6, 5]), True)]
)
@pytest.mark.parametrize("rng", [None, DropoutKey(0, 1)])
def test_backward_agrees_with_finite_differences(random, attention, mask, rng):
    report = gradcheck(attention(0.3), *queries_keys_values(random), mask, rng=rng)
    assert len(report) == 3 and report.passed, report


def test_shifted_positions_begin_later(random):
    x = random.normal(size=(B, T, K))
    assert (Shifted(PositionalEncoding(), 4).forward(x, 2)[0] == x + sinusoids(6, T, K)).all()


# In a model -----------------------------------------------------------------------------------------------------------


def ids_of(random):
    source, target = random.integers(5, 30, (B, S)), random.integers(5, 30, (B, T))
    source[0, 4:] = 0
    return source, target


def model_with(kind):
    model = Transformer(CONFIG, seed=0, dtype="float64")
    give_positions(model, kind)
    return model


@pytest.mark.parametrize("kind", ["none", "alibi", "rotary"])
def test_a_model_writes_word_by_word_as_it_reads_at_once(random, kind):
    source, target = ids_of(random)
    model = model_with(kind)
    at_once, _ = model.forward(source, target)
    state, steps = begin_decoding(model, source), []
    for t in range(T):
        logits, state = decoding_step(model, target[:, t : t + 1], state)
        steps.append(logits[:, 0])
    assert np.allclose(np.stack(steps, axis=1), at_once, rtol=0, atol=1e-12)


def test_alibi_in_an_encoder_knows_left_from_right_by_the_mark_at_the_end_only(random):
    source, target = ids_of(random)
    backwards, but_the_last = source[1:, ::-1], np.roll(source[1:, ::-1], -1, axis=1)
    for kind, mirrored, known in (
        ("alibi", backwards, False),
        ("alibi", but_the_last, True),
        ("rotary", backwards, True),
    ):
        model = model_with(kind)
        moved = np.abs(model.forward(mirrored, target[1:])[0] - model.forward(source[1:], target[1:])[0]).max()
        assert (moved > 1e-3) == known
