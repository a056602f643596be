"""The model is the paper's: its sizes, its first weights, its loss, its optimizer, each against a second definition."""

import math
from collections import Counter

import numpy as np
import pytest

from scratchformer.config import TABLE3, ModelConfig, preset
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradient_cases import FLOAT64, SMALL, padded_ids, small
from scratchformer.nn.layers import Embedding, LayerNorm, Linear, PositionalEncoding, Unembedding, sinusoids
from scratchformer.nn.loss import cross_entropy, forward_loss, loss_backward
from scratchformer.nn.next_word import FIRST_TAG, NextWord
from scratchformer.nn.ops import Ops, ops_of
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace, noam
from scratchformer.nn.residual import PostNorm, PreNorm
from scratchformer.nn.text_encoder import TokenTypes
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import N_SPECIALS

SPREADS = pytest.mark.parametrize("spread", ["others", "uniform"])

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


@pytest.mark.parametrize("tied, matrices", [("all", 1), ("target", 2), ("none", 3)])
def test_tied_embeddings_are_one_parameter(new_model, tied, matrices):
    model = new_model(tied=tied)
    weights = [layer.weight for layer in (model.source_embedding, model.target_embedding, model.unembedding)]
    assert len(set(map(id, weights))) == matrices
    assert (model.target_embedding.weight is model.unembedding.weight) == (tied != "none")


def test_the_store_holds_every_parameter_once(new_model):
    model = new_model()
    views = model.store.named_views(model.store.data)
    assert list(views) == list(model.parameters())
    for name, parameter in model.parameters().items():
        assert np.shares_memory(views[name], parameter.data) and np.array_equal(views[name], parameter.data)
    assert sum(view.size for view in views.values()) == model.store.data.size


# The first weights ----------------------------------------------------------------------------------------------------


def test_first_weights_have_their_distributions():
    D, V = 64, 500
    model = Transformer(ModelConfig(vocab_size=V, N=1, d_model=D, d_ff=256, h=4, positions="learned"))
    seen = Counter()
    for name, parameter in model.parameters().items():
        data, kind = parameter.data, name.split(".")[-1]
        seen[kind] += 1
        if kind in ("bias", "beta"):
            assert (data == 0).all()
        elif kind == "gamma":
            assert (data == 1).all()
        elif "embedding" in name or "positions" in name:
            assert data.std() == pytest.approx(D**-0.5, rel=0.02) and abs(data.mean()) < 0.01
        else:
            limit = math.sqrt(6 / sum(data.shape))  # Glorot, of the fused shape
            assert 0.99 * limit < np.abs(data).max() <= limit
            assert data.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)
    assert set(seen) == {"weight", "bias", "gamma", "beta"}


def test_projections_of_one_input_are_initialised_as_one_matrix(random):
    assert SelfAttention(6, 2, random, d_k=7, d_v=8).qkv.weight.shape == (6, 2 * (7 + 7 + 8))


