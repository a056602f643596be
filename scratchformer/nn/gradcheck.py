"""Is a hand-written backward the derivative of its forward? Finite differences say.

For a layer y = f(x, w), choose a random gradient g of the output. Then L = sum(g y) is a number, backward claims dL/dx
and dL/dw, and for every direction u of x or w

    dL/dx . u  =  (L(x + h u) - L(x - h u)) / 2h  +  O(h^2)

The left side uses backward, the right side only forward. Both the direction and g are random: with g all ones, the
true gradient of a softmax is zero, and a backward that returns zeros would pass. The same holds for LayerNorm if g is
parallel to x, so g comes from a stream of random numbers of its own, never from one that x may come from, too.

The check also covers the contract of `Layer`: forward and backward change none of their arguments, backward adds into
the gradients that are there, and another call before backward makes no difference.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.parameter import Layer, as_tuple

STEP = 1e-5
RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-8
"""Some true gradients are exactly zero (the bias of the keys: softmax does not see a shift), so the error of a small
derivative is measured against ABSOLUTE_TOLERANCE / RELATIVE_TOLERANCE instead of against itself."""

ENTROPY = int.from_bytes(b"scratchformer.nn.gradcheck", "big")
"""The seed of the checker's random numbers, together with the caller's. Nobody draws test data from it by accident."""

PARALLEL = 0.9999
"""Two arrays whose correlation exceeds this were drawn from one stream. Independent ones of 4 numbers reach it once in
10,000 times, larger ones practically never."""


class GradientError(NamedTuple):
    """The verdict on one input or parameter, in the direction in which backward and finite differences agree least."""

    name: str
    analytic: float  # what backward claims
    numeric: float  # what forward shows
    error: float  # |analytic - numeric| / max(|analytic|, |numeric|, 0.01)

    @property
    def passed(self) -> bool:
        """True if the error is at most RELATIVE_TOLERANCE; False for NaN."""
        return self.error <= RELATIVE_TOLERANCE

    def __str__(self) -> str:
        verdict = "ok" if self.passed else "WRONG"
        return (
            f"{self.name}: backward {self.analytic:.9g}, finite differences {self.numeric:.9g}, "
            f"relative error {self.error:.1e} {verdict}"
        )


class BrokenContract(UserError):
    """A layer's forward or backward does what `Layer` forbids."""


class GradientReport(list[GradientError]):
    """One entry per float input and parameter; `reason` says why backward is wrong, if that is known."""

    reason = ""

    @property
    def passed(self) -> bool:
        """True if there are entries and all of them have passed."""
        return bool(self) and all(entry.passed for entry in self)

    @property
    def worst(self) -> GradientError:
        """The entry with the largest error, NaN being the largest. Raises ValueError if there is no entry."""
        return max(self, key=lambda entry: np.inf if np.isnan(entry.error) else entry.error)

    def __str__(self) -> str:
        return "\n".join([*map(str, self), *filter(None, [self.reason])])


def gradcheck(
    layer: Layer, *inputs: Any, rng: DropoutKey | None = None, directions: int = 4, seed: int = 0
) -> GradientReport:
    """Compare layer.backward with central differences of layer.forward, for every float input and every parameter.

    inputs      what forward takes; float64 arrays are differentiated, everything else is passed on as it is
    rng         a DropoutKey, to check with dropout on (the same key draws the same mask every time)
    directions  how many random directions for each array
    seed        of all random numbers
    -> GradientReport; `.passed`, `.worst`, and print it to see both numbers of each entry

    A parameter whose numbers are all equal, such as a new gamma or bias, has random ones during the check: at 1 or 0
    some faults do not show. In the end, weights and gradients are what they were before.

    Raises: TypeError if parameters or inputs are float32, in which differences drown in rounding, or if an input holds
    float arrays within a tuple, list or dict. BrokenContract, a UserError, if forward returns no cache; if forward or
    backward changes one of its arguments; if backward replaces the array of a gradient instead of adding into it, or
    returns other gradients than one for each float input, of its shape. UserError if backward fails with a
    ValueError. ValueError if the gradient drawn for the output is parallel to an input or parameter: it shows nothing.
    """
    draw = random_arrays(seed)
    inputs = tuple(value.copy() if is_float_array(value) else value for value in inputs)  # each of them moves alone
    named_inputs = {f"input {index}": value for index, value in enumerate(inputs)}
    floats = {name: value for name, value in named_inputs.items() if is_float_array(value)}
    parameters = layer.parameters()
    weights = {name: parameter.data for name, parameter in parameters.items()}
    require_float64(named_inputs | weights)

    grads = {name: parameter.grad for name, parameter in parameters.items()}
    before = [(array, array.copy()) for array in (*weights.values(), *grads.values())]
    try:
        for array in weights.values():
            if array.size and np.ptp(array) == 0:
                array += 0.5 * draw(array.shape)
        upstream, of_inputs, of_weights, start = run_backward(layer, named_inputs, weights, grads, rng, draw)
        if len(of_inputs) != len(floats):
            returned = f"{len(of_inputs)} gradients" if of_inputs else "None"
            raise BrokenContract(
                f"{type(layer).__name__}.backward returns {returned}, and forward has {len(floats)} float inputs"
            )

        def loss() -> float:
            return float((layer.forward(*inputs, rng=rng)[0] * upstream).sum())

        def alone(start: dict) -> list:
            _, cache = forward_of(layer, *inputs, rng=rng)
            returned, of_weights = backward_of(layer, upstream, cache, grads, start)
            return [*returned, *of_weights]

        report = GradientReport(
            least_agreement(name, array, gradient, loss, directions, draw)
            for (name, array), gradient in zip((floats | weights).items(), [*of_inputs, *of_weights], strict=True)
        )
        if not report.passed:
            report.reason = reason_of([*of_inputs, *of_weights], alone, start)
        return report
    finally:
        for name, parameter in parameters.items():
            parameter.data, parameter.grad = weights[name], grads[name]
        for array, earlier in before:
            array[...] = earlier


