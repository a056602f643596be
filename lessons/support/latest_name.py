"""Say the latest name so far: order at any distance, and a reader with five kinds of positions (lesson 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention, attention_weights
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, LearnedPositions, Linear, PositionalEncoding
from scratchformer.nn.parameter import Array, Layer
from support.positions import AlibiAttention, RotaryAttention, rotated
from support.training import Chain, learn

V, NAMES, LONGEST = 20, 9, 20
"""Names are the ids 1 to 8, other words 9 to 19. Training has sequences of 5 to 20 words."""

KINDS = ("none", "learned", "sinusoidal", "ALiBi", "rotary")


def latest_name(random: np.random.Generator, B: int, n: int) -> tuple[Array, Array]:
    """A sequence begins with a name; later, one word in five is one. -> words (B, n), the latest name at each (B, n)"""
    is_name = random.random((B, n)) < 0.2
    is_name[:, 0] = True
    ids = np.where(is_name, random.integers(1, NAMES, (B, n)), random.integers(NAMES, V, (B, n)))
    latest = np.maximum.accumulate(np.where(is_name, np.arange(n), 0), axis=1)
    return ids, np.take_along_axis(ids, latest, axis=1)


ADDED: dict[str, Callable[[np.random.Generator, int], Layer]] = {
    "learned": lambda random, d_model: LearnedPositions(64, d_model, random),
    "sinusoidal": lambda random, d_model: PositionalEncoding(),
}
IN_ATTENTION: dict[str, type[ScaledDotProductAttention]] = {"ALiBi": AlibiAttention, "rotary": RotaryAttention}


class Reader(Chain):
    """Words, positions of a kind, one causal attention of four heads, scores of the answers.

    forward(ids (B, n)) -> scores (B, n, V), cache
    """

    def __init__(self, kind: str, seed: int, d_model: int = 32, h: int = 4) -> None:
        random = np.random.default_rng(seed)
        self.attention = SelfAttention(d_model, h, random)
        self.attention.attention = IN_ATTENTION.get(kind, ScaledDotProductAttention)()
        words = Embedding(Embedding.new_weight(V, d_model, random, "float32"))
        added = [ADDED[kind](random, d_model)] if kind in ADDED else []
        super().__init__([words, *added, self.attention, Linear(d_model, V, random)])

    def mask(self, x: Array) -> Mask:
        return Mask(causal=True)

    def accuracy(self, n: int) -> float:
        """The share of 200 sequences of n words whose last answer is right."""
        ids, answers = latest_name(np.random.default_rng(7), 200, n)
        return float((self.forward(ids)[0][:, -1].argmax(axis=-1) == answers[:, -1]).mean())


def trained(kind: str, seed: int, steps: int = 200) -> Reader:
    """A reader after training on 16 sequences of one length at each step."""
    random = np.random.default_rng(seed + 100)
    lengths = (int(random.integers(5, LONGEST + 1)) for _ in range(steps))
    batches = (((ids,), answers) for ids, answers in (latest_name(random, 16, n) for n in lengths))
    reader = Reader(kind, seed)
    learn(reader, batches, lambda step: 0.015 * min(1, step / 30, (steps - step + 1) / 100))  # up, level, and down
    return reader


class NoNewDistances(RotaryAttention):
    """As trained, but to some pairs of components no key seems further from the last query than in training."""

    def __init__(self, *pairs: int) -> None:
        super().__init__()
        self.pairs = pairs

    def forward(
        self, q: Array, k: Array, v: Array, mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        S = k.shape[1]
        turned, nearer = (rotated(k, where) for where in (np.arange(S), np.maximum(np.arange(S), S - LONGEST)))
        for i in self.pairs:
            turned[..., 2 * i : 2 * i + 2] = nearer[..., 2 * i : 2 * i + 2]
        return ScaledDotProductAttention.forward(self, rotated(q, np.arange(S)), turned, v, mask)


def without_new_distances(readers: list[Reader], *pairs: int, n: int = 60) -> tuple[float, float]:
    """Rotary readers, at n words. -> accuracy, and the weight on the 20 keys that are furthest away; means over both"""
    found = []
    for reader in readers:
        kept, reader.attention.attention = reader.attention.attention, NoNewDistances(*pairs)
        _, cache = reader.forward(latest_name(np.random.default_rng(7), 200, n)[0])
        (weights,) = attention_weights(cache)  # (B, H, n, n)
        found.append((reader.accuracy(n), weights[:, :, -1, :20].sum(axis=-1).mean()))
        reader.attention.attention = kept
    accuracy, far = np.mean(found, axis=0)
    return float(accuracy), float(far)
