"""A Transformer that reverses words, and eight bugs to plant in it (lesson 16).

A word is 2 to 5 random letters out of 8. With padding, </s> and <s> that makes V = 11 symbols. One word in five is kept
for tests: training never reads it. A bug is a copy of lessons/transformer.py in which a few characters of one function
differ. Each is a mistake that public implementations or many beginners have made.
Shapes: b sentences, s and t positions, v symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from types import ModuleType
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from exercises.hunts import variant
from scratchformer.nn.parameter import Array
from support.training import padded

PAD, EOS, BOS = range(3)
V = 11
Batch = tuple[Array, Array]
"""source (b, s): the letters and </s>; target (b, t + 1): <s>, the letters backwards and </s>"""

# The task -------------------------------------------------------------------------------------------------------------


def words(random: np.random.Generator, n: int, kept: bool = False) -> list[list[int]]:
    """n words for training, or n of those kept for tests."""
    drawn = (random.integers(3, V, random.integers(2, 6)).tolist() for _ in count())
    return [*islice((word for word in drawn if is_kept(word) == kept), n)]


def is_kept(word: list[int]) -> bool:
    """Choose one word in five for tests, as arbitrary as a random choice and the same every time."""
    return crc32(bytes(word)) % 5 == 0


def batch_of(some_words: list[list[int]]) -> Batch:
    return padded([[*word, EOS] for word in some_words]), padded([[BOS, *word[::-1], EOS] for word in some_words])


def fresh(seed: int, n: int = 32) -> Iterator[Batch]:
    """Batches for training, without end."""
    random = np.random.default_rng(seed)
    while True:
        yield batch_of(words(random, n))


# The bugs -------------------------------------------------------------------------------------------------------------

BUGS: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "target not shifted": {"loss_of": (("decode(target[:, :-1]", "decode(target[:, 1:]"),)},
    "no causal mask": {"decode": (("np.tri(target.shape[1], dtype=bool)", "np.True_"),)},
    "padding seen": {"decode": (("source != PAD", "source == source"),)},
    "repeats overwrite": {
        "embed": (("np.add.at(E.grad, ids, keep * dy * d_model**0.5)", "E.grad[ids] += keep * dy * d_model**0.5"),)
    },
    "softmax / batch": {"softmax": (("(dp - total(p * dp))", "(dp - total(p * dp)) / len(p)"),)},
    "gradient not cleared": {"adam": (("w.grad[...] = 0", "pass"),)},
    "embedding too large": {
        "new_model": (('(d_ff if name == "W_2" else d_model)', '{"W_2": d_ff, "E": 1}.get(name, d_model)'),)
    },
    "scaled by d_model": {"attention": (("Q.shape[-1] ** 0.5", "(Q.shape[-1] * Q.shape[-2]) ** 0.5"),)},
}
"""Name -> function of the file, and what is replaced in it by what."""


def planted(bug: str | None = None) -> ModuleType:
    """The file with a bug."""
    return variant(**BUGS[bug] if bug else {})


def new_model(file: ModuleType, seed: int) -> Any:
    file.rng = np.random.default_rng(seed)  # type: ignore[attr-defined]
    return file.new_model(V, d_model=32, d_ff=64, h=2, N=1, dtype="float64")


# What a model says ----------------------------------------------------------------------------------------------------


def logits_of(file: ModuleType, model: Any, source: Array, read: Array) -> Array:
    """source (b, s), the symbols so far (b, t) -> (b, t, v)"""
    memory, _ = file.encode(source, model, 0.0)
    return file.decode(read, memory, source, model, 0.0)[0] @ model.E.data.T


def guessed(file: ModuleType, model: Any, batch: Batch) -> Array:
    """The likeliest symbols, each as the model is trained to predict it: (b, t)"""
    source, target = batch
    decode, read = file.decode, {}

    def noting(ids: Array, *rest: Any) -> Any:
        read["ids"] = ids
        return decode(ids, *rest)

    file.decode = noting  # type: ignore[attr-defined]
    file.loss_of(source, target, model, eps_ls=0.0)
    file.decode = decode  # type: ignore[attr-defined]
    return logits_of(file, model, source, read["ids"]).argmax(axis=-1)


def written(file: ModuleType, model: Any, batch: Batch) -> Array:
    """The model's own writing, each symbol after its own symbols before it: (b, t)"""
    source, target = batch
    ids = np.full((len(source), 1), BOS)
    for _ in range(target.shape[1] - 1):
        ids = np.column_stack([ids, logits_of(file, model, source, ids)[:, -1].argmax(axis=-1)])
    return ids[:, 1:]


def symbols_right(ids: Array, target: Array) -> float:
    """The share of symbols that are right, </s> included."""
    return float((ids == target[:, 1:])[target[:, 1:] != PAD].mean())


def words_right(ids: Array, target: Array) -> float:
    """The share of whole words that are right, </s> included."""
    return float(((ids == target[:, 1:]) | (target[:, 1:] == PAD)).all(axis=1).mean())


# Is the gradient that of the loss? ------------------------------------------------------------------------------------


class Slopes(NamedTuple):
    """The slope of the loss as one weight moves in a random direction.

    backward  from its gradient
    measured  from two losses
    error     of the first, relative to the length of the gradient, or to a thousandth of that of all weights
    """

    backward: float
    measured: float
    error: float


def slopes(file: ModuleType, batch: Batch, step: float = 1e-6) -> dict[str, Slopes]:
    """name of a weight -> its slopes, in a new model"""
    model, random = new_model(file, 0), np.random.default_rng(1)
    file.loss_of(*batch, model, eps_ls=0.0)[1](1.0)
    all_of_it = sum((w.grad**2).sum() for w in model.weights.values()) ** 0.5
    found = {}
    for name, w in model.weights.items():
        u = random.standard_normal(w.data.shape)
        u /= np.linalg.norm(u)
        before, losses = w.data.copy(), []
        for change in (step, -step):
            w.data[...] = before + change * u
            losses.append(file.loss_of(*batch, model, eps_ls=0.0)[0])
        w.data[...] = before
        backward, measured = float((w.grad * u).sum()), float((losses[0] - losses[1]) / (2 * step))
        length = max(np.linalg.norm(w.grad), 1e-3 * all_of_it)
        found[name] = Slopes(backward, measured, abs(backward - measured) / length)
    return found