def test_a_seed_decides_the_weights_whatever_their_type():
    first, again, other = (Transformer(SMALL, seed).store.data for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.dtype == np.float32
    assert np.array_equal(first, Transformer(SMALL, 1, FLOAT64).store.data.astype("float32"))


def test_a_new_model_knows_nothing(random):
    """With logits of unit variance, as these first weights give them, E[loss] = ln V + 1/2."""
    V = 1000
    model = Transformer(ModelConfig(vocab_size=V, N=2, d_model=64, d_ff=128, h=4))
    ids = random.integers(1, V, (16, 20))
    loss_sum, n_tokens = forward_loss(model, ids, ids, random.integers(1, V, ids.shape))
    assert loss_sum / n_tokens == pytest.approx(math.log(V) + 0.5, abs=0.2)


# What cannot be built -------------------------------------------------------------------------------------------------


def test_heads_must_divide_the_width_or_be_given_a_size(random):
    with pytest.raises(ValueError, match="d_model=6 is not a multiple of h=4: give d_k and d_v"):
        SelfAttention(6, 4, random, d_k=7)
    assert SelfAttention(6, 4, random, d_k=7, d_v=8).output.weight.shape == (4 * 8, 6)


def test_parameters_are_floating_point_numbers():
    with pytest.raises(ValueError, match="floating-point numbers, not int32"):
        Transformer(SMALL, dtype="int32")


def test_more_children_than_a_key_can_tell_apart():
    key = DropoutKey(seed=0, step=1)
    assert key.child(0) != key.child(1022)
    for index in (-1, 1023):
        with pytest.raises(ValueError, match=f"child {index}"):
            key.child(index)


def test_arrays_of_an_unknown_library_are_named():
    with pytest.raises(TypeError, match="no operations in use for arrays of type builtins.list"):
        ops_of([1.0])


# The pieces against their definitions ---------------------------------------------------------------------------------


def test_words_become_scaled_rows_and_padding_becomes_zeros(random):
    layer = Embedding(Embedding.new_weight(11, 6, random, FLOAT64))
    x, _ = layer.forward(np.array([[4, 0, 4]]))
    row = math.sqrt(6) * layer.weight.data[4]
    np.testing.assert_allclose(x, [[row, np.zeros(6), row]], rtol=1e-15)


def test_logits_are_unscaled_products_with_the_rows(random):
    layer, y = Unembedding(Embedding.new_weight(11, 6, random, FLOAT64)), random.normal(size=(3, 4, 6))
    logits, _ = layer.forward(y)
    for b, t, v in np.ndindex(3, 4, 11):
        assert logits[b, t, v] == pytest.approx(y[b, t] @ layer.weight.data[v], rel=1e-12)


def test_a_token_type_adds_its_vector(random):
    layer, x = TokenTypes(6, random, FLOAT64), random.normal(size=(2, 3, 6))
    first, second = layer.weight.data
    y, _ = layer.forward(x, np.array([[0, 0, 1], [1, 0, 0]]))
    np.testing.assert_allclose(y - x, [[first, first, second], [second, first, first]], rtol=0, atol=1e-12)


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


def test_layer_norm_is_its_definition(random):
    layer, x = LayerNorm(6, FLOAT64, eps=0.1), random.normal(size=(3, 4, 6))
    layer.gamma.data[...], layer.beta.data[...] = random.normal(size=(2, 6))
    y, _ = layer.forward(x)
    for b, t in np.ndindex(3, 4):
        normalised = (x[b, t] - np.mean(x[b, t])) / np.sqrt(np.var(x[b, t]) + 0.1)
        np.testing.assert_allclose(y[b, t], layer.gamma.data * normalised + layer.beta.data, rtol=1e-12)


def test_layer_norm_of_a_constant_is_beta():
    layer = LayerNorm(6)
    assert (layer.forward(np.full((2, 6), 3.0, "float32"))[0] == layer.beta.data).all()


def test_attention_is_its_definition(random):
    q, k, v = random.normal(size=(3, 4, 2, 7)), random.normal(size=(3, 5, 2, 7)), random.normal(size=(3, 5, 2, 8))
    y, _ = ScaledDotProductAttention().forward(q, k, v)
    for b, t, h in np.ndindex(3, 4, 2):
        exponentials = [math.exp(q[b, t, h] @ k[b, s, h] / math.sqrt(7)) for s in range(5)]
        expected = sum(e * v[b, s, h] for s, e in enumerate(exponentials)) / sum(exponentials)
        np.testing.assert_allclose(y[b, t, h], expected, rtol=1e-12)


def test_post_norm_normalises_the_sum_and_pre_norm_what_the_sublayer_reads(random):
    x, sublayer, norm = random.normal(size=(3, 4, 6)), Linear(6, 6, random, FLOAT64), LayerNorm(6, FLOAT64)
    norm.gamma.data[...], norm.beta.data[...] = random.normal(size=(2, 6))

    def around(kind):
        layer = kind(sublayer, SMALL, FLOAT64)
        layer.norm.gamma, layer.norm.beta = norm.gamma, norm.beta
        return layer.forward(x)[0]

    def normalised(x):
        return norm.forward(x)[0]

    def transformed(x):
        return sublayer.forward(x)[0]

    np.testing.assert_allclose(around(PostNorm), normalised(x + transformed(x)), rtol=1e-12)
    np.testing.assert_allclose(around(PreNorm), x + transformed(normalised(x)), rtol=1e-12)


def test_positions_are_the_papers():
    d_model, encoding = 512, sinusoids(0, 100, 512)
    for position, i in [(0, 0), (1, 0), (1, 1), (3, 100), (99, 255)]:
        angle = position / 10000 ** (2 * i / d_model)
        assert encoding[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-15)
        assert encoding[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-15)
    assert np.array_equal(sinusoids(7, 5, 512), encoding[7:12])


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


# The loss -------------------------------------------------------------------------------------------------------------


def smoothed_target(target, V, smoothing, spread):
    """The distribution q that the loss compares with, written class by class."""
    q = [smoothing / (V - 1) if spread == "others" else smoothing / V for _ in range(V)]
    q[target] = 1 - smoothing if spread == "others" else 1 - smoothing + smoothing / V
    assert sum(q) == pytest.approx(1)
    return np.array(q)


@SPREADS
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_the_loss_is_its_definition(random, smoothing, spread):
    V, logits, targets = 11, random.normal(size=(3, 4, 11)), padded_ids(random, 4)
    expected, n_tokens, expected_gradient = 0.0, 0, np.zeros_like(logits)
    for b, t in np.ndindex(targets.shape):
        if targets[b, t] != 0:
            p = np.exp(logits[b, t]) / np.exp(logits[b, t]).sum()
            q = smoothed_target(targets[b, t], V, smoothing, spread)
            expected -= q @ np.log(p)
            expected_gradient[b, t] = p - q
            n_tokens += 1
    loss_sum, found_tokens, dlogits = cross_entropy(logits, targets, smoothing, spread)
    assert loss_sum == pytest.approx(expected, rel=1e-12) and found_tokens == n_tokens
    np.testing.assert_allclose(dlogits, expected_gradient, rtol=0, atol=1e-12)


def test_padding_counts_for_nothing_in_the_loss(random):
    logits, targets = random.normal(size=(2, 4, 11)), np.array([[3, 5, 0, 0], [7, 0, 0, 0]])
    loss_sum, n_tokens, dlogits = cross_entropy(logits, targets, 0.1)
    real = targets != 0
    alone, _, _ = cross_entropy(logits[real], targets[real], 0.1)
    assert loss_sum == pytest.approx(alone, rel=1e-12) and n_tokens == 3
    assert (dlogits[~real] == 0).all() and (dlogits[real] != 0).all()


@SPREADS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_logits_give_a_finite_loss(spread, dtype):
    logits = np.array([[1e4, 0, -1e4], [1e4, 0, -1e4]], dtype)
    loss_sum, _, dlogits = cross_entropy(logits, np.array([2, 1]), 0.0, spread)
    assert loss_sum == pytest.approx(2e4 + 1e4)
    np.testing.assert_array_equal(dlogits, [[1, 0, -1], [1, -1, 0]])
    smoothed, _, gradient = cross_entropy(logits, np.array([2, 1]), 0.1, spread)
    assert np.isfinite(smoothed) and np.isfinite(gradient).all()


def test_the_gradient_may_take_the_place_of_the_logits(random):
    logits, targets = random.normal(size=(3, 4, 11)), padded_ids(random, 4)
    expected = cross_entropy(logits, targets, 0.1)
    found = cross_entropy(logits, targets, 0.1, out=logits)
    assert found[:2] == expected[:2]
    assert np.array_equal(found[2], expected[2]) and np.array_equal(logits, expected[2])


def test_a_place_that_cannot_receive_the_gradient_is_refused(random):
    logits = np.asfortranarray(random.normal(size=(3, 4, 11)))
    with pytest.raises(ValueError, match="row after row"):
        cross_entropy(logits, padded_ids(random, 4), 0.1, out=logits)


@pytest.mark.parametrize(
    "targets, smoothing, spread, complaint",
    [
        (np.ones((3, 4), int), -0.1, "others", "smoothing=-0.1"),
        (np.ones((3, 4), int), 1.0, "others", "smoothing=1.0"),
        (np.ones((4, 3), int), 0.1, "others", "do not belong together"),
        (np.ones((3, 4), int), 0.1, "all", "spread='all' is not one of others, uniform"),
        (np.full((3, 4), 11), 0.1, "others", "targets from 11 to 11, but there are 11 classes"),
        (np.full((3, 4), -1), 0.1, "others", "targets from -1 to -1"),
    ],
)
def test_an_impossible_loss_is_refused(random, targets, smoothing, spread, complaint):
    with pytest.raises(ValueError, match=complaint):
        cross_entropy(random.normal(size=(3, 4, 11)), targets, smoothing, spread)


@SPREADS
@pytest.mark.parametrize("logits_at_once", [2**20, 22, 1], ids=lambda n: f"{max(1, n // 11)} rows at once")
def test_loss_backward_is_forward_loss_and_backward(random, monkeypatch, spread, logits_at_once):
    monkeypatch.setattr(Ops, "logits_at_once", logits_at_once)
    model, key = Transformer(small(0.3), dtype=FLOAT64), DropoutKey(1, 2)
    source, target_in, target_out = padded_ids(random, 5), padded_ids(random, 4), padded_ids(random, 4)

    logits, cache = model.forward(source, target_in, rng=key)
    expected_loss, expected_tokens, dlogits = cross_entropy(logits, target_out, 0.1, spread)
    model.backward(dlogits, cache)
    expected_gradient = model.store.grad.copy()

    model.zero_grad()
    loss_sum, n_tokens = loss_backward(model, source, target_in, target_out, 0.1, key, spread)
    assert loss_sum == pytest.approx(expected_loss, rel=1e-12) and n_tokens == expected_tokens
    np.testing.assert_allclose(model.store.grad, expected_gradient, rtol=0, atol=1e-12)


@SPREADS
def test_the_loss_alone_is_that_of_loss_backward_and_leaves_no_gradient(new_model, random, spread):
    model, batch = new_model(), (padded_ids(random, 5), padded_ids(random, 4), padded_ids(random, 4))
    loss_sum, n_tokens = forward_loss(model, *batch, 0.1, spread)
    assert not model.store.grad.any()
    assert (loss_sum, n_tokens) == loss_backward(model, *batch, 0.1, spread=spread)


def test_a_batch_without_targets_has_no_loss_and_no_gradient(new_model, random):
    model, source = new_model(), padded_ids(random, 5)
    nothing = np.zeros((3, 4), int)
    assert forward_loss(model, source, nothing, nothing) == loss_backward(model, source, nothing, nothing) == (0.0, 0)
    assert not model.store.grad.any()


# The optimizer --------------------------------------------------------------------------------------------------------


def test_adam_is_its_definition(new_model, random, monkeypatch):
    """Weight by weight, in plain Python floats; in blocks so small that they do not end where the model ends."""
    monkeypatch.setattr("scratchformer.nn.ops.ADAM_BLOCK", 100)
    model, beta1, beta2, eps = new_model(), 0.9, 0.98, 1e-9
    adam = Adam(model, (beta1, beta2), eps)
    some = random.integers(0, model.store.data.size, 50)
    expected = {i: (float(model.store.data[i]), 0.0, 0.0) for i in map(int, [*some, model.store.data.size - 1])}
    for t in range(1, 6):
        model.store.grad[...] = random.normal(size=model.store.grad.shape)
        gradient, learning_rate = model.store.grad.copy(), noam(t, warmup=3)
        adam.step(learning_rate)
        for i, (w, m, v) in expected.items():
            g = float(gradient[i])
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            w -= learning_rate * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + eps)
            expected[i] = w, m, v
        assert np.array_equal(model.store.grad, gradient)
    for i, (w, m, v) in expected.items():
        assert (model.store.data[i], adam.m[i], adam.v[i]) == pytest.approx((w, m, v), rel=1e-7)
    assert adam.t == 5


