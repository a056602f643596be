"""How sure is a measured number? Intervals, standard errors, rank correlations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

Z = 1.959964
"""A normal variable lies within this many standard deviations in 95 % of cases."""


def wilson_interval(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `right` of n are seen, in percent (Wilson 1927)."""
    share, z2 = right / n, Z**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))


def mean_and_error(values: np.ndarray, cases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean per case (a token, say) of sums over the cases of each sentence, and its standard error over sentences
    (of a ratio, linearised; infinite for one sentence).

    values (sentences, ...), cases (sentences,) -> (...), (...)
    """
    n, total = len(cases), cases.sum()
    mean = values.sum(axis=0) / total
    residuals = values - mean * cases.reshape(-1, *[1] * (values.ndim - 1))
    if n == 1:
        return mean, np.full(mean.shape, np.inf)
    return mean, np.sqrt(n / (n - 1) * (residuals**2).sum(axis=0)) / total


N_SAMPLES = 1000
"""How many sets the bootstrap draws."""


class Correlation(NamedTuple):
    """A rank correlation (Spearman), -1 to 1, and the limits of its 95 % interval.

    The interval is for other things like these: they are drawn with replacement (percentile bootstrap, seeded).
    """

    rho: float
    low: float
    high: float


def rank_correlation(some: np.ndarray, others: np.ndarray) -> Correlation:
    """How far two scores of the same things agree on their order."""
    some, others = some.reshape(-1), others.reshape(-1)
    drawn = np.random.default_rng(0).integers(0, len(some), (N_SAMPLES, len(some)))
    low, high = np.nanquantile(spearman(some[drawn], others[drawn]), [0.025, 0.975])
    return Correlation(float(spearman(some, others)), float(low), float(high))


def spearman(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The correlation of the ranks, (..., n) and (..., n) -> (...); NaN if all numbers of one are equal."""
    a, b = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in map(mean_ranks, (some, others)))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(axis=-1) / np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """From 1, along the last axis; equal numbers share the mean of their ranks. (..., n) -> (..., n)"""
    one, other = values[..., :, None], values[..., None, :]
    return (other < one).sum(axis=-1) + ((other == one).sum(axis=-1) + 1) / 2
