"""Lesson 01's classifier: which construction is a sentence an example of (a question, a passive, a date ...)?

A bag of words, one linear layer, softmax and cross-entropy, with whatever gradient it is given, right or wrong.
"""

from __future__ import annotations

import gzip
import json
from typing import Callable, NamedTuple, Sequence

import numpy as np

from support.lesson import ROOT


class Sentences(NamedTuple):
    """Sentences to learn from, and others to test with.

    x, t            how often each word occurs in each sentence (sentences, words); the numbers of their classes
    x_test, t_test  the same of the others; their words that do not occur among the first are left out
    classes         the names of the constructions
    """

    x: np.ndarray
    t: np.ndarray
    x_test: np.ndarray
    t_test: np.ndarray
    classes: list[str]


class Run(NamedTuple):
    """losses: the mean loss in nats, at first and after each step. right: which test sentences are classified right."""

    losses: np.ndarray
    right: np.ndarray


def labelled(split: str) -> list[tuple[list[str], str]]:
    """The words of each English sentence of a split of the bundled corpus, with the name of its construction."""
    path = ROOT / "data" / "tiny" / split
    lines = path.with_suffix(".en").read_text(encoding="utf-8").lower().splitlines()
    packed = path.with_suffix(".jsonl.gz")  # of the training set
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.with_suffix(".jsonl").read_bytes()
    records = data.decode("utf-8").splitlines()
    return [(line.split(), json.loads(record)["construction"]) for line, record in zip(lines, records, strict=True)]


def as_counts(known: Sequence[tuple[list[str], str]], new: Sequence[tuple[list[str], str]]) -> Sentences:
    """Count the words of sentences to learn from and of new ones, all with their construction."""
    words = {word: i for i, word in enumerate(sorted({word for sentence, _ in known for word in sentence}))}
    classes = sorted({label for _, label in known})

    def counts(labelled: Sequence[tuple[list[str], str]]) -> tuple[np.ndarray, np.ndarray]:
        x = np.zeros((len(labelled), len(words)))
        for row, (sentence, _) in enumerate(labelled):
            for word in sentence:
                if word in words:
                    x[row, words[word]] += 1
        return x, np.array([classes.index(label) for _, label in labelled])

    return Sentences(*counts(known), *counts(new), classes)


def train(
    sentences: Sentences,
    dy_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
    db_of: Callable[[np.ndarray], np.ndarray],
    steps: int = 300,
    rate: float = 2.0,
) -> Run:
    """Gradient descent on all sentences at once, from weights of 0.

    dy_of  the gradient of the logits, from the probabilities p and from q, which is 1 at the right class, else 0
    db_of  the gradient of the bias, from that of the logits
    """
    x, t = sentences.x, sentences.t
    q = np.eye(len(sentences.classes))[t]
    # W starts at 0, and a step adds x.T @ dy times a number to it. So W is x.T @ A for an A with a row per sentence,
    # and the logits are x @ W = (x @ x.T) @ A. This is the same training in a third of the time.
    products, A, b, losses = x @ x.T, np.zeros(q.shape), np.zeros(q.shape[1]), []
    for step in range(steps + 1):
        y = products @ A + b
        y -= y.max(axis=1, keepdims=True)
        exponentials = np.exp(y)
        sums = exponentials.sum(axis=1, keepdims=True)
        losses.append((np.log(sums) - (q * y).sum(axis=1, keepdims=True)).mean())
        if step < steps:
            dy = dy_of(exponentials / sums, q)
            A -= rate * dy / len(x)
            b -= rate * db_of(dy) / len(x)
    W = x.T @ A
    return Run(np.array(losses), (sentences.x_test @ W + b).argmax(axis=1) == sentences.t_test)
