"""The truth about a gradient, from forward alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scratchformer.nn.gradcheck import STEP


def numeric_gradient(f: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    """The derivatives of the number f(x) in each element of x, by central differences. x is left as it was.

    x float64 of any shape -> the same shape
    """
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = x.copy()
        moved[index] = x[index] + STEP
        above = f(moved)
        moved[index] = x[index] - STEP
        gradient[index] = (above - f(moved)) / (2 * STEP)
    return gradient
