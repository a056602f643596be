"""What a step from one position to another does to sinusoids (paper §3.5)."""

from __future__ import annotations

import numpy as np

from scratchformer.nn.layers import sinusoids


def shift_matrix(k: int, d_model: int) -> np.ndarray:
    """The rotation that leads from each position to the one k further on, for k < 0 to one before.

        PE(pos + k) = M PE(pos)   for every pos

    M (d_model, d_model) float64, of d_model / 2 blocks [[cos, sin], [-sin, cos]] of the angle by which the pair turns
    in k positions: PE(k) holds their sines and cosines.

    Raises: ValueError if d_model is odd: its last component has no partner to turn with.
    """
    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd: a rotation needs components in pairs")
    sin, cos = sinusoids(k, 1, d_model).reshape(-1, 2).T                           # (d_model / 2,) each
    M = np.zeros((d_model, d_model))
    even = np.arange(0, d_model, 2)
    M[even, even] = M[even + 1, even + 1] = cos
    M[even, even + 1], M[even + 1, even] = sin, -sin
    return M
