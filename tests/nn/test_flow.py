"""What may reach what: a model can have every gradient right and still look into the future."""

import numpy as np
import pytest

from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention, attention_weights
from scratchformer.nn.gradient_cases import FLOAT64
from scratchformer.nn.head_gate import gated
from scratchformer.nn.loss import loss_backward
from scratchformer.nn.transformer import lengths_of

SOURCE = np.array([[3, 9, 4, 3, 7], [5, 2, 0, 0, 0], [8, 6, 1, 4, 0]])  # (B, S), ragged
TARGET = np.array([[2, 5, 10, 5], [2, 7, 3, 0], [2, 4, 6, 9]])  # (B, T), ragged
TYPES = np.array([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])  # (B, S), the segment of each token of SOURCE
B, S, T = 3, 5, 4
EXACTLY = {"rtol": 0, "atol": 1e-12}

ARRANGEMENTS = pytest.mark.parametrize(
    "changes",
    [{"norm": "post"}, {"norm": "pre"}, {"positions": "learned"}, {"n_tags": 3}],
    ids=["post", "pre", "learned", "told"],
)


def logits(model, source=SOURCE, target=TARGET):
    return model.forward(source, target)[0]


def with_token(ids, position, token):
    """A copy in which every row holds `token` at `position`."""
    changed = ids.copy()
    changed[:, position] = token
    assert (changed != ids).any()
    return changed


# Time runs one way ----------------------------------------------------------------------------------------------------


@ARRANGEMENTS
@pytest.mark.parametrize("position", range(1, T))
def test_a_future_token_does_not_change_a_bit_of_earlier_logits(new_model, changes, position):
    model = new_model(**changes)
    before, after = logits(model), logits(model, target=with_token(TARGET, position, 1))
    assert np.array_equal(before[:, :position], after[:, :position])
    assert (before[:, position:] != after[:, position:]).any(axis=-1).all()


@ARRANGEMENTS
def test_nothing_leaks_where_source_and_target_have_one_length(new_model, changes):
    """Attention that mixes up the sides it reads may run for equal lengths only, with every gradient right."""
    model, source, last = new_model(**changes), SOURCE[:, :T], T - 1
    before, after = logits(model, source), logits(model, source, with_token(TARGET, last, 1))
    assert np.array_equal(before[:, :last], after[:, :last])


@ARRANGEMENTS
@pytest.mark.parametrize("position", range(2))
def test_every_source_token_reaches_every_target_position(new_model, changes, position):
    model = new_model(**changes)
    before, after = logits(model), logits(model, source=with_token(SOURCE, position, 10))
    assert (np.abs(before - after).max(axis=-1) > 1e-6).all()


def test_the_encoder_reads_in_both_directions(new_model):
    model = new_model()
    before, _, _ = model.encode(SOURCE)
    after, _, _ = model.encode(with_token(SOURCE, 1, 10))
    assert (np.abs(before - after)[:, 0].max(axis=-1) > 1e-6).all()


@ARRANGEMENTS
@pytest.mark.parametrize("position", range(1, T))
def test_a_later_token_does_not_change_a_bit_of_a_language_model_s_earlier_logits(new_model, changes, position):
    model = new_model(architecture="decoder", **changes)
    before, after = model.forward(TARGET)[0], model.forward(with_token(TARGET, position, 1))[0]
    assert np.array_equal(before[:, :position], after[:, :position])
    assert (np.abs(before - after)[:, position:].max(axis=-1) > 1e-6).all()  # each later one does change


# Padding and the rest of the batch do not matter ----------------------------------------------------------------------


@ARRANGEMENTS
def test_more_padding_changes_nothing(new_model, changes):
    model = new_model(**changes)
    padded = logits(model, np.pad(SOURCE, ((0, 0), (0, 3))), np.pad(TARGET, ((0, 0), (0, 2))))
    np.testing.assert_allclose(padded[:, :T], logits(model), **EXACTLY)


