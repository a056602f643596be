"""Say the latest name so far: order at any distance, and a small reader with four kinds of positions (lesson 10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import more
import numpy as np
import transformer
from transformer import attention, differentiable, linear

V, NAMES, LONGEST = 20, 9, 20
"""Names are the ids 1 to 8, other words 9 to 19. Training has sequences of 5 to 20 words."""

D_MODEL, H, D_K = 32, 4, 8
"""Sizes of the reader. A head has four pairs of numbers."""

Kind = Literal["none", "sinusoids", "ALiBi", "RoPE"]


def latest_name(random: np.random.Generator, B: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A sequence begins with a name; later, one word in five is one. -> words (B, n), the latest name at each (B, n)"""
    is_name = random.random((B, n)) < 0.2
    is_name[:, 0] = True
    ids = np.where(is_name, random.integers(1, NAMES, (B, n)), random.integers(NAMES, V, (B, n)))
    latest = np.maximum.accumulate(np.where(is_name, np.arange(n), 0), axis=1)
    return ids, np.take_along_axis(ids, latest, axis=1)


class Reader:
    """Words as vectors, one causal attention of four heads, and a linear map to the answers.

    kind     of its positions
    slow     pairs of numbers that RoPE turns at a third of their speed: to change after training, not for backward
    sees     a word sees so many words, itself and those before it
    """

    def __init__(self, kind: Kind, seed: int) -> None:
        random = np.random.default_rng(seed)
        shapes = {"E": (V, D_MODEL), **dict.fromkeys(("W_Q", "W_K", "W_V"), (D_MODEL, H, D_K))}
        shapes |= {"W_O": (H, D_K, D_MODEL), "W": (D_MODEL, V)}
        self.weights = {}
        for name, shape in shapes.items():
            w = (D_MODEL**-0.5 * random.standard_normal(shape)).astype("float32")
            self.weights[name] = SimpleNamespace(data=w, grad=0 * w, m=0 * w, v=0 * w)
        self.E = self.weights["E"]
        self.kind, self.slow, self.sees = kind, (), 1000  # type: Kind, tuple[int, ...], int

    def loss(self, ids: np.ndarray, answers: np.ndarray) -> tuple[float, Any]:
        """-> the loss of all answers in nats, and its backward, which fills the gradients"""
        loss, backward = loss_of(self, ids, answers)
        return float(loss), backward

    def accuracy(self, n: int) -> float:
        """The share of 400 sequences of n words whose last answer is right."""
        ids, answers = latest_name(np.random.default_rng(7), 400, n)
        return float((logits_of(self, ids)[0][:, -1].argmax(axis=-1) == answers[:, -1]).mean())

    def weight_of_oldest(self, n: int) -> float:
        """The weight that the last of n words gives to the 20 oldest ones, mean over heads and 400 sequences."""
        ids, _ = latest_name(np.random.default_rng(7), 400, n)
        Q, K, _ = queries_and_keys(self, vectors(self, ids)[0])
        scores = np.einsum("bhk,bshk->bhs", Q[:, -1], K) / Q.shape[-1] ** 0.5
        return float(np.exp(transformer.log_softmax(scores))[..., :20].sum(axis=-1).mean())

    def score_of_a_name(self, ahead: int, back: int) -> np.ndarray:
        """The score of a name from `ahead` words after the word that asks to `back` words before it.

        Mean over all names and all words that ask, in each head. -> (h, ahead + 1 + back)
        """
        name, asks = np.meshgrid(np.arange(1, NAMES), np.arange(1, V))
        ids = [np.repeat(each.reshape(-1, 1), ahead + 1 + back, axis=1) for each in (asks, name)]
        (Q, _, _), (_, K, _) = (queries_and_keys(self, vectors(self, each)[0]) for each in ids)
        scores = np.einsum("bhk,bshk->bhs", Q[:, back], K) / Q.shape[-1] ** 0.5
        return scores.mean(axis=0)[:, ::-1]


@differentiable
def vectors(reader, ids):
    """E[ids] sqrt(d_model), with sinusoids if the reader has them."""
    x = reader.E.data[ids] * D_MODEL**0.5
    if reader.kind == "sinusoids":
        x = x + transformer.positional_encoding(ids.shape[1], D_MODEL).astype(x.dtype)
    dx = yield x
    np.add.at(reader.E.grad, ids, dx * D_MODEL**0.5)


