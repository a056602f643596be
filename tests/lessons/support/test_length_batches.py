"""Batches, losses and gradients of lesson 18."""

import numpy as np

from scratchformer.nn.loss import batch_loss
from support.length_batches import bundled, loss_by_thirds, mean_gradient, small_model, up_to


def test_batches_are_taken_until_they_hold_enough_tokens():
    batches = [np.array([0, 1]), np.array([2]), np.array([3])]
    lengths = np.array([3, 4, 5, 6])
    assert [len(up_to(batches, lengths, n)) for n in (1, 7, 8, 12, 13, 100)] == [1, 1, 2, 2, 3, 3]


def test_thirds_are_the_short_the_middle_and_the_long_pairs():
    pairs, model = bundled("val"), small_model(0)
    shortest = np.array_split(pairs.by_length(np.arange(len(pairs))), 3)[0]
    batch = pairs.batch(shortest)
    loss, n = batch_loss(model, batch.inputs, batch.targets)
    assert np.isclose(loss_by_thirds(model, pairs)[0], float(loss) / n, rtol=1e-5)


def test_the_gradient_is_that_of_the_mean_loss():
    pairs, model = bundled("val"), small_model(0, "float64")
    batch, w = pairs.batch(np.arange(4)), model.store.data
    model.zero_grad()
    mean_gradient(model, batch)
    direction = np.random.default_rng(0).normal(size=w.size)
    slope, losses, at_w = model.store.grad @ direction, [], w.copy()
    for sign in (1, -1):
        w[...] = at_w + sign * 1e-6 * direction
        losses.append(float(batch_loss(model, batch.inputs, batch.targets)[0]) / batch.n_target_tokens)
    assert np.isclose(slope, (losses[0] - losses[1]) / 2e-6, rtol=1e-5)
