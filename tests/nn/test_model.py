"""The model is the paper's: its sizes, and known values that its pieces must have."""

import math

import numpy as np
import pytest

from scratchformer.config import TABLE3, ModelConfig, preset
from scratchformer.doctor.findings import CheckFailed
from scratchformer.doctor.layer_probes import check_gradient
from scratchformer.nn.attention import Mask, SelfAttention
from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.gradient_cases import FLOAT64, SMALL, GradientCase
from scratchformer.nn.layers import Linear, PositionalEncoding, sinusoids
from scratchformer.nn.loss import batch_loss
from scratchformer.nn.next_word import FIRST_TAG, NextWord
from scratchformer.nn.optim import clip_by_global_norm_inplace, noam
from scratchformer.nn.sequence_layers import RestrictedAttention, RestrictedSelfAttention
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import N_SPECIALS

# The number of parameters (Table 3) -----------------------------------------------------------------------------------

BASE_SIZE = 63_082_496
SIZES = {
    "base": BASE_SIZE,
    "big": 214_245_376,
    **dict.fromkeys(TABLE3, BASE_SIZE),
    "B1": 55_990_784,
    "B2": 58_354_688,
    "C1": 33_656_832,
    "C2": 48_369_664,
    "C3": 77_795_328,
    "C4": 26_834_944,
    "C5": 163_889_152,
    "C6": 50_487_296,
    "C7": 88_272_896,
    "E": 63_344_640,
}
"""With a vocabulary of 37,000 and biases everywhere. Table 3 prints most counts 2 to 4 million higher: its models had a
larger, padded vocabulary."""


class OneByteWeights:
    """Stands in for the random generator, so that a model of 200 million parameters costs next to nothing."""

    def uniform(self, low, high, shape):
        return np.broadcast_to(np.int8(0), shape)

    normal = uniform


