"""The model that guesses the next word: its shift, its two ways of asking, and its further mask."""

import numpy as np
import pytest

from library.next_word import (
    ID_OF,
    NEW,
    TRAINING,
    VOCABULARY,
    Hiding,
    NextWord,
    all_at_once,
    continued,
    mean_loss,
    not_shifted,
    shifted,
    train,
    word_by_word,
)
from scratchformer.nn.ops import using

READ, WRITE = shifted(NEW[:8])


def words_of(row):
    return [VOCABULARY[i] for i in row]


def test_what_is_read_is_one_position_behind_what_is_written():
    read, write = shifted([["the", "boy", "."], ["the"]])
    assert [words_of(row) for row in read] == [["<s>", "the", "boy", "."], ["<s>", "the", "<pad>", "<pad>"]]
    assert [words_of(row) for row in write] == [["the", "boy", ".", "</s>"], ["the", "</s>", "<pad>", "<pad>"]]
    for array in not_shifted([["the", "boy", "."], ["the"]]):
        np.testing.assert_array_equal(array, write)


def test_new_sentences_are_new_and_of_known_words():
    assert not [words for words in NEW if words in TRAINING]
    assert {word for words in NEW for word in words} <= set(ID_OF)


@pytest.mark.parametrize("N", [1, 2])
def test_the_two_ways_of_asking_agree_with_the_causal_mask_only(N):
    causal, open_ = (NextWord(causal, seed=0, N=N) for causal in (True, False))
    np.testing.assert_allclose(word_by_word(causal, READ), all_at_once(causal, READ), atol=1e-9)
    assert np.abs(word_by_word(open_, READ) - all_at_once(open_, READ)).max() > 1e-3


def test_without_weights_to_tell_words_apart_the_loss_is_that_of_guessing():
    assert mean_loss(np.zeros((*WRITE.shape, len(VOCABULARY))), WRITE) == pytest.approx(np.log(len(VOCABULARY)))


def test_hiding_the_future_is_the_causal_mask():
    causal, open_ = (NextWord(causal, seed=0) for causal in (True, False))
    with using(Hiding(lambda t, s: s <= t)):
        hidden = all_at_once(open_, READ)
    np.testing.assert_allclose(hidden, all_at_once(causal, READ), atol=1e-12)


def test_a_word_that_is_hidden_does_not_matter():
    model, (other, _) = NextWord(causal=False, seed=0), shifted(NEW[8:16])
    changed = READ[:, :4].copy()
    changed[:, 2] = other[:, 3]
    with using(Hiding(lambda t, s: s != t + 1)):
        before, after = model.forward(READ[:, :4])[0], model.forward(changed)[0]
    moved = np.abs(after - before).max(axis=(0, 2)) > 1e-9
    np.testing.assert_array_equal(moved, [True, False, True, True])


def test_training_is_repeatable_and_learns():
    model, twin = NextWord(causal=True, seed=0, d_model=16), NextWord(causal=True, seed=0, d_model=16)
    losses = train(model, shifted, seed=1, steps=25)
    assert losses == train(twin, shifted, seed=1, steps=25)
    assert losses[-1] < losses[0] - 0.5


def test_it_goes_on_until_the_end_or_the_limit():
    text = continued(NextWord(causal=True, seed=0, d_model=16), ["<s>", "the"], at_most=5)
    assert text[:2] == ["<s>", "the"] and (len(text) == 5 or text[-1] == "</s>")
