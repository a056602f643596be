"""Confidence and accuracy of a model, and the lowest smoothed loss (lesson 14).

A model is calibrated if, of all its guesses with probability 0.8, eight in ten are right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scratchformer.nn.loss import Smoothing, cross_entropy

# The lowest loss ------------------------------------------------------------------------------------------------------


def smoothed_target(V: int, smoothing: float, spread: Smoothing = "others") -> np.ndarray:
    """The distribution that a smoothed loss asks for: q (V,), sum 1, the right class being the last.

    Taken from the loss itself, whose gradient is p - q.
    """
    _, _, dlogits = cross_entropy(np.zeros((1, V)), np.array([V - 1]), smoothing, spread)
    return 1 / V - dlogits[0]


def loss_floor(V: int, smoothing: float, spread: Smoothing = "others") -> float:
    """The lowest smoothed loss of one token, in nats: the entropy of its target (0 ln 0 = 0)."""
    q = smoothed_target(V, smoothing, spread)
    q = q[q > 0]
    return float(-(q * np.log(q)).sum())


# Calibration ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bins:
    """Guesses sorted into bins of equal width by their probability; NaN where a bin is empty.

    count (bins,) int;  confidence (bins,) their mean probability;  accuracy (bins,) the share that is right
    """

    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of confidence and accuracy, each bin by its count
        (Guo et al. 2017, equation 3; there as here with bins of equal width)."""
        filled = self.count > 0
        gaps = np.abs(self.confidence - self.accuracy)[filled]
        return float((gaps * self.count[filled]).sum() / self.count.sum())


def reliability(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> Bins:
    """Sort guesses into bins.   confidence (n,), 0 to 1: the probability of each guess;  right (n,) bool

    A guess on a boundary belongs to the upper bin, one of probability 1 to the last.
    """
    at = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(at, minlength=bins)
    n = np.where(count, count, np.nan)
    return Bins(count, np.bincount(at, confidence, bins) / n, np.bincount(at, right, bins) / n)
