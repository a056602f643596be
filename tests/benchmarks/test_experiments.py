"""The experiments behind the lessons: each variant computes what its name says."""

from pathlib import Path

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.validation import validation_loss

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"


def test_attention_with_another_factor_has_the_right_gradient(script):
    attention = script("attention_scaling").DotProductAttention(0.7)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, length, 3, width)) for length, width in ((4, 6), (5, 6), (5, 7)))
    weights = np.exp(0.7 / np.sqrt(6) * np.einsum("bthk,bshk->bhts", q, k))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert np.allclose(attention.forward(q, k, v)[0], np.einsum("bhts,bshk->bthk", weights, v), rtol=1e-12)
    report = gradcheck(attention, q, k, v)
    assert report.passed, report


def test_without_push_the_weights_count_as_constants(script):
    module = script("attention_scaling")
    random = np.random.default_rng(0)
    q, k, v, dy = (random.standard_normal((2, 4, 3, 5)) for _ in range(4))
    (y, cache), (same_y, same_cache) = (
        module.DotProductAttention(0.7, push).forward(q, k, v) for push in (True, False)
    )
    (*pushed, dv), (*none, same_dv) = (
        module.DotProductAttention(0.7, push).backward(dy, each) for push, each in ((True, cache), (False, same_cache))
    )
    assert np.array_equal(y, same_y) and np.array_equal(dv, same_dv)
    assert all(gradient.any() for gradient in pushed) and not any(gradient.any() for gradient in none)


def test_only_the_variants_without_push_leave_queries_and_keys_alone(script, begin):
    module, trainer = script("attention_scaling"), begin()
    for variant in ("1", "1, no push"):
        share = module.run(variant, trainer.data, trainer.config)["end"]["query_key_share"]
        assert (share == 0) == (not module.powers_of(variant).push)


def test_small_embeddings_and_small_positions_are_the_paper_s_up_to_a_factor(script, small_config):
    module, config = script("embeddings"), small_config()
    ids, D = np.array([[7, 8, 9, 10]]), config.model.d_model
    paper, small = (module.model_of(module.VARIANTS[name], config) for name in ("paper", "no factor, small positions"))
    read = [model.source_positions.forward(model.source_embedding.forward(ids)[0])[0] for model in (paper, small)]
    assert np.allclose(read[0], D**0.5 * read[1], atol=1e-5)


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


def test_permuted_rows_give_the_same_words_other_ids(script, begin):
    pairs = begin().data.train
    module, vocab_size = script("embeddings"), int(pairs.target.ids.max()) + 1
    anew = module.dealt_anew(pairs, vocab_size)
    ids, new_ids = pairs.target.ids, anew.target.ids
    assert len(set(zip(ids.tolist(), new_ids.tolist()))) == len(set(ids.tolist())) == len(set(new_ids.tolist()))
    assert np.array_equal(ids[ids < 4], new_ids[ids < 4]) and not np.array_equal(ids, new_ids)
    assert anew.source is pairs.source and np.array_equal(anew.lengths, pairs.lengths)


def test_smaller_weights_replace_the_factor_until_the_first_step(script, small_config):
    module, config = script("attention_scaling"), small_config()
    ids = np.array([[7, 8, 9, 10], [11, 12, 13, 14]])
    paper, small, unscaled = (
        module.model_of(name, config).forward(ids, ids)[0] for name in ("1/sqrt(d_k)", "1, smaller start", "1")
    )
    assert np.allclose(small, paper, atol=1e-5)
    assert not np.allclose(unscaled, paper, atol=1e-2)


def test_only_queries_and_keys_are_selected(script, small_config):
    module = script("attention_scaling")
    model = module.model_of("1", small_config())
    for layer in module.attention_layers(model).values():
        for array, gradient in module.query_key_parameters(layer):
            array[...], gradient[...] = 0, 1
        n_marked = sum(parameter.grad.sum() for parameter in layer.parameters().values())
        assert n_marked == 2 * (16 + 1) * layer.h * layer.d_k  # weights and biases; d_model = 16
    ids = np.array([[7, 8, 9, 10]])
    caches = list(module.attention_caches(model.forward(ids, ids)[1]))
    assert len(caches) == len(module.attention_layers(model))
    assert all(np.ptp(module.scores(cache)) == 0 for cache in caches)  # no queries, no keys


