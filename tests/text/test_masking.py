"""Examples of a masked language model: the choice of hidden pieces, and pairs with labels."""

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.text.batches import Sequences
from scratchformer.text.masking import MaskedTexts, each_masked_once, encode_texts, labelled_pairs, mask_tokens
from scratchformer.text.tokenizer import BOS, EOS, MASK, PAD, UNK

VOCAB = 50
TEXTS = ["5 6 7 8 9 10 11 12 13 14 15", "20", "7 3 8", "3", "30 31 32 33 34 35 36 37"]


def encode(texts):
    return [[int(word) for word in text.split()] for text in texts]


def examples(texts=TEXTS, max_length=20, seed=0):
    return MaskedTexts(encode_texts(encode, texts, max_length), VOCAB, seed, max_length)


def all_of(masked, epoch=0):
    return masked.batch(np.arange(len(masked)), epoch)


def test_of_the_pieces_15_percent_are_chosen_and_80_percent_of_those_hidden():
    random = np.random.default_rng(0)
    texts = Sequences.of(
        [[BOS, *random.integers(MASK + 1, VOCAB, length), EOS] for length in range(7, 40) for _ in range(60)]
    )
    shown, targets = mask_tokens(texts, VOCAB, random)
    chosen, hidden = targets.ids != PAD, shown.ids == MASK
    changed = ~hidden & (shown.ids != texts.ids)
    assert np.array_equal(targets.ids[chosen], texts.ids[chosen])
    assert not (hidden | changed)[~chosen].any()
    assert set(shown.ids[changed]) == set(range(MASK + 1, VOCAB))
    n_pieces, n_chosen = np.count_nonzero(texts.ids > MASK), np.count_nonzero(chosen)
    others = 0.1 * (1 - 1 / (VOCAB - MASK - 1))  # a random piece may happen to be the right one
    for count, total, share in [
        (n_chosen, n_pieces, 0.15),
        (np.count_nonzero(hidden), n_chosen, 0.8),
        (np.count_nonzero(changed), n_chosen, others),
    ]:
        assert abs(count / total - share) < 4 * (share * (1 - share) / total) ** 0.5


def test_no_special_token_is_chosen_and_every_text_has_a_target():
    masked = examples()
    assert len(masked) == 4  # of "3" nothing can be hidden
    for epoch in range(50):
        (ids, types), targets = all_of(masked, epoch)[:2]
        assert not types.any()
        assert (targets != PAD).any(axis=1).all()
        assert not np.isin(targets, [EOS, BOS, UNK, MASK]).any()
        assert (ids[:, 0] == BOS).all() and (np.count_nonzero(ids == EOS, axis=1) == 1).all()


def test_each_epoch_hides_other_pieces_and_a_repeated_one_the_same():
    masked = examples()
    first, again, later = all_of(masked), all_of(examples()), all_of(masked, epoch=1)
    assert np.array_equal(first.inputs[0], again.inputs[0]) and np.array_equal(first.targets, again.targets)
    assert not np.array_equal(first.targets, later.targets)
    assert not np.array_equal(first.targets, all_of(examples(seed=1)).targets)


def test_what_is_hidden_depends_on_the_text_and_not_on_its_batch():
    masked = examples()
    together = all_of(masked, epoch=3)
    for index in range(len(masked)):
        alone = masked.batch(np.array([index]), epoch=3)
        length = masked.lengths[index]
        assert np.array_equal(alone.inputs[0][0], together.inputs[0][index, :length])
        assert np.array_equal(alone.targets[0], together.targets[index, :length])


def test_a_long_text_is_cut_into_several():
    masked = examples(max_length=6)
    assert masked.lengths.max() == 6
    pieces = [piece for text in encode(TEXTS) for piece in text if text != [UNK]]
    assert masked.texts.ids[masked.texts.ids >= UNK].tolist() == pieces


def test_each_piece_is_hidden_once_in_turn():
    shown, targets = each_masked_once(encode_texts(encode, ["7 3 8", "20"], 20))
    rows = np.arange(3)
    assert shown.padded(rows).tolist() == [[BOS, MASK, UNK, 8, EOS], [BOS, 7, UNK, MASK, EOS], [BOS, MASK, EOS, 0, 0]]
    assert targets.padded(rows).tolist() == [[0, 7, 0, 0, 0], [0, 0, 0, 8, 0], [0, 20, 0, 0, 0]]


@pytest.mark.parametrize(
    "texts, max_length, complaint",
    [
        (["3", ""], 9, "none of the 2 texts has a piece that can be hidden"),
        (["5"], 2, "max_length=2 must be at least 3"),
    ],
)
def test_nothing_to_hide(texts, max_length, complaint):
    with pytest.raises(UserError, match=complaint):
        encode_texts(encode, texts, max_length)


@pytest.mark.parametrize("text", [TEXTS[0], f"{TEXTS[0]} {UNK} {UNK} {MASK} {MASK} {UNK} {UNK} {MASK}"])
def test_the_number_of_targets_counts_the_pieces_that_can_be_chosen(text):
    masked = examples([text] * 400)
    assert masked.n_targets == round(400 * 0.15 * 11)
    assert all_of(masked).n_target_tokens == pytest.approx(masked.n_targets, rel=0.1)


def test_a_pair_is_one_sequence_of_two_types_with_one_target():
    pairs = labelled_pairs(encode, ["5 6 7", "8"], ["9", "10 11"], [2, 1], max_length=8)
    (ids, types), targets = all_of(pairs)[:2]
    assert ids.tolist() == [[BOS, 5, 6, 7, EOS, 9, EOS], [BOS, 8, EOS, 10, 11, EOS, PAD]]
    assert types.tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 0]]
    assert targets.tolist() == [[2], [1]]
    with pytest.raises(UserError, match="max_length=6: 1 pairs of segments are longer"):
        labelled_pairs(encode, ["5 6 7", "8"], ["9", "10 11"], [2, 1], max_length=6)