def reason_of(found: list, alone: Callable[[dict], list], start: dict[str, np.ndarray]) -> str:
    """Say why backward may have found wrong gradients; `alone(start)` are those of a call undisturbed."""

    def differ(some: np.ndarray, others: np.ndarray) -> bool:
        return not np.allclose(some, others, rtol=1e-6, equal_nan=True)

    undisturbed, from_zero = alone(start), alone(dict.fromkeys(start, 0.0))
    if any(map(differ, found, undisturbed)):
        return "backward gives another result after a second forward: keep what it needs in the cache"
    of_weights = zip(reversed(start), reversed(undisturbed), reversed(from_zero))
    overwritten = [name for name, some, others in of_weights if differ(some, others)]
    return f"backward overwrites {overwritten[0]}.grad: add into it, `.grad += ...`" if overwritten else ""


def forward_of(layer: Layer, *inputs: Any, rng: DropoutKey | None) -> tuple[np.ndarray, Any]:
    """Raises BrokenContract if forward returns anything but its output and a cache."""
    result = layer.forward(*inputs, rng=rng)
    if not isinstance(result, tuple) or len(result) != 2:
        raise BrokenContract(f"{type(layer).__name__}.forward must return (output, cache)")
    return result


def backward_of(layer: Layer, dy: np.ndarray, cache: Any, grads: dict[str, np.ndarray], start: dict) -> tuple:
    """Run backward on gradients that start at these numbers -> the gradients of the inputs, those of the parameters

    Raises UserError with the line of the layer's code if shapes do not fit.
    """
    for name, grad in grads.items():
        grad[...] = start[name]
    try:
        gradients = layer.backward(dy, cache)
    except ValueError as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"line {at.lineno} of {Path(at.filename).name}, `{at.line}`"
        raise UserError(f"{type(layer).__name__}.backward fails in {place}: {error}") from error
    return () if gradients is None else as_tuple(gradients), [grads[name] - start[name] for name in grads]


def require_float64(arrays: dict[str, Any]) -> None:
    """Raises TypeError for a float array of another type, and for one that is not differentiated."""
    for name, value in arrays.items():
        for array in filter(is_float_array, arrays_in(value)):
            if array is not value:
                raise TypeError(f"{name} holds a float array in a {type(value).__name__}: make it an input of its own")
            if array.dtype != np.float64:
                raise TypeError(f"gradient checks need float64, and {name} is {array.dtype}")