def test_only_the_steps_of_queries_and_keys_are_changed(script, small_config):
    module, config = script("attention_scaling"), small_config()
    moved = []
    for ratio in (1.0, 0.5):
        model = module.model_of("1", config)
        before = model.store.data.copy()
        model.store.grad[...] = np.random.default_rng(0).standard_normal(before.size)
        module.AdamWithOtherSteps(model, config, ratio).step(0.01)
        shares = model.store.named_views(model.store.data - before)
        moved.append(
            np.array(
                [
                    np.abs(shares[f"decoder.layers.0.cross_attention.{name}"]).mean()
                    for name in ("q.weight", "q.bias", "output.weight")
                ]
            )
        )
    assert np.allclose(moved[0], 0.01, rtol=1e-3)
    assert np.allclose(moved[1], [0.005, 0.005, 0.01], rtol=1e-3)


def test_with_smaller_start_and_steps_training_equals_the_paper_s(script, begin):
    module, trainer = script("attention_scaling"), begin()
    paper, both, start = (
        [loss for _, loss in module.run(variant, trainer.data, trainer.config)["curve"]]
        for variant in ("1/sqrt(d_k)", "1, both smaller", "1, smaller start")
    )
    assert both == pytest.approx(paper, rel=1e-4)
    assert start[-1] != pytest.approx(paper[-1], rel=1e-3)


def test_without_warm_up_only_the_rates_before_its_end_differ(script, small_config):
    module, config = script("warm_up"), small_config()  # warmup = 20
    rates = {
        way: [module.learning_rate(step, way, 0.01, config) for step in (1, 10, 20, 80)] for way in ("warm-up", "none")
    }
    assert rates["warm-up"] == pytest.approx([0.0005, 0.005, 0.01, 0.005])
    assert rates["none"] == pytest.approx([0.01, 0.01, 0.01, 0.005])


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


def test_training_ends_when_the_loss_is_nan(script, begin):
    trainer, module = begin(), script("small_training")
    curve = module.train(trainer.model, Adam(trainer.model), trainer.data, trainer.config, lambda step: 1e30)
    assert module.numbers(curve)[-1][1] is None and curve[-1][0] < trainer.config.training.steps
    assert module.spread([1.0, None]) == {"mean": None, "lowest": None, "highest": None}
    assert module.spread([1.0, 2.0, 6.0]) == {"mean": 3.0, "lowest": 1.0, "highest": 6.0}


def test_two_linear_maps_are_the_feed_forward_network_without_its_relu(script):
    random = np.random.default_rng(0)
    layer = script("feed_forward").TwoLinearMaps(4, 7, random, "float64")
    x = random.standard_normal((2, 3, 4))
    y, _ = layer.forward(x)
    assert np.allclose(y, x @ (layer.inner.weight.data @ layer.outer.weight.data), rtol=1e-12)  # biases are 0
    report = gradcheck(layer, x)
    assert report.passed, report


def test_each_variant_of_the_feed_forward_network_leaves_out_what_it_says(script, small_config):
    module, config = script("feed_forward"), small_config()
    models = {name: module.build(module.VARIANTS[name], config) for name in ("none", "4 d_model, no ReLU", "4 d_model")}
    names = {name: set(model.parameters()) for name, model in models.items()}
    assert names["4 d_model"] == names["4 d_model, no ReLU"]
    assert not any("feed_forward" in name for name in names["none"])
    assert models["none"].store.data.size < models["4 d_model"].store.data.size
    ids = np.array([[7, 8, 9, 10]])
    with_relu, without = (models[name].forward(ids, ids)[0] for name in ("4 d_model", "4 d_model, no ReLU"))
    assert not np.allclose(with_relu, without, atol=1e-2)  # from the same weights