@ARRANGEMENTS
def test_a_text_does_not_depend_on_its_batch_or_padding(new_model, changes):
    model = new_model(architecture="decoder", **changes)
    together = model.forward(np.pad(TARGET, ((0, 0), (0, 2))))[0]
    for row, length in enumerate(lengths_of(TARGET)):
        alone = model.forward(TARGET[[row], :length])[0]
        np.testing.assert_allclose(alone[0], together[row, :length], **EXACTLY)


@ARRANGEMENTS
@pytest.mark.parametrize("row", range(B))
def test_a_sentence_does_not_depend_on_its_batch(new_model, changes, row):
    model = new_model(**changes)
    alone = logits(model, SOURCE[row : row + 1, : lengths_of(SOURCE)[row]], TARGET[row : row + 1])
    np.testing.assert_allclose(alone[0], logits(model)[row], **EXACTLY)


def test_the_gradient_of_a_batch_is_the_sum_of_those_of_its_sentences(new_model):
    model = new_model()
    expected = np.roll(TARGET, -1, axis=1) * (np.arange(T) < T - 1)
    loss_backward(model, SOURCE, TARGET, expected, 0.1)
    together = model.store.grad.copy()
    model.zero_grad()
    for row in range(B):
        loss_backward(model, SOURCE[[row]], TARGET[[row]], expected[[row]], 0.1)
    np.testing.assert_allclose(model.store.grad, together, **EXACTLY)


@ARRANGEMENTS
def test_an_empty_source_gives_finite_numbers(new_model, changes):
    model = new_model(**changes)
    nothing = np.zeros_like(SOURCE)
    assert np.isfinite(logits(model, source=nothing)).all()
    loss_backward(model, nothing, TARGET, TARGET, 0.1)
    assert np.isfinite(model.store.grad).all()


# A text encoder -------------------------------------------------------------------------------------------------------

WORDS_OR_CLASSES = pytest.mark.parametrize("n_classes", [0, 2], ids=["words", "classes"])
REAL = SOURCE != 0


@WORDS_OR_CLASSES
@pytest.mark.parametrize("row, position", np.argwhere(REAL).tolist())
def test_each_token_and_its_type_reach_all_outputs_of_their_text_and_no_others(new_model, n_classes, row, position):
    model = new_model(architecture="encoder", n_classes=n_classes)
    before, _ = model.forward(SOURCE, TYPES)
    for token, other_type in [(10, 0), (SOURCE[row, position], 1)]:
        ids, types = SOURCE.copy(), TYPES.copy()
        ids[row, position] = token
        types[row, position] ^= other_type
        change = np.abs(model.forward(ids, types)[0] - before).max(axis=-1)  # (B, S) or (B, 1)
        assert (change[row][REAL[row, : change.shape[1]]] > 1e-6).all()
        assert not np.delete(change, row, axis=0).any()


@WORDS_OR_CLASSES
def test_a_text_and_its_class_do_not_depend_on_batch_or_padding(new_model, n_classes):
    model = new_model(architecture="encoder", n_classes=n_classes)
    together, _ = model.forward(*(np.pad(values, ((0, 0), (0, 2))) for values in (SOURCE, TYPES)))
    for row, length in enumerate(lengths_of(SOURCE)):
        alone, _ = model.forward(SOURCE[[row], :length], TYPES[[row], :length])
        np.testing.assert_allclose(alone[0], together[row, :length], **EXACTLY)


# Attention ------------------------------------------------------------------------------------------------------------


def test_open_gates_change_no_bit_and_closed_ones_leave_nothing(new_model):
    model = new_model()
    before, names = logits(model), list(model.parameters())
    attentions = [layer.cross_attention.sublayer for layer in model.decoder.layers]
    with gated(attentions) as gates:
        assert np.array_equal(logits(model), before)
        for gate in gates:
            gate.xi.data[...] = 0
        with gated(attentions):  # open ones behind closed ones
            other_source = logits(model, source=with_token(SOURCE, 0, 10))
            assert np.array_equal(other_source, logits(model)) and not np.array_equal(other_source, before)
    assert np.array_equal(logits(model), before) and list(model.parameters()) == names