def run_backward(
    layer: Layer,
    named_inputs: dict[str, Any],
    weights: dict[str, np.ndarray],
    grads: dict[str, np.ndarray],
    rng: DropoutKey | None,
    draw: Draw,
) -> tuple[np.ndarray, tuple, list[np.ndarray], dict[str, np.ndarray]]:
    """Forward and backward, held to the contract of `Layer`.

    -> the gradient drawn for the output; the gradients of the float inputs; those of the parameters; where these began

    Another call of forward and backward in between must make no difference, nor what the gradients were before.
    """
    inputs, arguments = named_inputs.values(), named_inputs | weights
    with unchanged(f"{type(layer).__name__}.forward", arguments):
        y, cache = forward_of(layer, *inputs, rng=rng)
    upstream = draw(y.shape)
    require_not_parallel(upstream, arguments)
    other_key = rng and rng._replace(step=rng.step + 1)
    other_y, other_cache = layer.forward(*(map_arrays(reordered, value) for value in inputs), rng=other_key)
    backward_of(layer, draw(other_y.shape), other_cache, grads, start=grads)

    start = {name: draw(grad.shape) for name, grad in grads.items()}
    with unchanged(f"{type(layer).__name__}.backward", arguments | {"dy": upstream, "the cache": cache}):
        of_inputs, of_weights = backward_of(layer, upstream, cache, grads, start)
    for name, parameter in layer.parameters().items():
        if parameter.grad is not grads[name]:
            raise BrokenContract(
                f"{type(layer).__name__}.backward replaces {name}.grad by another array, so the optimizer never sees "
                "the gradient: add into the array that is there, `.grad += ...`"
            )
    return upstream, of_inputs, of_weights, start


Draw = Callable[[tuple[int, ...]], np.ndarray]


def random_arrays(seed: int) -> Draw:
    """A function from a shape to an array of normal numbers, each from a stream of its own."""
    streams = np.random.SeedSequence([ENTROPY, seed])
    return lambda shape: np.asarray(np.random.default_rng(*streams.spawn(1)).standard_normal(shape))


def is_float_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def require_not_parallel(upstream: np.ndarray, arrays: dict[str, Any]) -> None:
    """Raises ValueError if the gradient of the output is a multiple of one of the arrays, plus a constant.

    Arrays of different sizes are compared where both have numbers: a longer one may begin as a shorter one does.
    """
    for name, array in arrays.items():
        size = min(array.size, upstream.size) if is_float_array(array) else 0
        if size < 4:
            continue
        a, g = (each.reshape(-1)[:size] - each.reshape(-1)[:size].mean() for each in (array, upstream))
        if abs(a @ g) > PARALLEL * np.sqrt((a @ a) * (g @ g)):
            raise ValueError(
                f"the gradient drawn for the output is parallel to {name}, so some wrong gradients would pass: "
                "give the check another `seed`"
            )


@contextmanager
def unchanged(call: str, arguments: dict[str, Any]) -> Iterator[None]:
    """Raises BrokenContract if the block changes an array in these arguments of forward or backward."""
    before = [(name, array, array.copy()) for name, value in arguments.items() for array in arrays_in(value)]
    yield
    for name, array, copy in before:
        if not np.array_equal(array, copy, equal_nan=array.dtype.kind == "f"):
            raise BrokenContract(f"{call} changes {name}: write in place only into arrays that {call} has made")


def arrays_in(*things: Any) -> Iterator[np.ndarray]:
    """Every array in nested tuples, lists and dicts: inputs, masks, caches."""
    for thing in things:
        if isinstance(thing, np.ndarray):
            yield thing
        elif isinstance(thing, (tuple, list)):
            yield from arrays_in(*thing)
        elif isinstance(thing, dict):
            yield from arrays_in(*thing.values())


def map_arrays(function: Callable[[np.ndarray], np.ndarray], thing: Any) -> Any:
    """The same nested tuples, lists and dicts with every array replaced by function(array)."""
    if isinstance(thing, np.ndarray):
        return function(thing)
    if isinstance(thing, dict):
        return {key: map_arrays(function, part) for key, part in thing.items()}
    if isinstance(thing, (tuple, list)):
        parts = [map_arrays(function, part) for part in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    return thing


def reordered(array: np.ndarray) -> np.ndarray:
    """Valid numbers for another call: the same ones in reverse order. Zeros stay, which are padding where it may be."""
    result, there = array.copy(), array != 0
    result[there] = array[there][::-1]
    return result


def least_agreement(
    name: str, array: np.ndarray, gradient: Any, loss: Callable[[], float], directions: int, draw: Draw
) -> GradientError:
    """Try some random directions of `array`, in place, and report the one in which the gradient is furthest off."""
    if getattr(gradient, "shape", None) != array.shape:
        found = getattr(gradient, "shape", f"is a {type(gradient).__name__}")
        raise BrokenContract(f"{name} has shape {array.shape}, and its gradient {found}")
    entries = []
    original = array.copy()
    for _ in range(directions):
        direction = draw(array.shape)
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
