"""A task for attention alone: a query has to learn to put its weight on one given key (lesson 05)."""

from __future__ import annotations

import numpy as np

from scratchformer.nn.parameter import Array

QUERIES, KEYS, STEPS = 24, 32, 120
RATES = (0.01, 0.1, 1, 10, 100, 1000)


def softmax(z: Array) -> Array:
    """z (..., S) -> weights (..., S): positive, and each row adds up to 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def learn_to_look(
    d_k: int, factor: float, rate: float, start: float = 1, on_log: bool = False, seed: int = 0, steps: int = STEPS
) -> Array:
    """Each of QUERIES queries has KEYS random keys of its own, and takes `steps` gradient steps.

    factor  the weights are softmax(factor * q k^T)
    start   the standard deviation of the queries' numbers before the first step
    on_log  the steps raise the logarithm of the wanted key's weight, and not the weight itself

    -> the weight that each query puts on the wanted key in the end (QUERIES,)
    """
    random = np.random.default_rng(seed)
    q = start * random.normal(size=(QUERIES, 1, d_k))
    keys = random.normal(size=(QUERIES, KEYS, d_k))
    wanted = np.eye(KEYS)[random.integers(0, KEYS, QUERIES)][:, None]  # (QUERIES, 1, KEYS): 1 at the wanted key
    for _ in range(steps):
        weights = softmax(factor * q @ keys.swapaxes(1, 2))
        # what each key offers: the wanted one 1, the others 0; so the average is the weight of the wanted one
        average = (weights * wanted).sum(axis=-1, keepdims=True)
        dz = wanted - weights if on_log else weights * (wanted - average)
        q += rate * factor * dz @ keys
    weights = softmax(factor * q @ keys.swapaxes(1, 2))
    return np.asarray((weights * wanted).sum(axis=(1, 2)))


def successes(weights: Array) -> int:
    """Count the queries that put more than half of their weight on the wanted key."""
    return int((weights > 0.5).sum())


def found(d_k: int, factor: float, start: float = 1, on_log: bool = False, seed: int = 0) -> int:
    """The successes at the best of RATES."""
    return max(successes(learn_to_look(d_k, factor, rate, start, on_log, seed=seed)) for rate in RATES)
