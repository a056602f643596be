"""The experiments behind the lessons: each variant computes what its name says."""

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.optim import Adam
from scratchformer.text.tokenizer import PAD


def test_attention_with_another_factor_has_the_right_gradient(script):
    attention = script("attention_scaling").DotProductAttention(0.7)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, length, 3, width)) for length, width in ((4, 6), (5, 6), (5, 7)))
    weights = np.exp(0.7 / np.sqrt(6) * np.einsum("bthk,bshk->bhts", q, k))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert np.allclose(attention.forward(q, k, v)[0], np.einsum("bhts,bshk->bthk", weights, v), rtol=1e-12)
    report = gradcheck(attention, q, k, v)
    assert report.passed, report


def test_only_the_variants_without_push_leave_queries_and_keys_alone(script, begin):
    module, trainer = script("attention_scaling"), begin()
    for name in ("1", "1, no push"):
        variant = (module.VARIANTS | module.WITHOUT_PUSH)[name]
        model = module.model_of(variant, trainer.config)
        before = [array.copy() for array in module.query_key_parameters(model)]
        optimizer = module.optimizer_of(model, variant, trainer.config)
        script("small_training").train(model, optimizer, trainer.data, trainer.config, lambda step: 0.01)
        moved = any(np.any(a != b) for a, b in zip(before, module.query_key_parameters(model)))
        assert moved == variant.push


def test_with_smaller_start_and_steps_training_equals_the_paper_s(script, begin):
    module, trainer = script("attention_scaling"), begin()
    paper, both, start = (
        [loss for _, loss in module.run(module.VARIANTS[name], trainer.data, trainer.config)["curve"]]
        for name in ("1/sqrt(d_k)", "1, both smaller", "1, smaller start")
    )
    assert both == pytest.approx(paper, rel=1e-4)
    assert start[-1] != pytest.approx(paper[-1], rel=1e-3)


def test_the_start_and_the_steps_of_an_embedding_are_scaled_separately(script, small_config):
    module, config = script("embeddings"), small_config()
    ids, D = np.array([[7, 8, 9, PAD]]), config.model.d_model
    for name, variant in module.VARIANTS.items():
        model = module.model_of(variant, config)
        rows = model.source_embedding.weight.data
        begun, change = rows[ids].copy(), np.full(D, 0.5, rows.dtype)
        rows += change
        expected = D**variant.start * begun + D**variant.steps * change
        expected[ids == PAD] = 0
        for embedding in (model.source_embedding, model.target_embedding)[: 1 + (variant.tied == "all")]:
            assert np.allclose(embedding.forward(ids)[0], expected, atol=1e-4), name
        assert (model.unembedding.weight is model.target_embedding.weight) == (variant.tied != "none")


def test_averaging_v_moves_no_weight_and_keeps_the_length_of_the_first_step(script, begin):
    module, trainer = script("warm_up"), begin()
    store, config, optimizer = trainer.model.store, trainer.config, Adam(trainer.model)
    weights = store.data.copy()
    module.average_v(trainer.model, optimizer, trainer.data, config)
    assert np.array_equal(store.data, weights)
    mean_square = (0.98 * optimizer.v + 0.02 * store.grad**2) / (1 - 0.98**21)  # warmup = 20, and this step
    optimizer.step(0.01 * module.correction_of_m(1, config))
    used = mean_square > 1e-10
    expected = -0.01 * store.grad[used] / np.sqrt(mean_square[used])
    assert used.mean() > 0.5
    assert np.allclose((store.data - weights)[used], expected, rtol=1e-2, atol=1e-5)


def test_two_linear_maps_are_the_feed_forward_network_without_its_relu(script):
    random = np.random.default_rng(0)
    layer = script("feed_forward").TwoLinearMaps(4, 7, random, "float64")
    x = random.standard_normal((2, 3, 4))
    y, _ = layer.forward(x)
    assert np.allclose(y, x @ (layer.inner.weight.data @ layer.outer.weight.data), rtol=1e-12)  # biases are 0
    report = gradcheck(layer, x)
    assert report.passed, report


def test_more_long_sentences_are_new_and_longer_than_those_of_training(script):
    module = script("longer")
    splits = {split: module.bundled.read(split) for split in module.bundled.SPLITS}
    sentences = module.more_long_sentences(splits, 5)
    assert len({example.source for example in sentences}) == 5
    assert not {example.source for example in sentences} & {each.source for split in splits.values() for each in split}
    longest = max(module.bundled.length(example) for example in splits["train"])
    assert all(module.bundled.length(example) > longest for example in sentences)


# The harness ----------------------------------------------------------------------------------------------------------


def test_training_ends_when_the_loss_is_nan(script, begin):
    trainer = begin()
    run = script("small_training").trained(trainer.model, trainer.data, trainer.config, lambda step: 1e30)
    assert run["final_loss"] is None and run["curve"][-1][0] < trainer.config.training.steps


def test_numbers_and_spread(script):
    harness = script("harness")
    assert harness.spread([1.0, None]) == {"mean": None, "lowest": None, "highest": None}
    assert harness.spread([1.0, 2.0, 6.0]) == {"mean": 3.0, "lowest": 1.0, "highest": 6.0}
    assert harness.rounded({"a": np.array([1.2345678, np.inf]), "b": (2, "c")}) == {"a": [1.2346, None], "b": [2, "c"]}


def test_programs_take_turns_and_the_minimum_counts(script):
    harness, done, now = script("harness"), [], [0.0]

    def program(name, seconds):
        def work(unit):
            done.append((unit, name))
            now[0] += seconds + (len(done) < 20)  # disturbed at first
            return len(done)

        return work

    programs = {"scratchformer": program("scratchformer", 2), "pytorch": program("pytorch", 3)}
    turns = harness.take_turns(programs, [0, 1], 5, warm_up=1, pause=0, clock=lambda: now[0])
    assert [unit for unit, _ in done] == 6 * [0, 0, 1, 1]
    assert all({name for _, name in done[i : i + 2]} == set(programs) for i in range(0, 24, 2))
    assert len({name for _, name in done[::2]}) == 2, "the first one is drawn"
    spread = {name: harness.spread_of(seconds) for name, seconds in turns.seconds.items()}
    assert spread["pytorch"]["minimum"] == 3 and harness.over_ours(spread)["minimum"]["pytorch"] == 1.5
    assert min(turns.first.values()) == 1 and max(turns.last.values()) == 24


def test_guesses_are_sorted_into_bins_by_their_probability(script):
    confidence, right = np.array([0.1, 0.5, 0.7, 0.74, 1.0]), np.array([False, True, True, False, True])
    bins = script("label_smoothing").calibration(confidence, right, 4)
    assert bins["count"].tolist() == [1, 0, 3, 1]
    assert bins["confidence"] == pytest.approx([0.1, np.nan, 0.64 + 0.02 / 3, 1], nan_ok=True)
    assert bins["accuracy"] == pytest.approx([0, np.nan, 2 / 3, 1], nan_ok=True)
    assert bins["error"] == pytest.approx((0.1 + 3 * abs(1.94 / 3 - 2 / 3)) / 5)
