"""The task of lesson 09: its model's gradient, and what its tables of positions have and lack."""

import numpy as np
import pytest

from exercises.numeric import numeric_gradient
from scratchformer.nn.layers import sinusoids
from support.to_the_left import (
    FOUR,
    TEXT,
    D,
    Reader,
    Table,
    alike,
    few_speeds,
    hands,
    new_positions,
    outside,
    paper_speeds,
    to_the_left,
    which,
)


def test_hands_at_the_papers_speeds_are_sinusoids():
    assert np.allclose(hands(paper_speeds()), sinusoids(0, TEXT, D), rtol=0, atol=1e-12)


@pytest.mark.parametrize("words_ask", [True, False])
def test_gradient_of_the_words(words_ask):
    random = np.random.default_rng(0)
    model = Reader(Table(random.normal(size=(3, 4))), 5, 0, words_ask, d_model=4)
    ids, dscores = np.array([[1, 4, 2]]), random.normal(size=(1, 3, 5))
    weight = model.embedding.weight

    def loss(values):
        weight.data[...] = values
        return (model.forward(ids)[0] * dscores).sum()

    start = weight.data.copy()
    numeric = numeric_gradient(loss, start.copy())
    weight.data[...] = start
    _, cache = model.forward(ids)
    model.zero_grad()
    model.backward(dscores, cache)
    assert np.abs(weight.grad - numeric).max() < 1e-7


@pytest.mark.parametrize(
    "name, lo, hi",
    [("sinusoids", 0.9, 1), ("small steps", 0.75, 0.9), ("smooth", 0.75, 0.92)]
    + [
        ("wide smooth", 0.92, 0.98),
        ("big steps", -0.01, 0.01),
        ("four speeds", -0.02, 0.02),
        ("four speeds, shuffled", -0.2, 0.3),
    ]
    + [(name, -0.2, 0.3) for name in ("random", "short", "learned", "small steps, shuffled", "smooth, shuffled")],
)
def test_how_alike_neighbours_are(name, lo, hi):
    assert lo < alike(new_positions(name, np.random.default_rng(1))) < hi


def test_rows_are_as_long_as_sinusoids():
    for name in (
        "sinusoids",
        "small steps",
        "big steps",
        "upside down",
        "four speeds",
        "smooth",
        "wide smooth",
        "random",
    ):
        table = new_positions(name, np.random.default_rng(0)).table
        assert np.allclose((table**2).sum(axis=1), D / 2)


def test_outcome():
    outcome = to_the_left("random", 0, steps=10)
    assert 0 <= min(outcome.asked, outcome.alone, outcome.row) and np.isnan(outcome.learned_after)


def test_four_speeds_are_not_alike_at_any_distance():
    table = hands(few_speeds(FOUR))
    cosines = table @ table[0] / (D / 2)
    assert np.abs(cosines[1:]).max() < 0.51 and np.linalg.matrix_rank(table) == 8


def test_fourteen_positions_are_asked():
    asked, alone, row = which(np.random.default_rng(0))
    assert (asked.sum(), alone.sum(), row.sum()) == (TEXT - 3 - 7, 2, 5)
    assert not (asked & (alone | row)).any() and not asked[:3].any()


def test_outside_the_asked_directions():
    table = np.array([[2.0, 0, 0], [0, 1, 0], [3, 0, 4], [1, 5, 0]])
    asked = np.array([True, True, False, False])
    assert np.isclose(outside(table, asked, np.array([False, False, True, False])), 4 / 5)
    assert np.isclose(outside(table, asked, np.array([False, False, False, True])), 0)
