"""The model that guesses the next word: its shift, its two ways of asking, and its further mask."""

import numpy as np
import pytest

from scratchformer.nn.ops import using
from scratchformer.text.tokenizer import EOS
from support import next_word

READ, WRITE = next_word.shifted(next_word.NEW[:8])


def words_of(row):
    return [next_word.VOCABULARY[i] for i in row]


def test_what_is_read_is_one_position_behind_what_is_written():
    read, write = next_word.shifted([["the", "boy", "."], ["the"]])
    assert [words_of(row) for row in read] == [["<s>", "the", "boy", "."], ["<s>", "the", "<pad>", "<pad>"]]
    assert [words_of(row) for row in write] == [["the", "boy", ".", "</s>"], ["the", "</s>", "<pad>", "<pad>"]]
    for array in next_word.not_shifted([["the", "boy", "."], ["the"]]):
        np.testing.assert_array_equal(array, write)


def test_new_sentences_are_new_and_of_known_words():
    assert not [words for words in next_word.NEW if words in next_word.TRAINING]
    assert {word for words in next_word.NEW for word in words} <= set(next_word.ID_OF)


@pytest.mark.parametrize("N", [1, 2])
def test_the_two_ways_of_asking_agree_with_the_causal_mask_only(N):
    causal, open_ = (next_word.NextWord(causal, seed=0, N=N) for causal in (True, False))
    np.testing.assert_allclose(next_word.word_by_word(causal, READ), next_word.all_at_once(causal, READ), atol=1e-9)
    assert np.abs(next_word.word_by_word(open_, READ) - next_word.all_at_once(open_, READ)).max() > 1e-3


def test_without_weights_to_tell_words_apart_the_loss_is_that_of_guessing():
    assert next_word.mean_loss(np.zeros((*WRITE.shape, len(next_word.VOCABULARY))), WRITE) == pytest.approx(
        np.log(len(next_word.VOCABULARY))
    )


def test_hiding_the_future_is_the_causal_mask():
    causal, open_ = (next_word.NextWord(causal, seed=0) for causal in (True, False))
    with using(next_word.Hiding(lambda t, s: s <= t)):
        hidden = next_word.all_at_once(open_, READ)
    np.testing.assert_allclose(hidden, next_word.all_at_once(causal, READ), atol=1e-12)


def test_a_word_that_is_hidden_does_not_matter():
    model, (other, _) = next_word.NextWord(causal=False, seed=0), next_word.shifted(next_word.NEW[8:16])
    changed = READ[:, :4].copy()
    changed[:, 2] = other[:, 3]
    with using(next_word.Hiding(lambda t, s: s != t + 1)):
        before, after = model.forward(READ[:, :4])[0], model.forward(changed)[0]
    moved = np.abs(after - before).max(axis=(0, 2)) > 1e-9
    np.testing.assert_array_equal(moved, [True, False, True, True])


def test_training_is_repeatable_and_learns():
    model, twin = next_word.NextWord(causal=True, seed=0, d_model=16), next_word.NextWord(
        causal=True, seed=0, d_model=16
    )
    losses = next_word.train(model, next_word.shifted, seed=1, steps=25)
    assert losses == next_word.train(twin, next_word.shifted, seed=1, steps=25)
    assert losses[-1] < losses[0] - 0.5


def test_it_goes_on_until_the_end_or_the_limit():
    text = next_word.continued(next_word.NextWord(causal=True, seed=0, d_model=16), ["<s>", "the"], at_most=5)
    assert text[:2] == ["<s>", "the"] and (len(text) == 5 or text[-1] == "</s>")


def test_share_of_repeated_words():
    assert next_word.share_repeated([["my", "my", "my", "dog"], ["a", "dog"]]) == 2 / 4


def test_cuts_one_by_one():
    model, (read, _) = next_word.NextWord(causal=False, seed=0, d_model=16), next_word.shifted(next_word.NEW[:3])
    put = np.random.default_rng(0).integers(3, len(next_word.VOCABULARY), read.shape)
    put[1, 2] = EOS  # this cut is left out
    for behind in None, put:
        rows = []
        for b, words in enumerate(next_word.NEW[:3]):
            for t in range(1, len(words) + 1):
                ids = read[b : b + 1, : t + 1]
                if behind is not None:
                    if behind[b, t] == EOS:
                        continue
                    ids = np.append(ids, [[behind[b, t]]], axis=1)
                best = model.forward(ids)[0][0, t].argmax()
                weights = next_word.weights_of(model, ids)[0, 0, t]
                on_behind = 0 if behind is None else weights[t + 1]
                rows.append([best == read[b, t], behind is not None and best == behind[b, t], weights[t], on_behind])
        np.testing.assert_allclose(next_word.at_cuts(model, read, behind), np.mean(rows, axis=0), atol=1e-12)
