"""How much a model needs its heads: measured on a small untrained one, and statistics on made-up numbers."""

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.experiments import head_importance as importance
from scratchformer.experiments import heads, statistics
from scratchformer.nn.head_gate import gated
from scratchformer.nn.loss import forward_loss
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import Tokenizer

N, H = 2, 3
PAIRS = Pairs(
    ["the old dog sees a cat .", "a cat sees the dog .", "the dog .", "the cat hears a dog and the old dog ."],
    ["der alte hund sieht eine katze .", "eine katze sieht den hund .", "der hund .", "die katze hört zwei hunde ."],
    [1, 2, 4, 7],
    3,
)


@pytest.fixture(scope="module")
def translator():
    config = ModelConfig(vocab_size=60, N=N, d_model=24, d_ff=16, h=H)
    model = Transformer(config, seed=0, dtype="float64")
    return Translator(model, Tokenizer.train([*PAIRS.source, *PAIRS.target], 60), extra_length=5)


@pytest.fixture(scope="module")
def text(translator):
    return importance.text_of(translator, PAIRS, 100)


def only(text, *indices):
    return text.part(np.isin(np.arange(len(text.encoded)), indices))


# The text -------------------------------------------------------------------------------------------------------------


def test_the_text_is_the_first_pairs_that_are_short_enough(translator, text, monkeypatch):
    monkeypatch.setattr(importance, "MAX_LENGTH", int(text.encoded.lengths[1]))
    short = importance.text_of(translator, PAIRS, 2)
    assert short.pairs == Pairs(PAIRS.source[1:3], PAIRS.target[1:3], [2, 4], 0)
    np.testing.assert_array_equal(short.n_tokens, text.n_tokens[1:3])
    monkeypatch.setattr(importance, "MAX_LENGTH", 1)
    with pytest.raises(UserError, match="none of the 4 sentence pairs"):
        importance.text_of(translator, PAIRS, 2)


def test_no_sentence_is_longer_than_the_table_of_positions(translator, text):
    longest = int(text.encoded.lengths.max())
    config = ModelConfig(vocab_size=60, N=1, d_model=24, d_ff=16, h=H, positions="learned", max_positions=longest - 1)
    learned = Translator(Transformer(config, seed=0), translator.tokenizer)
    assert importance.text_of(learned, PAIRS, 100).encoded.lengths.max() < longest
    assert len(importance.sentence_losses(learned, importance.text_of(learned, PAIRS, 100)))


# The two measures -----------------------------------------------------------------------------------------------------


def test_the_losses_of_sentences_are_those_of_the_model(translator, text):
    losses = importance.sentence_losses(translator, text)
    for index, loss in enumerate(losses):
        expected, _ = forward_loss(translator.model, *text.encoded.batch(np.array([index])).ids)
        assert loss == pytest.approx(float(expected), rel=1e-9)


def test_a_head_has_the_number_of_its_name(translator, text):
    names = importance.head_names(translator.model)
    assert names[0] == "encoder 1.1" and names[-1] == "cross 2.3" and len(names) == 3 * N * H
    without = importance.losses_without_each(translator, text)
    for name, found in zip(names, without.reshape(len(text.encoded), -1).T):
        kind, place = name.split()
        layer, head = (int(number) - 1 for number in place.split("."))
        with heads.without_heads(heads.attention_layers(translator.model)[kind][layer], [head]):
            np.testing.assert_array_equal(found, importance.sentence_losses(translator, text))


def test_gradients_of_gates_agree_with_finite_differences(translator, text):
    model, step = translator.model, 1e-5
    found = importance.gate_gradients(translator, text)
    assert not model.store.grad.any()
    with gated(importance.every_attention(model)) as gates:
        for gate, (row, head) in ((gates[row], (row, head)) for row in range(3 * N) for head in (0, H - 1)):
            losses = []
            for moved in (1 + step, 1 - step):
                gate.xi.data[head] = moved
                losses.append(importance.sentence_losses(translator, text))
            gate.xi.data[head] = 1
            expected = (losses[0] - losses[1]) / (2 * step)
            np.testing.assert_allclose(found[:, row, head], expected, rtol=1e-5, atol=1e-8)


def test_the_absolute_value_is_taken_of_each_sentence(translator, text):
    signed = importance.gate_gradients(translator, text)
    assert (np.sign(signed).min(axis=0) != np.sign(signed).max(axis=0)).any(), "they would be the same anyway"
    alone = [importance.gradient_importance(translator, only(text, index)) for index in range(len(text.encoded))]
    together = importance.gradient_importance(translator, text)
    np.testing.assert_allclose(together, np.average(alone, axis=0, weights=text.n_tokens))


