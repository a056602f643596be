"""A lookup that learns where to look, for lesson 04 and its lab notes: German nouns ask, the words of an English
sentence are asked.

Nobody says where to look. The loss is half the squared distance between the answer of the lookup and the code of the
right English noun; a code is a random vector of each word that stays as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scratchformer.text.bundled import read, words

Sentence = tuple[list[str], list[tuple[str, int]]]
"""English words, and (German noun, position of the English noun that it translates)."""


class Task(NamedTuple):
    """Sentences with at least two nouns, and numbers for their words."""

    train: list[Sentence]
    test: list[Sentence]
    english: dict[str, int]
    german: dict[str, int]

    @property
    def nouns(self) -> list[int]:
        """The English words that are an answer somewhere in `train`."""
        return sorted({self.english[source[i]] for source, pairs in self.train for _, i in pairs})

    @property
    def chance(self) -> float:
        """Probability that a guess among the nouns of a test sentence is right."""
        return float(np.mean([1 / len(pairs) for _, pairs in self.test for _ in pairs]))


def noun_task() -> Task:
    """The task of the bundled corpus."""
    train, test = noun_pairs("val") + noun_pairs("test_compositional"), noun_pairs("test")
    english = sorted({word for source, _ in train + test for word in source})
    german = sorted({noun for _, pairs in train + test for noun, _ in pairs})
    return Task(train, test, {word: i for i, word in enumerate(english)}, {noun: i for i, noun in enumerate(german)})


def noun_pairs(split: str) -> list[Sentence]:
    sentences = []
    for example in read(split):
        tags = re.findall(r"\(([^()\s]+) [^()\s]+\)", example.tree)
        target = words(example.target)
        pairs = [(target[j], i) for i, j in example.alignment if tags[i] in ("NN", "NNS")]
        if len(pairs) >= 2:
            sentences.append((words(example.source.lower()), pairs))
    return sentences


class Lookup:
    """Three tables of vectors that are learned, and a way to weigh the words of a sentence.

    way        "soft"; "frozen", the same with queries and keys that don't learn; "hard", all weight on the best key; or
               "mean", all words alike
    attention  (q, k, v) -> y, weights, and its `backward`: (dy, q, k, v, weights) -> dq, dk, dv
    """

    def __init__(
        self, task: Task, way: str, seed: int, attention: Callable, backward: Callable, d_k: int = 16, d_v: int = 32
    ) -> None:
        random = np.random.default_rng(seed)
        self.task, self.way, self.attention, self.backward = task, way, attention, backward
        self.queries = random.normal(size=(len(task.german), d_k))
        self.keys = random.normal(size=(len(task.english), d_k))
        self.values = 0.1 * random.normal(size=(len(task.english), d_v))
        self.codes = random.normal(size=(len(task.english), d_v)) / math.sqrt(d_v)

    def look(self, sentence: Sentence) -> tuple[np.ndarray, ...]:
        """T nouns ask S words. -> q (T, d_k), k (S, d_k), v (S, d_v), y (T, d_v), weights (T, S)"""
        nouns, here = self.rows(sentence)
        q, k, v = self.queries[nouns], self.keys[here], self.values[here]
        if self.way in ("soft", "frozen"):
            return q, k, v, *self.attention(q, k, v)
        if self.way == "hard":
            weights = np.eye(len(here))[(q @ k.T).argmax(axis=1)]
        else:
            weights = np.full((len(nouns), len(here)), 1 / len(here))
        return q, k, v, weights @ v, weights

    def learn(self, sentence: Sentence, rate: float) -> float:
        """One step of gradient descent on one sentence. -> the loss per noun before it"""
        nouns, here = self.rows(sentence)
        q, k, v, y, weights = self.look(sentence)
        dy = y - self.codes[[here[i] for _, i in sentence[1]]]
        dq, dk, dv = self.backward(dy, q, k, v, weights)
        if self.way == "soft":
            np.add.at(self.queries, nouns, -rate * dq)  # a word may occur twice, and each use has its share
            np.add.at(self.keys, here, -rate * dk)
        np.add.at(self.values, here, -rate * dv)
        return float((dy**2).sum() / 2 / len(nouns))

    def train(self, passes: int, rate: float, seed: int) -> list[float]:
        """So many passes over the sentences, in an order at random. -> the mean loss of each pass"""
        order = np.random.default_rng(seed)
        train = self.task.train
        return [
            float(np.mean([self.learn(train[n], rate) for n in order.permutation(len(train))])) for _ in range(passes)
        ]

    def nearest(self, sentence: Sentence, y: np.ndarray) -> np.ndarray:
        """y (T, d_v) -> for each answer the position (T,) of the word whose code is nearest"""
        codes = self.codes[self.rows(sentence)[1]]
        return ((y[:, None, :] - codes) ** 2).sum(axis=-1).argmin(axis=1)

    def accuracy(self, sentences: Sequence[Sentence]) -> float:
        """Share of lookups in which the word with the nearest code is right, 0 to 1."""
        right = []
        for sentence in sentences:
            source, pairs = sentence
            found = self.nearest(sentence, self.look(sentence)[3])
            right += [source[at] == source[i] for at, (_, i) in zip(found, pairs)]
        return float(np.mean(right))

    def rows(self, sentence: Sentence) -> tuple[list[int], list[int]]:
        """The rows of the tables: of T German nouns, and of S English words."""
        source, pairs = sentence
        return [self.task.german[noun] for noun, _ in pairs], [self.task.english[word] for word in source]