@pytest.mark.parametrize(
    "row", ["base", *(pytest.param(row, marks=pytest.mark.slow) for row in SIZES if row != "base")]
)
def test_number_of_parameters(row, monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", lambda seed: OneByteWeights())
    config = preset(row).model
    assert Transformer(config, dtype="float16").store.data.size == count_by_hand(config) == SIZES[row]


def count_by_hand(config):
    """Written from Figure 1 alone: every box and how often it occurs."""
    d_model, heads = config.d_model, config.h
    queries = keys = heads * config.d_k * (d_model + 1)  # + 1: the bias
    values = heads * config.d_v * (d_model + 1)
    output = d_model * (heads * config.d_v + 1)
    attention = queries + keys + values + output
    feed_forward = config.d_ff * (d_model + 1) + d_model * (config.d_ff + 1)
    norm = 2 * d_model
    encoder_layer = attention + norm + feed_forward + norm
    decoder_layer = attention + norm + attention + norm + feed_forward + norm
    positions = 2 * config.max_positions * d_model if config.positions == "learned" else 0
    return config.vocab_size * d_model + positions + config.N * (encoder_layer + decoder_layer)


@pytest.mark.parametrize(
    "changes, more",
    [
        ({"tied": "target"}, 11 * 6),
        ({"tied": "none"}, 2 * 11 * 6),  # V D for each matrix of its own
        ({"norm": "pre"}, 2 * 2 * 6),  # one more LayerNorm per stack
        ({"attention_bias": False}, -2 * 3 * (2 * (7 + 7 + 8) + 6)),  # N attentions (H (2 d_k + d_v) + D)
    ],
    ids=str,
)
def test_what_a_choice_costs_in_parameters(new_model, changes, more):
    assert new_model(**changes).store.data.size - new_model().store.data.size == more


# The first weights ----------------------------------------------------------------------------------------------------


def test_projections_of_one_input_are_initialised_as_one_matrix(random):
    assert SelfAttention(6, 2, random, d_k=7, d_v=8).qkv.weight.shape == (6, 2 * (7 + 7 + 8))


def test_a_new_model_knows_nothing(random):
    """With logits of unit variance, as these first weights give them, E[loss] = ln V + 1/2."""
    V = 1000
    model = Transformer(ModelConfig(vocab_size=V, N=2, d_model=64, d_ff=128, h=4))
    ids = random.integers(1, V, (16, 20))
    loss_sum, n_tokens = batch_loss(model, (ids, ids), random.integers(1, V, ids.shape))
    assert loss_sum / n_tokens == pytest.approx(math.log(V) + 0.5, abs=0.2)


# The pieces against their definitions ---------------------------------------------------------------------------------


def test_a_text_encoder_predicts_words_with_their_embedding_and_classes_with_vectors_of_their_own(new_model):
    ids, types = np.array([[2, 5, 1]]), np.array([[0, 0, 0]])
    words, untied, classes = (
        new_model(architecture="encoder", **of) for of in ({}, {"tied": "none"}, {"n_classes": 2})
    )
    assert words.unembedding.weight is words.embedding.weight
    assert untied.unembedding.weight is not untied.embedding.weight
    assert words.forward(ids, types)[0].shape == untied.forward(ids, types)[0].shape == (1, 3, SMALL.vocab_size)
    assert classes.forward(ids, types)[0].shape == (1, 1, 3)
    for name, weight in words.parameters().items():  # what fine-tuning takes from pretraining
        assert classes.parameters()[name].shape == weight.shape


def test_positions_have_known_values():
    """The three pairs of six channels turn by 1, 10000^(-1/3) = 0.0464 and 10000^(-2/3) = 0.00215 per position."""
    np.testing.assert_allclose(
        sinusoids(1, 1, 6)[0], [0.84147098, 0.54030231, 0.04639922, 0.99892298, 0.00215443, 0.99999768], atol=1e-8
    )


def test_a_fixed_offset_turns_every_position_alike():
    """PE(pos + k) is a linear function of PE(pos) (paper §3.5): each pair of channels is turned by its own angle."""
    d_model, k = 16, 7
    turn = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        angle = k / 10000 ** (i / d_model)
        turn[i : i + 2, i : i + 2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    np.testing.assert_allclose(sinusoids(k, 50, d_model), sinusoids(0, 50, d_model) @ turn, rtol=0, atol=1e-12)


def test_the_table_of_positions_fits_what_it_is_added_to():
    layer = PositionalEncoding()
    for first, (T, D), dtype in (
        (0, (3, 8), "f8"),
        (0, (3, 6), "f8"),
        (200, (2, 6), "f8"),
        (0, (3, 1), "f4"),
        (5, (3, 8), "f4"),
    ):
        y, _ = layer.forward(np.zeros((1, T, D), dtype), first)
        assert y.dtype == dtype and np.array_equal(y[0], sinusoids(first, T, D).astype(dtype))


# The optimizer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm, expected", [(1.0, [0.6, 0.8]), (5.0, [3.0, 4.0]), (7.0, [3.0, 4.0])])
def test_clipping_shortens_only_what_is_too_long(max_norm, expected):
    gradient = np.array([3.0, 4.0], "float32")
    clip_by_global_norm_inplace(gradient, 5.0, max_norm)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    assert gradient.dtype == np.float32


def test_the_learning_rate_of_the_paper_has_its_peak_after_the_warm_up():
    assert noam(4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert noam(3999) < noam(4000) > noam(4001)


# Told the next word ---------------------------------------------------------------------------------------------------


def test_the_next_word_is_the_first_without_a_tag():
    """Ids 4, 5 and 6 are tags: each raises k by one at its own position. The source has three words and an end."""
    layer = NextWord(n_tags=3)
    k = layer.count(np.array([[2, 9, 4, 7, 5, 10, 6, 3]]))
    assert k.tolist() == [[0, 0, 1, 1, 2, 2, 3, 3]] and FIRST_TAG == N_SPECIALS
    memory = (
        100.0 * np.arange(1, 6)[None, :, None] * np.ones(2)
    )  # (1, 5, 2): row i holds 100 (i + 1); the last is padding
    y, _ = layer.forward(np.zeros((1, 8, 2)), memory, k + 1, Mask(np.array([4])))
    rows = [1, 1, 2, 2, 3, 3, 3, 3]  # k + 1, but no row beyond the end of the source
    np.testing.assert_allclose(y[0], [[100 * (i + 1) + math.sin(i), 100 * (i + 1) + math.cos(i)] for i in rows])


# Dropout: the statistics ----------------------------------------------------------------------------------------------


KEY = DropoutKey(seed=1, step=2, shard=3, site=4)


@pytest.mark.parametrize("change", [{"seed": 9}, {"step": 9}, {"shard": 9}, {"site": 9}], ids=str)
def test_a_different_key_draws_a_different_mask(change):
    shape, P_drop = (100, 1000), 0.3
    mask, other = KEY.keep(shape, P_drop), KEY._replace(**change).keep(shape, P_drop)
    agreement = P_drop**2 + (1 - P_drop) ** 2  # of independent masks
    assert (mask == other).mean() == pytest.approx(agreement, abs=0.01)


@pytest.mark.parametrize("change", [{"seed": 2}, {"step": 3}, {"shard": 4}, {"site": 5}], ids=str)
def test_the_next_key_does_not_draw_a_shifted_copy_of_the_mask(change):
    """A counter-based generator does so if what names the draw sits where the generator counts."""
    masks = [key.keep((10_000,), 0.3).tobytes() for key in (KEY, KEY._replace(**change))]
    assert masks[0][:100] not in masks[1] and masks[1][:100] not in masks[0]


@pytest.mark.parametrize("P_drop", [0.1, 0.3, 0.5, 0.9])
def test_units_are_dropped_at_their_rate_and_the_expectation_is_preserved(P_drop):
    n = 1_000_000
    kept = KEY.keep((n,), P_drop)
    five_sigma = 5 * (P_drop * (1 - P_drop) / n) ** 0.5
    assert abs(1 - kept.mean() - P_drop) < five_sigma
    assert abs((kept * keep_scale(P_drop)).mean() - 1) < five_sigma / (1 - P_drop)


# Masks and windows ----------------------------------------------------------------------------------------------------


def test_the_causal_mask_is_a_triangle():
    assert np.array_equal(Mask(causal=True).as_array(4, 4)[0, 0], np.tril(np.ones((4, 4), bool)))


def test_the_last_query_of_a_causal_mask_sees_all_keys():
    assert np.array_equal(Mask(causal=True).as_array(2, 4)[0, 0], [[True, True, True, False], [True] * 4])


@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True)], ids=["centred", "causal"])
def test_scores_far_below_zero_weigh_as_others(random, mask):
    """One number that is added to all scores of a query changes no weight."""
    T, layer = 9, RestrictedAttention(3)
    mask = mask._replace(key_lengths=np.array([T, 0, 4]))
    q, k, v, dy = random.normal(size=(4, 3, T, 2, 4))
    results = []
    for number in (1e3, 0):
        q[..., 0], k[..., 0] = number, -number
        y, cache = layer.forward(q, k, v, mask)
        results.append([y, *(gradient[..., 1:] for gradient in layer.backward(dy, cache))])
    assert (results[0][0][0] != 0).all()
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def test_scores_outside_the_window_fit_into_half_precision(random):
    x = random.normal(size=(2, 5, 4))
    layer = RestrictedSelfAttention(4, 2, 3, random, "float16")
    y, _ = layer.forward(x.astype("float16"))
    for parameter in layer.parameters().values():
        parameter.data = parameter.data.astype("float64")
    np.testing.assert_allclose(y, layer.forward(x)[0], atol=0.01)


# The table of checks would notice -------------------------------------------------------------------------------------


class OverwritesGradient(Linear):
    def backward(self, dy, cache):
        self.weight.grad[...] = 0
        return super().backward(dy, cache)


class CutsGradientLoose(Linear):
    def backward(self, dy, cache):
        self.weight.grad = self.weight.grad.copy()
        return super().backward(dy, cache)


@pytest.mark.parametrize("kind", [OverwritesGradient, CutsGradientLoose])
def test_a_gradient_that_is_assigned_would_be_noticed(kind, random):
    case = GradientCase("Linear", "", lambda: (kind(6, 9, random, FLOAT64), (random.normal(size=(3, 6)),), None))
    with pytest.raises(CheckFailed):
        check_gradient(case)
