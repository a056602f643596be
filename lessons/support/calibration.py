"""Confidence and accuracy of a model (lesson 14).

A model is calibrated if, of all its guesses with probability 0.8, eight in ten are right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