def test_more_long_sentences_are_new_and_longer_than_those_of_training(script):
    module = script("longer")
    splits = module.bundled.read_all()
    sentences = module.more_long_sentences(splits, 5)
    assert len({example.source for example in sentences}) == 5
    assert not {example.source for example in sentences} & {each.source for split in splits.values() for each in split}
    longest = max(module.bundled.length(example) for example in splits["train"])
    assert all(module.bundled.length(example) > longest for example in sentences)


def test_positions_start_at_the_given_place_and_afterwards_at_zero(script, small_config):
    module, ids = script("longer"), np.array([[7, 8, 9]])
    model = module.model_of(module.VARIANTS["sinusoidal"], small_config())
    before = model.forward(ids, ids)[0]
    with module.Starts(model) as starts:
        starts.at(9)
        assert np.abs(model.forward(ids, ids)[0] - before).max() > 1e-3
    assert (model.forward(ids, ids)[0] == before).all()


def test_losses_by_position_add_up_to_the_loss(script, monkeypatch):
    longer, random = script("longer"), np.random.default_rng(0)
    monkeypatch.setattr(longer, "EDGES", (0, 2, 5, 20))
    lengths = np.array([3, 9, 4, 6])
    lines = [" ".join(map(str, random.integers(5, 30, n))) for n in lengths]
    pairs = encode_pairs(
        lambda lines: [[int(word) for word in line.split()] for line in lines],
        Pairs(lines, lines[::-1], [1, 2, 3, 4], 0),
        20,
        64,
    )
    model = Transformer(ModelConfig(vocab_size=30, N=1, d_model=8, d_ff=8, h=2), seed=0, dtype="float64")
    tokens = [np.clip(lengths + 1 - start, 0, end - start).sum() for start, end in ((0, 2), (2, 5), (5, 20))]
    mean = (longer.losses_by_position(model, pairs) * tokens).sum() / sum(tokens)
    assert np.isclose(mean, validation_loss(model, pairs, 64))


def test_every_weight_is_in_exactly_one_group_of_warm_up(script, small_config):
    module, model = script("warm_up"), Transformer(small_config().model)
    sums = "none", "all", "attention", "all but values and output"
    groups = {which: module.marks(model, which).astype(int) for which in module.WARMED if which not in sums}
    assert (sum(groups.values()) == 1).all() and all(group.any() for group in groups.values())
    attention = groups["queries and keys"] + groups["values and output"]
    assert np.array_equal(module.marks(model, "attention"), attention == 1)
    assert np.array_equal(module.marks(model, "all but values and output"), groups["values and output"] == 0)
    assert module.marks(model, "all").all() and not module.marks(model, "none").any()


def test_adam_with_one_divisor_is_adam_when_all_gradients_are_equal(script, small_config):
    module, config = script("warm_up"), small_config()
    steps = {}
    for kind in "Adam", "one divisor for each array":
        model = Transformer(config.model)
        optimizer, before = module.Partly(model, config, kind), model.store.data.copy()
        model.store.grad[...] = 3  # of one size: one divisor is enough
        optimizer.step(0.01)
        steps[kind] = model.store.data - before
    assert np.allclose(*steps.values(), atol=1e-6) and np.allclose(steps["Adam"], -0.01, atol=1e-6)


def test_the_empty_translation_has_the_probability_of_its_end(script):
    beam_lengths = script("beam_lengths")
    translator = beam_lengths.load_run(TINY_MODEL, dtype="float64")
    source_ids = np.array([[7, 9, 11, EOS], [12, EOS, PAD, PAD]])
    logits = translator.model.forward(source_ids, np.full((2, 1), BOS))[0][:, 0]
    p = np.exp(logits)[:, EOS] / np.exp(logits).sum(axis=1)
    assert np.allclose(np.exp(beam_lengths.log_p_of_empty(translator, source_ids)), p, rtol=1e-9)


@pytest.mark.slow
def test_the_shipped_model_translates_pronouns_right(script):
    module = script("tiny_model")
    pairs = module.read("test_coreference")
    translations = module.load_run(TINY_MODEL).translate([example.source for example in pairs])
    assert module.scores(pairs, translations)["bleu"] > 99
    assert module.coreference_score(translations, pairs)["pair_accuracy"] > 0.95
