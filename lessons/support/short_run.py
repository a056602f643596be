"""The run of lesson 19: the loop of `train` in lessons/transformer.py, in small batches, for a page to watch."""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import transformer
from transformer import BOS, CORPUS, EOS, PAD, words_in

from support.lesson import QUICK

SIZE = 32
"""Pairs in a batch."""

LAST = 120 if QUICK else 800
"""The last step."""

ENGLISH = "The horse leaves the street because it is too dark."
GERMAN = "Das Pferd verlässt die Straße, weil sie zu dunkel ist."
"""The watched pair, which training never reads."""

EVERY = 5
"""Steps from one look at it to the next."""

Version = Literal["right pairs", "shuffled sources", "no source"]


class Step(NamedTuple):
    """One step of a run.

    loss    smoothed, nats per word
    norm    length of the gradient of all weights
    words   of the batch's German, </s> among them
    longest of its sentences, in such words
    """

    loss: float
    norm: float
    words: int
    longest: int


class ShortRun:
    """A training that stops where it is told to.

    version  which sources the German sentences get
    clip     a longer gradient is scaled to this length
    spike    the step whose gradient is made 100 times as long

    log      one entry for each step
    watched  (looks, words of GERMAN and </s>): the probability of each right word after the right words before it
    """

    def __init__(self, version: Version = "right pairs", seed: int = 0, clip: float = np.inf, spike: int = 0) -> None:
        self.rng = transformer.rng = np.random.default_rng(seed)
        english, german = (lines(f"train.{language}") for language in ("en", "de"))
        self.words = ["<pad>", "</s>", "<s>", *sorted({word for line in english + german for word in words_in(line)})]
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.version, self.seed, self.clip, self.spike = version, seed, clip, spike
        self.model = transformer.new_model(len(self.words))
        self.log: list[Step] = []
        self.watched: list[np.ndarray] = []
        self._batches = transformer.batches(self.pairs(english, german, seed), SIZE)

    def pairs(self, english: list[str], german: list[str], seed: int = 0) -> list[tuple[list[int], list[int]]]:
        if self.version == "shuffled sources":
            english = [english[i] for i in np.random.default_rng(seed + 1).permutation(len(english))]
        if self.version == "no source":
            english = ["" for _ in english]
        return [(self.source(one), [BOS, *self.encode(other), EOS]) for one, other in zip(english, german)]

    def source(self, english: str) -> list[int]:
        return [*self.encode(english), EOS]

    def encode(self, line: str) -> list[int]:
        return [self.ids[word] for word in words_in(line)]

    def branch(self, clip: float = np.inf, spike: int = 0) -> ShortRun:
        """-> another run from here on, with the same batches"""
        other = ShortRun(self.version, self.seed, clip, spike)
        for name, w in self.model.weights.items():
            for part in "data", "m", "v":
                getattr(other.model.weights[name], part)[...] = getattr(w, part)
        other.log, other.watched = [*self.log], [*self.watched]
        for _ in islice(other._batches, len(self.log)):
            pass
        return other

    def train_until(self, last: int) -> None:
        transformer.rng = self.rng
        for source, target in islice(self._batches, last - len(self.log)):
            loss, backward = transformer.loss_of(source, target, self.model)
            backward(1.0)
            scale = 100 if len(self.log) + 1 == self.spike else 1
            norm = scale * gradient_length(self.model)
            for w in self.model.weights.values():
                w.grad *= scale * min(1, self.clip / norm)
            n_words = (target[:, 1:] != PAD).sum(axis=1)
            self.log.append(Step(float(loss), norm, int(n_words.sum()), int(n_words.max())))
            transformer.adam(self.model, len(self.log))
            if len(self.log) % EVERY == 0:
                self.watched.append(self.probabilities(ENGLISH, GERMAN))

    def probabilities(self, english: str, german: str) -> np.ndarray:
        """-> (words and </s>,): of each German word after those before it"""
        source = np.array(self.source("" if self.version == "no source" else english))[None]
        ids = [*self.encode(german), EOS]
        memory, _ = transformer.encode(source, self.model, 0.0)
        x, _ = transformer.decode(np.array([[BOS, *ids[:-1]]]), memory, source, self.model, 0.0)
        return np.exp(transformer.log_softmax(x[0] @ self.model.E.data.T)[np.arange(len(ids)), ids])

    def translate(self, english: str) -> str:
        """The likeliest word each time, until </s> or 20 words."""
        source = np.array([self.source(english)])
        memory, _ = transformer.encode(source, self.model, 0.0)
        ids = [BOS]
        while len(ids) < 21 and ids[-1] != EOS:
            x, _ = transformer.decode(np.array([ids]), memory, source, self.model, 0.0)
            ids.append(int((x[0, -1] @ self.model.E.data.T).argmax()))
        return " ".join(self.words[i] for i in ids[1:] if i != EOS)

    def validation_loss(self) -> float:
        """Not smoothed, nats per word, on sentences that training never reads; shuffled or empty as in training.

        Left out are pairs with a word that training never reads.
        """
        both = zip(*(lines(f"val.{language}") for language in ("en", "de")))
        known = [pair for pair in both if all(word in self.ids for line in pair for word in words_in(line))]
        return self.mean_loss(self.pairs([pair[0] for pair in known], [pair[1] for pair in known]))

    def mean_loss(self, pairs: list[tuple[list[int], list[int]]]) -> float:
        """Of these pairs, not smoothed, nats per word."""
        loss, n_words = 0.0, 0
        for i in range(0, len(pairs), 50):
            source, target = (
                np.array([ids + [PAD] * (max(map(len, side)) - len(ids)) for ids in side])
                for side in zip(*pairs[i : i + 50])
            )
            n = int((target[:, 1:] != PAD).sum())
            loss += n * float(transformer.loss_of(source, target, self.model, eps_ls=0.0)[0])
            n_words += n
        return loss / n_words


def lines(name: str) -> list[str]:
    return (CORPUS / name).read_text("utf-8").splitlines()


def gradient_length(model: Any) -> float:
    return float(np.sqrt(sum((w.grad**2).sum() for w in model.weights.values())))
