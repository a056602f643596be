"""The small translators of lesson 15."""

import math

import numpy as np
import pytest

from support import short_translation


def test_the_gradient_is_that_of_the_mean_loss_per_piece():
    model = short_translation.new_model(0, dtype="float64")
    batch = short_translation.random_batch(np.random.default_rng(0))
    loss = short_translation.set_gradient(model, batch)
    assert loss == pytest.approx(short_translation.mean_loss(model, batch), rel=1e-12)
    direction = np.random.default_rng(1).normal(size=model.store.data.shape)
    slope, step, start = direction @ model.store.grad, 1e-6, model.store.data.copy()
    ends = []
    for sign in 1, -1:
        model.store.data[...] = start + sign * step * direction
        model.store.refresh()
        ends.append(short_translation.mean_loss(model, batch))
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, rel=1e-5)


def test_frequencies_beat_guessing_and_short_sentences_are_short():
    assert short_translation.loss_of_the_frequencies() < math.log(short_translation.tokenizer().vocab_size)
    assert short_translation.new_sentences().targets.shape[1] <= short_translation.LONGEST + 1
