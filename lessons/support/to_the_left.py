"""The task of lesson 09: say the word three to the left, also at positions that were never asked for in training.

A text of 24 random words out of 11. The queries are positions alone, without words, so that nothing but the positions
can help; keys and values are made of word and position. Some positions are never asked for in training (their words are
read as keys all the same): two that stand alone, between positions that are asked for, and five in a row.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from scratchformer.nn.attention import CrossAttention
from scratchformer.nn.layers import Embedding, LearnedPositions, Linear
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.text.tokenizer import PAD
from support.training import learn

WORDS, TEXT, D, LEFT = 11, 24, 32, 3
"""Number of words (ids from 1), of words in a text, of numbers in a vector, and the largest distance that is asked."""


# The model ------------------------------------------------------------------------------------------------------------


class Table(Layer):
    """Adds a given vector to each position, which is not trained: x (B, T, D) -> x + table[:T]."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def forward(self, x: np.ndarray, first: int = 0, rng: object = None) -> tuple[np.ndarray, Any]:
        return x + self.table[: x.shape[1]], None

    def backward(self, dy: np.ndarray, cache: Any) -> np.ndarray:
        return dy


class Reader(Layer):
    """One attention with one head: ids (B, T) -> at each position the scores of all words, (B, T, V).

        x = positions(words),   y = attention(positions(words or 0), x),   scores = y W + b

    positions   the layer that adds positions: Table, PositionalEncoding or LearnedPositions
    V           how many words there are, padding included
    words_ask   whether the queries hold the words, too; if not, positions alone ask
    """

    def __init__(self, positions: Layer, V: int, seed: int, words_ask: bool = True, d_model: int = D) -> None:
        random = np.random.default_rng(seed)
        self.embedding = Embedding(Embedding.new_weight(V, d_model, random, "float64"))
        self.positions, self.words_ask = positions, words_ask
        self.attention = CrossAttention(d_model, 1, random, "float64")
        self.output = Linear(d_model, V, random, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, ids: np.ndarray, rng: object = None) -> tuple[np.ndarray, Any]:
        words, word_cache = self.embedding.forward(ids)  # (B, T, D)
        x, x_cache = self.positions.forward(words)
        queries, query_cache = self.positions.forward(words * self.words_ask)
        y, y_cache = self.attention.forward(queries, x)
        scores, cache = self.output.forward(y)
        return scores, (word_cache, x_cache, query_cache, y_cache, cache)

    def backward(self, dscores: np.ndarray, caches: Any) -> None:
        word_cache, x_cache, query_cache, y_cache, cache = caches
        dqueries, dx = self.attention.backward(self.output.backward(dscores, cache), y_cache)
        dwords = self.positions.backward(dx, x_cache)
        dwords += self.positions.backward(dqueries, query_cache) * self.words_ask
        self.embedding.backward(dwords, word_cache)


def train(
    model: Reader,
    batch: Callable[[], tuple[np.ndarray, np.ndarray]],
    steps: int,
    watch: Callable[[int], None] = lambda step: None,
) -> None:
    """Adam with the learning rate 0.01. batch() -> ids (B, T), targets (B, T); a target of PAD is not asked for.

    watch(step) is called after every tenth step.
    """
    batches = (((ids,), targets) for ids, targets in (batch() for _ in range(steps)))

    def watch_some(step: int) -> bool:
        if step % 10 == 0:
            watch(step)
        return False

    learn(model, batches, lambda step: 0.01, is_enough=watch_some)


# Tables of positions --------------------------------------------------------------------------------------------------


FOUR = (1, 6, 10, 12)
"""Four of the sixteen speeds of "big steps": neighbours are not alike, and at no distance is the cosine above 0.51."""


def hands(speeds: np.ndarray, T: int = TEXT) -> np.ndarray:
    """Sine and cosine of each hand side by side. speeds (D / 2,) in radians per position -> (T, D)"""
    angles = np.arange(T)[:, None] * speeds
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(T, -1)


def paper_speeds(d_model: int = D) -> np.ndarray:
    return 10000.0 ** (-np.arange(0, d_model, 2) / d_model)


