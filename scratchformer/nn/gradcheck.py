"""Is a hand-written backward the derivative of its forward? Finite differences say.

For a layer y = f(x, w), choose a random gradient g of the output. Then L = sum(g y) is a number, backward claims dL/dx
and dL/dw, and for every direction u of x or w

    dL/dx . u  =  (L(x + h u) - L(x - h u)) / 2h  +  O(h^2)

The left side uses backward, the right side only forward. Both the direction and g are random: with g all ones, the
true gradient of a softmax is zero, and a backward that returns zeros would pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.parameter import Layer

STEP = 1e-5
RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-8
"""Some true gradients are exactly zero (the bias of the keys: softmax does not see a shift), so the error of a small
derivative is measured against ABSOLUTE_TOLERANCE / RELATIVE_TOLERANCE instead of against itself."""


class GradientError(NamedTuple):
    """The verdict on one input or parameter, in the direction in which backward and finite differences agree least."""

    name: str
    analytic: float  # what backward claims
    numeric: float  # what forward shows
    error: float  # |analytic - numeric| / max(|analytic|, |numeric|, 0.01)

    @property
    def passed(self) -> bool:
        """Whether the error is at most RELATIVE_TOLERANCE; False for NaN."""
        return self.error <= RELATIVE_TOLERANCE  # False for NaN too

    def __str__(self) -> str:
        verdict = "ok" if self.passed else "WRONG"
        return (
            f"{self.name}: backward {self.analytic:.9g}, finite differences {self.numeric:.9g}, "
            f"relative error {self.error:.1e} {verdict}"
        )


class GradientReport(list[GradientError]):
    """One entry per float input and parameter."""

    @property
    def passed(self) -> bool:
        """Whether there are entries and all of them have passed."""
        return bool(self) and all(entry.passed for entry in self)

    @property
    def worst(self) -> GradientError:
        """The entry with the largest error, NaN being the largest. Raises ValueError if there is no entry."""
        return max(self, key=lambda entry: np.inf if np.isnan(entry.error) else entry.error)

    def __str__(self) -> str:
        return "\n".join(str(entry) for entry in self)


def gradcheck(
    layer: Layer, *inputs: Any, rng: DropoutKey | None = None, directions: int = 4, seed: int = 0
) -> GradientReport:
    """Compare layer.backward with central differences of layer.forward, for every float input and every parameter.

    inputs      what forward takes; float64 arrays are differentiated, everything else is passed on as it is
    rng         a DropoutKey, to check with dropout on (the same key draws the same mask every time)
    directions  how many random directions for each array
    -> GradientReport; `.passed`, `.worst`, and print it to see both numbers of each entry

    Raises: TypeError if the parameters or inputs are float32, in which differences drown in rounding.
    """
    random = np.random.default_rng(seed)
    floats = [index for index, value in enumerate(inputs) if is_float_array(value)]
    parameters = layer.parameters()
    for name, array in [
        *((f"input {index}", inputs[index]) for index in floats),
        *((name, parameter.data) for name, parameter in parameters.items()),
    ]:
        if array.dtype != np.float64:
            raise TypeError(f"gradient checks need float64, and {name} is {array.dtype}")

    y, cache = layer.forward(*inputs, rng=rng)
    upstream = random.standard_normal(y.shape)
    before = {name: parameter.grad.copy() for name, parameter in parameters.items()}
    gradients = layer.backward(upstream, cache)
    if not isinstance(gradients, tuple):
        gradients = (gradients,) if floats else ()

    def loss() -> float:
        return float((layer.forward(*inputs, rng=rng)[0] * upstream).sum())

    checked = [(f"input {index}", inputs[index], gradient) for index, gradient in zip(floats, gradients, strict=True)]
    checked += [(name, parameter.data, parameter.grad - before[name]) for name, parameter in parameters.items()]
    return GradientReport(
        least_agreement(name, array, gradient, loss, directions, random) for name, array, gradient in checked
    )


def is_float_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def least_agreement(
    name: str, array: np.ndarray, gradient: np.ndarray, loss: Any, directions: int, random: np.random.Generator
) -> GradientError:
    """Try some random directions of `array`, in place, and report the one in which the gradient is furthest off."""
    if gradient.shape != array.shape:
        raise ValueError(f"{name} has shape {array.shape}, and its gradient {gradient.shape}")
    entries = []
    original = array.copy()
    for _ in range(directions):
        direction = random.standard_normal(array.shape)
        direction /= np.sqrt((direction**2).sum())
        try:
            array[...] = original + STEP * direction
            above = loss()
            array[...] = original - STEP * direction
            below = loss()
        finally:
            array[...] = original
        analytic, numeric = float((gradient * direction).sum()), (above - below) / (2 * STEP)
        scale = max(abs(analytic), abs(numeric), ABSOLUTE_TOLERANCE / RELATIVE_TOLERANCE)
        entries.append(GradientError(name, analytic, numeric, abs(analytic - numeric) / scale))
    return GradientReport(entries).worst
