"""The classifier of lesson 01: its counts, and that gradient descent with the right gradient is what it says."""

import numpy as np

from support.constructions import Sentences, as_counts, labelled, train

KNOWN = [("the cat saw the dog".split(), "a"), ("did the cat".split(), "b")]
NEW = [("the dog the bird".split(), "b")]


def test_words_are_counted_and_unknown_ones_left_out():
    sentences = as_counts(KNOWN, NEW)  # words: cat, did, dog, saw, the
    assert sentences.x.tolist() == [[1, 0, 1, 1, 2], [1, 1, 0, 0, 1]]
    assert sentences.x_test.tolist() == [[0, 0, 1, 0, 2]]
    assert (sentences.t.tolist(), sentences.t_test.tolist(), sentences.classes) == ([0, 1], [1], ["a", "b"])


def test_labels_of_the_corpus():
    words, label = labelled("test")[0]
    assert (words, label) == ("lena has sold eight goats.".split(), "number")


def test_a_step_is_one_of_gradient_descent_on_the_weights():
    """The training never forms W; here it does."""
    sentences = as_counts(KNOWN, NEW)
    W, b, q = np.zeros((5, 2)), np.zeros(2), np.eye(2)[sentences.t]
    for _ in range(3):
        e = np.exp(sentences.x @ W + b)
        dy = e / e.sum(axis=1, keepdims=True) - q
        W, b = W - 0.5 * sentences.x.T @ dy / 2, b - 0.5 * dy.sum(axis=0) / 2
    e = np.exp(sentences.x @ W + b)
    loss = -np.log((q * e).sum(axis=1) / e.sum(axis=1)).mean()
    run = train(sentences, lambda p, q: p - q, lambda dy: dy.sum(axis=0), steps=3, rate=0.5)
    np.testing.assert_allclose(run.losses[-1], loss)


def test_one_step_by_hand():
    """One sentence with one word, two classes: after a step of 1 the logits are 1 and -1, as W and b each have half."""
    one = Sentences(np.ones((1, 1)), np.array([0]), np.ones((1, 1)), np.array([0]), ["a", "b"])
    run = train(one, lambda p, q: p - q, lambda dy: dy.sum(axis=0), steps=1, rate=1.0)
    np.testing.assert_allclose(run.losses, [np.log(2), np.log(1 + np.exp(-2))])
    assert run.right.tolist() == [True]
    assert train(one, lambda p, q: q - p, lambda dy: dy.sum(axis=0), steps=1).right.tolist() == [False]
