"""The block of 2026: what its layers promise beyond their gradients."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.config import ModelConfig
from scratchformer.decoding.incremental import begin_generation, generation_step
from scratchformer.errors import UserError
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.llama import AlibiPositions, RotaryPositions
from scratchformer.nn.models import new_model
from scratchformer.nn.optim import Adam, cosine, scheduled

BLOCK = ModelConfig(
    vocab_size=30,
    N=2,
    d_model=16,
    d_ff=24,
    h=4,
    h_kv=2,
    P_drop=0.0,
    norm="rms",
    feed_forward="swiglu",
    positions="rotary",
    attention_bias=False,
    architecture="decoder",
)


@pytest.mark.parametrize("changes", [{}, {"positions": "alibi"}, {"h_kv": 1}, {"positions": "learned"}], ids=str)
def test_reading_in_parts_gives_the_logits_of_one_pass(changes):
    """Keys are cached with their positions: 120 tokens, in parts of 50, then one at a time."""
    model = new_model(replace(BLOCK, **changes), seed=1, dtype="float64")
    ids = np.random.default_rng(0).integers(1, 30, (3, 120))
    expected, _ = model.forward(ids)
    caches, ends = begin_generation(model, 3), [50, 100, *range(101, 121)]
    for start, end in zip([0, *ends], ends):
        np.testing.assert_allclose(generation_step(model, ids[:, start:end], caches), expected[:, end - 1], rtol=1e-9)


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_scores_depend_on_the_distance_alone_and_nothing_sees_the_future(positions):
    """The same tokens after three others: the last layer attends as before, if the others are not seen."""
    model = new_model(replace(BLOCK, positions=positions, N=1), dtype="float64")
    ids = np.random.default_rng(0).integers(1, 30, (1, 12))
    _, cache = model.forward(ids)
    (weights,) = attention_weights(cache)  # (1, H, 12, 12)
    _, cache = model.forward(ids[:, 3:])
    (later,) = attention_weights(cache)
    inner = weights[:, :, 3:, 3:]
    np.testing.assert_allclose(inner / inner.sum(axis=-1, keepdims=True), later, rtol=1e-9)
    changed = ids.copy()
    changed[0, 7] = ids[0, 7] % 29 + 1
    before, after = (model.forward(each)[0] for each in (ids, changed))
    assert np.array_equal(before[:, :7], after[:, :7]) and (before[:, 7:] != after[:, 7:]).any(axis=-1).all()


def test_alibi_subtracts_the_slope_of_each_head_times_the_distance():
    h, d_k, T = 4, 6, 9
    q, k = np.random.default_rng(0).normal(size=(2, 1, T, h, d_k))
    y, _ = AlibiPositions(d_k, h).forward(np.concatenate([q, k], axis=2))
    scores = np.einsum("bthk,bshk->bhts", y[:, :, :h], y[:, :, h:]) / np.sqrt(d_k + 1)
    plain = np.einsum("bthk,bshk->bhts", q, k) / np.sqrt(d_k)
    distance = np.arange(T)[:, None] - np.arange(T)
    for head, slope in enumerate((1 / 4, 1 / 16, 1 / 64, 1 / 256)):
        expected = plain[0, head] - slope * distance
        found = scores[0, head]
        np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-12)


def test_rotary_positions_of_an_odd_width_are_refused():
    with pytest.raises(ValueError, match="d_k=7 must be even"):
        RotaryPositions(7)
    for changes, complaint in [
        ({"d_k": 7, "d_v": 7}, "model.d_k must be even"),
        ({"h_kv": 3}, "model.h=4 is not a multiple of model.h_kv=3"),
        ({"positions": "alibi", "architecture": "encoder"}, "is for language models"),
    ]:
        with pytest.raises(UserError, match=complaint):
            new_model(replace(BLOCK, **changes))


def test_a_configuration_with_alibi_is_read_back():
    config = configs.with_settings(configs.preset("gpt-tiny"), {"positions": "alibi"})
    assert configs.from_dict(configs.to_dict(config), "config.toml") == config


def test_the_cosine_schedule():
    rates = [cosine(step, 0.4, 10, 110) for step in range(1, 120)]
    assert rates[0] == pytest.approx(0.04) and max(rates) == rates[9] == 0.4
    assert rates[59] == pytest.approx(0.4 * 0.55) and rates[109] == pytest.approx(0.04) == rates[118]
    config = configs.with_settings(configs.preset("llama-tiny"), {"steps": 110, "warmup": 10, "learning_rate": 0.4})
    assert [scheduled(config, step) for step in range(1, 120)] == rates


def test_weight_decay_shrinks_matrices_alone_and_only_with_a_step():
    model = new_model(BLOCK, dtype="float64")
    before = model.store.data.copy()
    adam = Adam(model, weight_decay=0.1)
    adam.step(0.5, norm=np.array(np.inf))  # a step that overflowed
    assert np.array_equal(model.store.data, before)
    adam.step(0.5)  # the gradient is 0
    for name, parameter in model.parameters().items():
        shrunk = 0.95 if parameter.data.ndim == 2 else 1
        np.testing.assert_allclose(parameter.data, shrunk * model.store.named_views(before)[name], rtol=1e-12)
