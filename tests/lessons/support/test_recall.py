"""The test of memory: its task is what it says, its models have right gradients, and they learn what is easy."""

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from support.recall import READERS, SYMBOLS, AttentionReader, FirstSymbol, accuracy, model_of, sequences, train
from support.recurrent import LSTM, RNN

KINDS = pytest.mark.parametrize("kind", [RNN, LSTM, AttentionReader])


def test_the_first_symbol_is_marked_and_the_answer():
    x, first = sequences(np.random.default_rng(0), 5, 7)
    assert x.shape == (5, 7, 1 + SYMBOLS) and first.shape == (5,)
    np.testing.assert_array_equal(x[:, :, 0], np.eye(7)[[0] * 5])
    np.testing.assert_array_equal(x[:, :, 1:].sum(axis=-1), 1)
    np.testing.assert_array_equal(x[:, 0, 1:].argmax(axis=-1) + 1, first)


def test_blank_sequences_hold_the_first_symbol_and_nothing_else():
    full, first = sequences(np.random.default_rng(0), 5, 7)
    blank, same = sequences(np.random.default_rng(0), 5, 7, blank=True)
    np.testing.assert_array_equal(first, same)
    np.testing.assert_array_equal(full[:, 0], blank[:, 0])
    assert not blank[:, 1:].any()


def test_without_the_mark_the_rest_is_as_it_was():
    marked, first = sequences(np.random.default_rng(0), 5, 7)
    unmarked, same = sequences(np.random.default_rng(0), 5, 7, marked=False)
    np.testing.assert_array_equal(first, same)
    np.testing.assert_array_equal(unmarked[:, :, 1:], marked[:, :, 1:])
    assert not unmarked[:, :, 0].any()


@KINDS
def test_backward_agrees_with_finite_differences(kind):
    report = gradcheck(FirstSymbol(kind, 5, seed=0), np.random.default_rng(1).normal(size=(3, 4, 1 + SYMBOLS)))
    assert report.passed, f"\n{report}"


def test_the_attention_reader_is_a_layer_of_its_own():
    reader = AttentionReader(3, 5, np.random.default_rng(0), "float64")
    assert gradcheck(reader, np.random.default_rng(1).normal(size=(2, 4, 3))).passed


@KINDS
def test_a_short_distance_is_learnt_and_the_same_seed_gives_the_same_run(kind):
    model, twin = FirstSymbol(kind, 24, seed=0), FirstSymbol(kind, 24, seed=0)
    losses = train(model, 2, 0.01, seed=1, steps=60)
    assert losses == train(twin, 2, 0.01, seed=1, steps=60)
    assert losses[0] > 2 > losses[-1] and accuracy(model, 2) > 0.9


def test_training_ends_when_it_is_enough():
    model, twin = FirstSymbol(RNN, 8, seed=0), FirstSymbol(RNN, 8, seed=0)
    assert train(model, 2, 0.01, seed=1, enough=lambda step: step == 7) == train(twin, 2, 0.01, seed=1, steps=7)
    np.testing.assert_array_equal(model.store.data, twin.store.data)


def test_the_readers_differ_in_what_their_names_say():
    models = {reader: model_of(reader, seed=0) for reader in READERS}
    sizes = [model.store.data.size for model in models.values()]
    assert max(sizes) < 1.03 * min(sizes)
    rnn, smaller, usual, open_gate = (models[reader].reader for reader in READERS if reader != "attention")
    np.testing.assert_array_equal(smaller.recurrent.weight.data, 0.8 * rnn.recurrent.weight.data)
    np.testing.assert_array_equal(smaller.input.weight.data, rnn.input.weight.data)
    for part, of_usual, of_open in (0, 0, 0), (1, 1, 5), (2, 0, 0), (3, 0, 0):
        for lstm, bias in (usual, of_usual), (open_gate, of_open):
            np.testing.assert_array_equal(lstm.input.bias.data[31 * part : 31 * (part + 1)], bias)