def queries_and_keys(reader, x):
    """-> queries and keys with their positions, and a backward from their gradients to dx"""
    (Q, Q_backward), (K, K_backward) = (linear("btd,dhk->bthk", x, reader.weights[name]) for name in ("W_Q", "W_K"))
    if reader.kind == "RoPE":
        turned = [slowed(each, reader.slow) if reader.slow else more.rope(each) for each in (Q, K)]
        (Q, turn_Q_back), (K, turn_K_back) = turned
        return Q, K, lambda dQ, dK: Q_backward(turn_Q_back(dQ)) + K_backward(turn_K_back(dK))
    if reader.kind == "ALiBi":
        # Score - m (t - s): one more number, 1 in each query and m s in each key. Softmax ignores -m t, which is the
        # same for all keys. `longer` makes up for the division by sqrt(d_k + 1) instead of sqrt(d_k).
        longer = ((D_K + 1) / D_K) ** 0.5
        slopes = 2.0 ** (-8 * np.arange(1, H + 1) / H)
        m_s = np.arange(x.shape[1])[:, None, None] * slopes[:, None] * (D_K + 1) ** 0.5  # (t, h, 1)
        Q = np.concatenate([Q * longer, np.ones_like(Q[..., :1])], axis=-1)
        K = np.concatenate([K, np.broadcast_to(m_s.astype(K.dtype), K[..., :1].shape)], axis=-1)
        return Q, K, lambda dQ, dK: Q_backward(dQ[..., :-1] * longer) + K_backward(dK[..., :-1])
    return Q, K, lambda dQ, dK: Q_backward(dQ) + K_backward(dK)


def slowed(x, pairs):
    """`more.rope`, but these pairs turn at a third of their speed. -> y, no backward"""
    speeds = 10000.0 ** (-np.arange(0, D_K, 2) / D_K)
    speeds[list(pairs)] /= 3
    a, b = np.split(x, 2, axis=-1)
    z = (a + 1j * b) * np.exp(1j * np.arange(x.shape[1])[:, None, None] * speeds)
    return np.concatenate([z.real, z.imag], axis=-1).astype(x.dtype), None


def seen(t, words):
    """True where a word sees another: itself and those before it, so many in all. (t, t)"""
    return np.tri(t, dtype=bool) & ~np.tri(t, k=-words, dtype=bool)


@differentiable
def logits_of(reader, ids):
    """ids (b, t) -> logits (b, t, v)"""
    w = reader.weights
    x, vectors_backward = vectors(reader, ids)
    Q, K, back_to_x = queries_and_keys(reader, x)
    values, values_backward = linear("btd,dhk->bthk", x, w["W_V"])
    heads, heads_backward = attention(Q, K, values, seen(ids.shape[1], reader.sees))
    y, y_backward = linear("bthk,hkd->btd", heads, w["W_O"])
    logits, logits_backward = linear("btd,dv->btv", y, w["W"])
    dlogits = yield logits
    dQ, dK, dvalues = heads_backward(y_backward(logits_backward(dlogits)))
    vectors_backward(back_to_x(dQ, dK) + values_backward(dvalues))


@differentiable
def loss_of(reader, ids, answers):
    """The mean cross-entropy of all answers, in nats."""
    logits, logits_backward = logits_of(reader, ids)
    loss, loss_backward = transformer.cross_entropy(logits.reshape(-1, V), answers.ravel(), 0.0)
    dloss = yield loss
    logits_backward(loss_backward(dloss).reshape(logits.shape))


def trained(kind: Kind, seed: int, steps: int = 300) -> Reader:
    """A reader after training on 16 sequences of one length at each step."""
    random, reader = np.random.default_rng(seed + 100), Reader(kind, seed)
    for step in range(1, steps + 1):
        _, backward = reader.loss(*latest_name(random, 16, int(random.integers(5, LONGEST + 1))))
        backward(1.0)
        transformer.adam(reader, step, warmup_steps=60)
    return reader
