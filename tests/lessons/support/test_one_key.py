"""The task of lesson 05."""

import numpy as np
import pytest

from support import one_key


def test_it_follows_the_gradient_of_the_weight_or_of_its_logarithm():
    from exercises.numeric import numeric_gradient

    random = np.random.default_rng(7)
    q, keys = random.normal(size=(one_key.QUERIES, 1, 6)), random.normal(size=(one_key.QUERIES, one_key.KEYS, 6))
    key = random.integers(0, one_key.KEYS, one_key.QUERIES)[0]

    def weight(first):
        return one_key.softmax(0.3 * keys[0] @ first)[key]

    assert weight(q[0, 0]) == pytest.approx(one_key.learn_to_look(6, 0.3, 0, seed=7)[0])
    for on_log, unit_steps, function in (
        (False, False, weight),
        (True, False, lambda first: np.log(weight(first))),
        (False, True, weight),
    ):
        step = numeric_gradient(function, q[0, 0])
        step /= np.linalg.norm(step) if unit_steps else 1
        moved = one_key.learn_to_look(6, 0.3, 0.4, on_log=on_log, unit_steps=unit_steps, seed=7, steps=1)[0]
        assert moved == pytest.approx(weight(q[0, 0] + 0.4 * step))


def test_a_smaller_start_replaces_the_division():
    divided = one_key.learn_to_look(16, 1 / 4, 8)
    small = one_key.learn_to_look(16, 1, 8 / 16, start=1 / 4)
    assert np.allclose(divided, small, atol=1e-6)
    assert one_key.found(16, 1 / 4) >= one_key.successes(divided)


def test_a_larger_start_undoes_the_division():
    assert np.allclose(one_key.learn_to_look(16, 1 / 4, 8, start=4), one_key.learn_to_look(16, 1, 8 / 16), atol=1e-6)


def test_a_success_has_more_than_half_of_the_weight():
    assert one_key.successes(np.array([0.5, 0.51, 0.2, 1.0])) == 2