def attend(random, mask, t=T, s=S):
    """Random queries and keys -> the weights (B, H, t, s) and the output (B, t, H, d_v)."""
    q, k, v = (random.normal(size=(B, length, 2, 7)) for length in (t, s, s))
    y, cache = ScaledDotProductAttention().forward(q, k, v, mask)
    return cache.weights, y


@pytest.mark.parametrize(
    "mask, t, s",
    [
        (Mask(), T, S),
        (Mask(np.array([S, 1, 3])), T, S),
        (Mask(causal=True), T, T),
        (Mask(causal=True), T, S),
        (Mask(np.array([T, 1, 3]), causal=True), T, T),
    ],
)
def test_weights_sum_to_one_and_are_exactly_zero_where_masked(random, mask, t, s):
    weights, _ = attend(random, mask, t, s)
    may_attend = np.broadcast_to(mask.as_array(t, s), weights.shape)
    assert (weights[~may_attend] == 0).all()
    assert (weights[may_attend] > 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, **EXACTLY)


def test_every_attention_of_the_model_obeys_its_mask(new_model):
    N, H = 2, 2
    source = SOURCE * [[1], [0], [1]]  # the second sentence is empty
    _, cache = new_model().forward(source, TARGET)
    weights = attention_weights(cache)
    in_encoder, in_decoder, to_memory = weights[:N], weights[N::2], weights[N + 1 :: 2]
    padding, future = (source == 0)[:, None, None, :], ~np.tri(T, dtype=bool)
    assert len(in_encoder) == len(in_decoder) == len(to_memory) == N
    for group, shape, masked in [
        (in_encoder, (B, H, S, S), padding),
        (in_decoder, (B, H, T, T), future),
        (to_memory, (B, H, T, S), padding),
    ]:
        for array in group:
            assert array.shape == shape
            assert np.array_equal(array == 0, np.broadcast_to(masked, shape))


def test_the_causal_mask_is_a_triangle():
    assert np.array_equal(Mask(causal=True).as_array(T, T)[0, 0], np.tril(np.ones((T, T), bool)))


def test_the_last_query_of_a_causal_mask_sees_all_keys():
    assert np.array_equal(Mask(causal=True).as_array(2, 4)[0, 0], [[True, True, True, False], [True] * 4])


def test_a_query_with_nothing_to_attend_to_gets_zeros(random):
    weights, y = attend(random, Mask(np.array([S, 0, 2])))
    assert (weights[1] == 0).all() and (y[1] == 0).all()
    assert (np.abs(y[[0, 2]]) > 0).all()


def test_attention_survives_scores_beyond_the_range_of_exp(random):
    q, k, v = (1e4 * random.normal(size=(B, T, 2, 7)) for _ in range(3))
    y, _ = ScaledDotProductAttention().forward(q, k, v, Mask(causal=True))
    assert np.isfinite(y).all()


def test_self_attention_without_positions_does_not_know_the_order(random):
    layer, x = SelfAttention(6, 2, random, FLOAT64), random.normal(size=(B, S, 6))
    order = random.permutation(S)
    y, _ = layer.forward(x)
    y_of_permuted, _ = layer.forward(x[:, order])
    np.testing.assert_allclose(y_of_permuted, y[:, order], **EXACTLY)


@ARRANGEMENTS
def test_the_model_knows_the_order(new_model, changes):
    model = new_model(**changes)
    swapped = SOURCE[:1, [1, 0, 2, 3, 4]]
    assert np.abs(logits(model, SOURCE[:1], TARGET[:1]) - logits(model, swapped, TARGET[:1])).max() > 1e-6


# One position at a time -----------------------------------------------------------------------------------------------


@ARRANGEMENTS
def test_decoding_step_by_step_gives_the_logits_of_forward(new_model, changes):
    model = new_model(**changes)
    target = TARGET[:, :3]  # no padding
    state, stepwise = begin_decoding(model, SOURCE), []
    for position in range(target.shape[1]):
        step_logits, state = decoding_step(model, target[:, position : position + 1], state)  # (B, 1, V)
        stepwise.append(step_logits)
    np.testing.assert_allclose(np.concatenate(stepwise, axis=1), logits(model, target=target), **EXACTLY)