def test_the_first_step_of_adam_is_the_learning_rate_against_the_sign_of_the_gradient(new_model, random):
    model = new_model()
    before = model.store.data.copy()
    model.store.grad[...] = random.normal(size=before.shape)
    Adam(model).step(0.01)
    np.testing.assert_allclose(before - model.store.data, 0.01 * np.sign(model.store.grad), rtol=1e-3)


def test_the_learning_rate_rises_to_its_peak_and_falls():
    d_model, warmup = 512, 4000
    for step in (1, 2, 1000, 4000, 4001, 100_000):
        expected = 1 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / warmup**1.5)
        assert noam(step) == pytest.approx(expected, rel=1e-12)
        assert noam(step, factor=2.0) == pytest.approx(2 * expected, rel=1e-12)
    assert noam(4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert noam(3999) < noam(4000) > noam(4001)
    assert noam(10, d_model=128, warmup=10) == pytest.approx(1 / math.sqrt(1280), rel=1e-12)


@pytest.mark.parametrize("step, warmup", [(0, 4000), (-1, 4000), (1, 0)])
def test_steps_count_from_one(step, warmup):
    with pytest.raises(ValueError):
        noam(step, warmup=warmup)


@pytest.mark.parametrize("max_norm, expected", [(1.0, [0.6, 0.8]), (5.0, [3.0, 4.0]), (7.0, [3.0, 4.0])])
def test_clipping_shortens_only_what_is_too_long(max_norm, expected):
    gradient = np.array([3.0, 4.0], "float32")
    clip_by_global_norm_inplace(gradient, 5.0, max_norm)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    assert gradient.dtype == np.float32


# All of it together ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_small_model_learns_one_batch_by_heart(random, norm):
    model = Transformer(ModelConfig(vocab_size=20, N=2, d_model=32, d_ff=64, h=4, norm=norm))
    adam = Adam(model)
    source, target = random.integers(3, 20, (2, 8, 6))
    target_in = np.concatenate([np.full((8, 1), 1), target[:, :-1]], axis=1)
    for _ in range(60):
        model.zero_grad()
        loss_sum, n_tokens = loss_backward(model, source, target_in, target)
        model.store.grad /= n_tokens
        adam.step(0.005)
    loss_sum, n_tokens = forward_loss(model, source, target_in, target)
    assert loss_sum / n_tokens < 0.1


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


def test_being_told_the_next_word_needs_no_parameters():
    assert Transformer(small(0.0, n_tags=3)).store.data.size == Transformer(small(0.0)).store.data.size
