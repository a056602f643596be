"""The lookup of lesson 04: which sentences it gets, what learns in each way, and how an answer is judged."""

import numpy as np
import pytest

from support.noun_lookup import Lookup, Task

TASK = Task(
    train=[(["the", "dog", "sees", "a", "cat"], [("Hund", 1), ("Katze", 4)])],
    test=[(["a", "cat", "sees", "the", "dog"], [("Katze", 1), ("Hund", 4)])],
    english={word: i for i, word in enumerate(["a", "cat", "dog", "sees", "the"])},
    german={"Hund": 0, "Katze": 1},
)


def attention(q, k, v):
    weights = np.exp(q @ k.T)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ v, weights


def backward(dy, q, k, v, weights):
    dweights = dy @ v.T
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    return dscores @ k, dscores.T @ q, weights.T @ dy


def lookup(way):
    return Lookup(TASK, way, 0, attention, backward, d_k=4, d_v=8)


def test_nouns_are_the_words_that_are_an_answer():
    assert TASK.nouns == [1, 2] and TASK.others == [0, 3, 4] and TASK.chance == 0.5


@pytest.mark.parametrize("way, learns", [("soft", "qkv"), ("frozen", "v"), ("hard", "v"), ("mean", "v")])
def test_what_learns(way, learns):
    ours, before = lookup(way), lookup(way)
    ours.train(1, 0.1, 0)
    changed = [not np.array_equal(getattr(ours, name), getattr(before, name)) for name in ("queries", "keys", "values")]
    assert "".join(np.array(["q", "k", "v"])[changed]) == learns


def test_the_weights_of_each_way():
    (sentence,) = TASK.test
    assert np.allclose(lookup("mean").look(sentence)[4], 0.2)
    hard = lookup("hard").look(sentence)[4]
    assert set(np.unique(hard)) == {0, 1} and np.all(
        hard.argmax(axis=1) == lookup("soft").look(sentence)[4].argmax(axis=1)
    )


def test_a_lookup_learns_and_the_nearest_code_decides():
    ours = lookup("soft")
    losses = ours.train(200, 1.0, 0)
    assert losses[-1] < 0.1 * losses[0]
    assert ours.accuracy(TASK.train) == 1
    assert list(ours.nearest(TASK.test[0], ours.codes[[TASK.english["dog"]]])) == [4]