def few_speeds(steps: Sequence[int]) -> np.ndarray:
    """Some of the 16 speeds of "big steps" (0 to 15, in fifteenths of half a turn), repeated to D / 2 speeds."""
    return np.resize(np.array(steps) * math.pi / (D // 2 - 1), D // 2)


def smooth(T: int, random: np.random.Generator, reach: float = 3) -> np.ndarray:
    """Weighted means of random vectors, the nearest weighing most: neighbours are alike, and no rotation links them.

    At distance k the weight is exp(-k^2 / reach). (T, D), every row as long as a row of sinusoids
    """
    pos = np.arange(T)
    table = np.exp(-((pos - pos[:, None]) ** 2) / reach) @ random.normal(size=(T, D))
    return math.sqrt(D / 2) * table / np.linalg.norm(table, axis=1, keepdims=True)


def new_positions(name: str, random: np.random.Generator) -> Layer:
    """One of the tables of lesson 09 and its lab notes, as a layer."""
    if name == "learned":
        return LearnedPositions(TEXT, D, random, "float64")
    signs = random.choice([-1, 1], (TEXT, D)) / math.sqrt(2)
    tables: dict[str, Callable[[], np.ndarray]] = {
        "the number itself": lambda: np.repeat(np.linspace(-1, 1, TEXT)[:, None], D, axis=1),
        "sinusoids": lambda: hands(paper_speeds()),
        "upside down": lambda: hands(1 / paper_speeds()),
        "small steps": lambda: hands(np.linspace(0, 1, D // 2)),
        "big steps": lambda: hands(np.linspace(0, math.pi, D // 2)),
        "four speeds": lambda: hands(few_speeds(FOUR)),
        "smooth": lambda: smooth(TEXT, random),
        "wide smooth": lambda: smooth(TEXT, random, 12),
        "random": lambda: signs,
        "short": lambda: signs / 4,
        "small steps, shuffled": lambda: hands(np.linspace(0, 1, D // 2))[random.permutation(TEXT)],
        "four speeds, shuffled": lambda: hands(few_speeds(FOUR))[random.permutation(TEXT)],
        "smooth, shuffled": lambda: smooth(TEXT, random)[random.permutation(TEXT)],
    }
    return Table(tables[name]())


def outside(table: np.ndarray, asked: np.ndarray, at: np.ndarray) -> float:
    """Share of the vectors at some positions that lies outside the directions of the asked positions' vectors.

    The mean of length over length. table (T, D); asked, at (T,) boolean
    """
    found = np.linalg.lstsq(table[asked].T, table[at].T, rcond=1e-9)[0]
    rest = table[at] - found.T @ table[asked]
    return float((np.linalg.norm(rest, axis=1) / np.linalg.norm(table[at], axis=1)).mean())


def alike(positions: Layer) -> float:
    """The mean cosine of the angle between the vectors of neighbours."""
    table = positions.forward(np.zeros((1, TEXT, D)))[0][0]
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    return float((unit[:-1] * unit[1:]).sum(axis=1).mean())


# The task -------------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Result of a run.

    learned_after  the first tenth step after which 90 % were right where asked; NaN for never
    asked, alone, row  the share right in the end at the positions asked for, at the two alone, at the five in a row
    """

    learned_after: float
    asked: float
    alone: float
    row: float


def which(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positions asked for in training, the two alone, the five in a row. (TEXT,) each, boolean"""
    pos = np.arange(TEXT)
    alone = np.isin(pos, random.permutation([5, 7, 9])[:2])
    row = np.isin(pos - random.integers(12, 18), range(5))
    return (pos >= LEFT) & ~alone & ~row, alone, row


def to_the_left(positions: str | Layer, seed: int, steps: int = 110) -> Outcome:
    """Train a Reader with these positions, a name of `new_positions` or a layer, and test it on 60 new texts."""
    random = np.random.default_rng(50 + seed)
    asked, alone, row = which(random)
    layer = new_positions(positions, random) if isinstance(positions, str) else positions
    model = Reader(layer, WORDS + 1, seed, words_ask=False)

    def texts(n: int) -> tuple[np.ndarray, np.ndarray]:
        ids = random.integers(1, WORDS + 1, (n, TEXT))
        return ids, np.concatenate([np.full((n, LEFT), PAD), ids[:, :-LEFT]], axis=1)

    def batch() -> tuple[np.ndarray, np.ndarray]:
        ids, targets = texts(16)
        return ids, np.where(asked, targets, PAD)

    test_ids, answers = texts(60)
    curve: list[Outcome] = []

    def watch(step: int) -> None:
        right = (model.forward(test_ids)[0].argmax(axis=-1) == answers).mean(axis=0)  # (T,)
        curve.append(Outcome(step, *(float(right[where].mean()) for where in (asked, alone, row))))

    train(model, batch, steps, watch)
    after = next((outcome.learned_after for outcome in curve if outcome.asked > 0.9), math.nan)
    return curve[-1]._replace(learned_after=after)
