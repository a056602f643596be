"""The task of lesson 09: say the word three to the left, also at positions that were never asked for in training.

A text of 24 random words out of 11. The queries are positions alone, without words, so that nothing but the positions
can help; keys and values are made of word and position. Some positions are never asked for in training (their words are
read as keys all the same): two that stand alone, between positions that are asked for, and five in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.attention import CrossAttention
from scratchformer.nn.layers import Embedding, Linear
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.text.tokenizer import PAD
from support.training import learn

WORDS, TEXT, D, LEFT = 11, 24, 32, 3
"""Number of words (ids from 1), of words in a text, of numbers in a vector, and the distance that is asked."""


class Reader(Layer):
    """One attention with one head: ids (B, T) -> at each position the scores of all words, (B, T, V).

        x = words + table,   y = attention(table, x),   scores = y W + b

    table  (T, d_model), a vector for each position, which is not trained
    V      how many words there are, padding included
    """

    def __init__(self, table: np.ndarray, V: int, seed: int) -> None:
        random, d_model = np.random.default_rng(seed), table.shape[1]
        self.embedding = Embedding(Embedding.new_weight(V, d_model, random, "float64"))
        self.table = table
        self.attention = CrossAttention(d_model, 1, random, "float64")
        self.output = Linear(d_model, V, random, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, ids: np.ndarray, rng: object = None) -> tuple[np.ndarray, Any]:
        words, word_cache = self.embedding.forward(ids)  # (B, T, D)
        table = self.table[: ids.shape[1]]
        y, y_cache = self.attention.forward(np.broadcast_to(table, words.shape), words + table)
        scores, cache = self.output.forward(y)
        return scores, (word_cache, y_cache, cache)

    def backward(self, dscores: np.ndarray, caches: Any) -> None:
        word_cache, y_cache, cache = caches
        _, dx = self.attention.backward(self.output.backward(dscores, cache), y_cache)
        self.embedding.backward(dx, word_cache)


def table_of(name: str, random: np.random.Generator) -> np.ndarray:
    """One of the tables of lesson 09: sine and cosine of sixteen hands side by side. (TEXT, D)"""
    half_turn = math.pi * np.arange(16) / 15  # sixteen speeds, up to half a turn per position
    speeds = {"sinusoids": 10000.0 ** (-np.arange(16) / 16), "big steps": half_turn}
    angles = np.arange(TEXT)[:, None] * speeds.get(name, np.resize(half_turn[[1, 6, 10, 12]], 16))
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(TEXT, D)
    return table[random.permutation(TEXT)] if name.endswith("shuffled") else table


class Outcome(NamedTuple):
    """Means over the positions asked for in training, the two alone, and the five in a row, (3,) each.

    right  the share of right words in 60 new texts
    moved  the change of a query in training, |p W_Q − p W_Q at the start|
    """

    right: np.ndarray
    moved: np.ndarray


def which(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positions asked for in training, the two alone, the five in a row. (TEXT,) each, boolean"""
    pos = np.arange(TEXT)
    alone = np.isin(pos, random.permutation([5, 7, 9])[:2])
    row = np.isin(pos - random.integers(12, 18), range(5))
    return (pos >= LEFT) & ~alone & ~row, alone, row


def to_the_left(
    name: str, seed: int, optimizer: Callable[[Reader], Any] = Adam, rate: float = 0.01, steps: int = 110
) -> Outcome:
    """Train a Reader with the table of this name on 16 texts a step, and test it on new texts."""
    random = np.random.default_rng(50 + seed)
    groups = which(random)
    table = table_of(name, random)
    model = Reader(table, WORDS + 1, seed)
    W_Q = model.attention.q.weight
    before = W_Q.data.copy()

    def texts(n: int) -> tuple[np.ndarray, np.ndarray]:
        ids = random.integers(1, WORDS + 1, (n, TEXT))
        return ids, np.concatenate([np.full((n, LEFT), PAD), ids[:, :-LEFT]], axis=1)

    test, answers = texts(60)
    drawn = (texts(16) for _ in range(steps))
    batches = (((ids,), np.where(groups[0], targets, PAD)) for ids, targets in drawn)
    learn(model, batches, lambda step: rate, optimizer=optimizer)
    right = (model.forward(test)[0].argmax(axis=-1) == answers).mean(axis=0)  # (T,)
    moved = np.linalg.norm(table @ (W_Q.data - before), axis=1)
    return Outcome(*(np.array([of[at].mean() for at in groups]) for of in (right, moved)))