@ARRANGEMENTS
def test_hypotheses_may_change_places_and_sentences_may_finish(new_model, random, changes):
    """A beam of W that is reordered after every step, and loses its first sentence after the second."""
    model, W, V = new_model(**changes), 2, 11
    sentences = np.arange(B)
    written = np.empty((B, W, 0), int)  # the tokens of each hypothesis
    state = begin_decoding(model, SOURCE, beam=W)
    for step in range(T):
        written = np.concatenate([written, random.integers(1, V, (len(sentences), W, 1))], axis=-1)
        step_logits, state = decoding_step(model, written[..., -1], state)  # (sentences, W, V)
        for sentence, hypotheses, found in zip(sentences, written, step_logits, strict=True):
            for hypothesis, row in zip(hypotheses, found, strict=True):
                expected = logits(model, SOURCE[[sentence]], hypothesis[None])[0, -1]
                np.testing.assert_allclose(row, expected, **EXACTLY)

        kept = np.arange(len(sentences)) if step != 1 else np.array([1, 2])
        parents = random.integers(0, W, (len(kept), W))  # which hypothesis lives on where
        state = state.select(kept, (kept[:, None] * W + parents).reshape(-1))
        sentences, written = sentences[kept], written[kept[:, None], parents]


# Wrong ids are refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids, complaint",
    [
        (np.array([[3, 0, 4]]), "padding"),
        (np.array([[0, 3]]), "padding"),
        (np.array([[3, 11]]), "3 to 11"),
        (np.array([[-1, 3]]), "-1 to 3"),
        (np.array([[3.0, 4.0]]), "float64"),
        (np.array([3, 4]), "1-D"),
        ([[3, 4]], "a list"),
    ],
)
def test_wrong_source_ids_are_refused(new_model, ids, complaint):
    model = new_model()
    with pytest.raises(ValueError, match=complaint):
        model.forward(ids, TARGET[:1])
    with pytest.raises(ValueError, match=complaint):
        begin_decoding(model, ids)


WRONG_TARGETS = pytest.mark.parametrize(
    "ids",
    [np.array([[3, 11, 4, 5]]), np.array([[-1, 3, 4, 5]]), np.array([[3.0, 4.0, 5.0, 6.0]]), np.array([3, 4, 5, 6])],
    ids=["above", "below", "float", "1-D"],
)


@WRONG_TARGETS
def test_wrong_target_in_ids_are_refused(new_model, ids):
    with pytest.raises(ValueError, match="target_in_ids"):
        new_model().forward(SOURCE[:1], ids)


@WRONG_TARGETS
def test_wrong_target_out_ids_are_refused(new_model, ids):
    with pytest.raises(ValueError, match="targets"):
        loss_backward(new_model(), SOURCE[:1], TARGET[:1], ids)


@pytest.mark.parametrize("rows", [1, 2])
def test_sources_and_targets_of_different_number_are_refused(new_model, rows):
    with pytest.raises(ValueError):
        new_model().forward(SOURCE[:rows], TARGET)


def test_a_sequence_longer_than_the_table_of_positions_is_refused(new_model):
    model = new_model(positions="learned", max_positions=4)
    with pytest.raises(ValueError, match="max_positions=4"):
        model.forward(SOURCE, TARGET)


@pytest.mark.parametrize(
    "types, complaint",
    [
        (TYPES + 1, "token_types holds ids from 1 to 2; the vocabulary is 0 to 1"),
        (TYPES[:, :-1], r"token_types has shape \(3, 4\), but there are vectors for \(3, 5\)"),
        (TYPES * 1.0, "token_types must be a 2-D array of integers, not 2-D of float64"),
    ],
)
def test_wrong_token_types_are_refused(new_model, types, complaint):
    with pytest.raises(ValueError, match=complaint):
        new_model(architecture="encoder").forward(SOURCE, types)