def test_means_are_weighted_and_their_errors_are_those_of_repeated_draws():
    random = np.random.default_rng(0)
    cases = random.integers(1, 9, (4000, 50))
    values = 3 * cases + random.normal(size=cases.shape) * cases
    found = [statistics.mean_and_error(*each) for each in zip(values, cases)]
    means, errors = np.array(found).T
    assert means[0] == pytest.approx(values[0].sum() / cases[0].sum())
    assert errors.mean() == pytest.approx(means.std(), rel=0.05)
    assert statistics.mean_and_error(np.ones((1, 2)), np.ones(1))[1].tolist() == [np.inf, np.inf]


def test_rank_correlation():
    assert statistics.mean_ranks(np.array([5.0, 1.0, 5.0])).tolist() == [2.5, 1, 2.5]
    assert statistics.spearman(np.array([1, 2, 3, 4]), np.array([10, 20, 40, 30])) == pytest.approx(0.8)
    assert np.isnan(statistics.spearman(np.ones(3), np.arange(3)))
    scores = np.random.default_rng(0).normal(size=(4, 6))
    assert statistics.rank_correlation(scores, np.exp(scores)) == pytest.approx((1, 1, 1))
    found = statistics.rank_correlation(scores, scores[::-1])
    assert found.low < found.rho < found.high


def test_importance_relative_to_the_layer():
    found = importance.relative_to_layer(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]])


# Removing many heads --------------------------------------------------------------------------------------------------


def test_greedy_looks_again_after_each_removal(translator, text, monkeypatch):
    """Heads 0 and 1 stand in for each other: each alone is missed least, both together most."""

    def losses(translator, text):
        xi = np.concatenate([layer.attention.gate.xi.data for layer in importance.every_attention(translator.model)])
        damage = (1 - xi) @ np.arange(1, 1 + len(xi))
        return np.array([damage + 100 * (xi[0] == xi[1] == 0)])

    monkeypatch.setattr(importance, "sentence_losses", losses)
    once = importance.order_by(importance.losses_without_each(translator, only(text, 0)).sum(axis=0))
    assert once == list(range(3 * N * H))
    assert importance.greedy_order(translator, only(text, 0)) == [0, *range(2, 3 * N * H), 1]


def test_a_curve_begins_with_all_heads_and_ends_with_none(translator, text):
    order = np.random.default_rng(0).permutation(3 * N * H).tolist()
    curve = importance.pruning_curve(translator, text, order, {0, len(order)})
    per_token = importance.sentence_losses(translator, text).sum() / text.n_tokens.sum()
    assert curve.losses[0] == pytest.approx(per_token) and len(curve.losses) == len(order) + 1
    with gated(importance.every_attention(translator.model)) as gates:
        for gate in gates:
            gate.xi.data[...] = 0
        nothing = importance.sentence_losses(translator, text).sum() / text.n_tokens.sum()
        bleu = importance.greedy_bleu(translator, text)
    assert curve.losses[-1] == pytest.approx(nothing) and curve.bleus[len(order)] == bleu
    assert set(curve.bleus) == {0, len(order)}
    second = importance.pruning_curve(translator, text, order[:1]).losses[1]
    without = importance.losses_without_each(translator, text).sum(axis=0).reshape(-1)[order[0]]
    assert second == pytest.approx(without / text.n_tokens.sum())


def test_bleu_is_that_of_the_language(translator):
    thai = importance.text_of(translator, PAIRS, 100, "th")
    translations = translator.translate(thai.pairs.source, beam=1)
    expected = corpus_scores(translations, thai.pairs.target, "th").bleu
    assert importance.greedy_bleu(translator, thai.part(np.ones(len(thai.encoded), bool))) == expected
    assert expected != corpus_scores(translations, thai.pairs.target).bleu


def test_removed_heads_are_missing_from_translations_too(translator, text):
    intact = importance.greedy_bleu(translator, text)
    translations = translator.translate(text.pairs.source, beam=1)
    with gated(importance.every_attention(translator.model)) as gates:
        importance.remove(gates, range(3 * N * H))
        assert translator.translate(text.pairs.source, beam=1) != translations
        importance.remove(gates, [])
        assert importance.greedy_bleu(translator, text) == intact
