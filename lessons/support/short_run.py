"""The run of lesson 19: a model, small batches, and what the page looks at while its loop trains the model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import transformer
from transformer import BOS, CORPUS, EOS, PAD, words_in

from support.lesson import QUICK

SIZE = 32
"""Pairs in a batch."""

STEPS = 150 if QUICK else 750

ENGLISH = "The horse leaves the street because it is too dark."
GERMAN = "Das Pferd verlässt die Straße, weil sie zu dunkel ist."
"""The watched pair, which training never reads."""

LOOKS = (25, 50, 150) if QUICK else (50, 100, 200, 400, 750)
"""Steps after which a run is looked at."""

EVERY = 5
"""Steps from one look at the watched pair to the next."""

Version = Literal["right pairs", "shuffled sources", "no source"]
Pairs = list[tuple[list[int], list[int]]]


class Look(NamedTuple):
    """A run after some steps.

    old, new  nats per word on 500 pairs that training reads, and on as many that it doesn't
    german    its translation of ENGLISH
    """

    step: int
    old: float
    new: float
    german: str


class Step(NamedTuple):
    """One step of a run.

    loss    nats per word
    norm    length of the gradient of all weights
    longest words of the longest German sentence in the batch, </s> among them
    """

    loss: float
    norm: float
    longest: int


class ShortRun:
    """Give a training loop what it needs, and note its steps.

    version  which sources the German sentences get

    log          one entry for each step
    looks        what `look` has seen
    checkpoints  copies of the weights
    watched      (looks, words of GERMAN and </s>): the probability of each right word after the right ones before it
    """

    def __init__(self, version: Version = "right pairs", seed: int = 0) -> None:
        self.rng = transformer.rng = np.random.default_rng(seed)
        english, german = (lines(f"train.{language}") for language in ("en", "de"))
        self.words = ["<pad>", "</s>", "<s>", *sorted({word for line in english + german for word in words_in(line)})]
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.version, self.seed = version, seed
        self.model = transformer.new_model(len(self.words))
        self.log: list[Step] = []
        self.looks: list[Look] = []
        self.checkpoints: list[dict[str, np.ndarray]] = []
        self.watched: list[np.ndarray] = []
        self.batches = self.batches_of(self.pairs(english, german))

    def batches_of(self, pairs: Pairs) -> Iterator[list[np.ndarray]]:
        """Batches whose order doesn't depend on other runs."""
        batches = transformer.batches(pairs, SIZE)
        while True:
            transformer.rng = self.rng
            yield next(batches)

    def pairs(self, english: list[str], german: list[str], version: Version | None = None) -> Pairs:
        version = version or self.version
        if version == "shuffled sources":
            english = [english[i] for i in np.random.default_rng(self.seed + 1).permutation(len(english))]
        if version == "no source":
            english = ["" for _ in english]
        return [([*self.encode(one), EOS], [BOS, *self.encode(other), EOS]) for one, other in zip(english, german)]

    def encode(self, line: str) -> list[int]:
        return [self.ids[word] for word in words_in(line)]

    def note(self, loss: float, target: np.ndarray) -> None:
        """Note a step, between `backward` and `adam`."""
        self.log.append(Step(float(loss), gradient_length(self.model), int((target[:, 1:] != PAD).sum(axis=1).max())))
        if len(self.log) % EVERY == 0:
            self.watched.append(self.probabilities(ENGLISH, GERMAN))

    def keep_copy(self) -> None:
        self.checkpoints.append({name: w.data.copy() for name, w in self.model.weights.items()})

    def look(self) -> None:
        self.looks.append(Look(len(self.log), self.loss_on("train"), self.loss_on("val"), self.translate(ENGLISH)))

    def averaged(self, last: int) -> ShortRun:
        """-> the same run with the mean of its last checkpoints"""
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model)
        for name, w in other.model.weights.items():
            w.data[...] = np.mean([weights[name] for weights in self.checkpoints[-last:]], axis=0)
        return other

    def branch(self) -> ShortRun:
        """-> another run from here on, with the same batches"""
        other = ShortRun(self.version, self.seed)
        other.model = copy.deepcopy(self.model)
        for _ in zip(self.log, other.batches):
            pass
        other.log = [*self.log]
        return other

    def probabilities(self, english: str, german: str) -> np.ndarray:
        """-> (words and </s>,): of each German word after those before it"""
        (source, target), *_ = self.pairs([english], [german])
        memory, _ = transformer.encode(np.array([source]), self.model, 0.0)
        x, _ = transformer.decode(np.array([target[:-1]]), memory, np.array([source]), self.model, 0.0)
        return np.exp(transformer.log_softmax(x[0] @ self.model.E.data.T)[np.arange(len(target) - 1), target[1:]])

    def translate(self, english: str) -> str:
        """The likeliest word each time, until </s> or 20 words."""
        source = np.array([[*self.encode(english), EOS]])
        memory, _ = transformer.encode(source, self.model, 0.0)
        ids = [BOS]
        while len(ids) < 21 and ids[-1] != EOS:
            x, _ = transformer.decode(np.array([ids]), memory, source, self.model, 0.0)
            ids.append(int((x[0, -1] @ self.model.E.data.T).argmax()))
        return " ".join(self.words[i] for i in ids[1:] if i != EOS)

    def loss_on(self, text: Literal["train", "val"], version: Version | None = None) -> float:
        """Nats per word on up to 500 pairs of a text, their sources shuffled or empty as in training, or as told.

        Left out are pairs with a word that training never reads.
        """
        both = [*zip(*(lines(f"{text}.{language}") for language in ("en", "de")))][:500]
        known = [pair for pair in both if all(word in self.ids for line in pair for word in words_in(line))]
        return self.mean_loss(self.pairs([pair[0] for pair in known], [pair[1] for pair in known], version))

    def mean_loss(self, pairs: Pairs) -> float:
        """Of these pairs, nats per word."""
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


def clip(model: Any, limit: float) -> None:
    """Scale the gradient of all weights to the length `limit` if it is longer."""
    length = gradient_length(model)
    for w in model.weights.values():
        w.grad *= min(1, limit / length)
