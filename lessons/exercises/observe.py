"""Call a function as it is meant to be called, and tell all that comes out of it, in the order of calculation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from exercises.function import Call, Function
from exercises.halves import Slip, both
from exercises.source import functions_of_ours

STEP = 1e-6
"""Of finite differences in float64."""


def names_of(function: Function, call: Call) -> dict[str, Any]:
    """The arguments by their names."""
    arguments = functions_of_ours(function.file)[function.name].args
    return {**dict(zip((a.arg for a in arguments.args), call.args)), **call.kwargs, **call.named}


def weights_of(values: dict[str, Any]) -> dict[str, SimpleNamespace]:
    """The weights among them by their names, those of a whole model, too."""
    found = {}
    for name, value in values.items():
        if hasattr(value, "weights"):
            found.update(value.weights)
        elif hasattr(value, "grad"):
            found[name] = value
    return found


def require_unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in after.items():
        if isinstance(value, (np.ndarray, list, dict)) and not same(value, before[name]):
            raise Slip(f"the argument {name} is changed in place: make a new one")
    old = weights_of(before)
    for name, W in weights_of(after).items():
        if not same(W.data, old[name].data):
            raise Slip(f"{name}.data is changed: only `adam` may change weights")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return str(a) == str(b)


@dataclass(frozen=True)
class Plain:
    """Observe a function that returns one value, called `name` in messages."""

    name: str

    def __call__(self, module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
        module.rng = np.random.default_rng(seed)  # type: ignore[attr-defined]
        before = copy.deepcopy(names_of(function, call))
        yield self.name, getattr(module, function.name)(*call.args, **call.kwargs)
        require_unchanged(before, names_of(function, call))


@dataclass(frozen=True)
class Halves:
    """Observe a differentiable function: y, then what backward returns, then what it adds to the gradients of weights.

    returns  names: "dx" for an array, ("dx", "dmemory") for a tuple, None for nothing
    y        what forward gives is called
    """

    returns: str | tuple[str, ...] | None
    y: str = "y"

    def __call__(self, module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
        values = names_of(function, call)
        weights, before = weights_of(values), copy.deepcopy(values)
        random = np.random.default_rng([seed, 1])  # a stream of its own: no gradient equals an input by chance
        start = {name: random.normal(size=W.data.shape) for name, W in weights.items()}
        set_gradients(weights, start, 1)
        y, backward = self.forward(module, function, call, seed)
        yield self.y, y
        dy = upstream(y, seed)
        given = copy.copy(dy)
        returned = backward(given)
        require_unchanged({**before, "dy": dy}, {**values, "dy": given})
        returned = self.named(function, call, returned)
        yield from returned.items()
        gradients = {name: np.array(W.grad) for name, W in weights.items()}
        set_gradients(weights, start, 2)
        _, backward = self.forward(module, function, call, seed)
        self.forward(module, function, moved(call, function, random), seed)
        again = self.named(function, call, backward(dy))
        for name, W in weights.items():
            if alike(W.grad, gradients[name]):
                raise Slip(f"{name}.grad is overwritten: gradients add up, so write {name}.grad += ...")
            yield f"{name}.grad", gradients[name] - start[name]
        if not all(alike(again[name], value) for name, value in returned.items()):
            raise Slip("backward uses what a later call has calculated: keep it in variables of the function")

    def forward(self, module: ModuleType, function: Function, call: Call, seed: int) -> tuple[Any, Any]:
        module.rng = np.random.default_rng(seed)  # type: ignore[attr-defined]
        return both(getattr(module, function.name)(*call.args, **call.kwargs), function.name)

    def named(self, function: Function, call: Call, returned: Any) -> dict[str, Any]:
        """Give what backward returns its names. Raises Slip for another number of things."""
        returns = call.returns or self.returns
        if returns is None:
            return {}
        if isinstance(returns, str):
            if isinstance(returned, tuple):
                raise Slip(
                    f"backward of {function.name} returns a tuple of {len(returned)}, and should return {returns}"
                )
            if returned is None:
                raise Slip(f"backward of {function.name} returns None: it ends with `return {returns}`")
            return {returns: returned}
        if not isinstance(returned, tuple | list) or len(returned) != len(returns):
            wanted = ", ".join(returns) + ("," if len(returns) == 1 else "")
            kind = f"{len(returned)} things" if isinstance(returned, tuple | list) else f"a {type(returned).__name__}"
            kind = "None" if returned is None else kind
            raise Slip(f"backward of {function.name} returns {kind}, and should return the tuple ({wanted})")
        return dict(zip(returns, returned))

    def difference(self, module: ModuleType, function: Function, call: Call, seed: int) -> float:
        """The largest relative error of the gradients, each along a random direction, against finite differences."""
        gradients = dict(self(module, function, copy.deepcopy(call), seed))
        dy = upstream(gradients.pop(self.y), seed)
        worst = 0.0
        for name, gradient in gradients.items():
            argument = name[1:] if not name.endswith(".grad") else name[: -len(".grad")]
            direction = np.random.default_rng([seed, 3]).normal(size=np.shape(gradient))
            losses = []
            for step in (STEP, -STEP):
                there = copy.deepcopy(call)
                values = names_of(function, there)
                array = weights_of(values)[argument].data if name.endswith(".grad") else values[argument]
                array += step * direction
                losses.append(np.sum(self.forward(module, function, there, seed)[0] * dy))
            numeric = (losses[0] - losses[1]) / (2 * STEP)
            exact = np.sum(gradient * direction)
            scale = np.sqrt(np.sum(np.square(gradient) * np.square(direction))) + 1e-3
            worst = max(worst, float(abs(numeric - exact) / scale))
        return worst


def alike(a: Any, b: Any) -> bool:
    """Tell whether two results of the same calculation agree; products may differ by rounding from call to call."""
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-9, atol=1e-12)


def set_gradients(weights: dict[str, SimpleNamespace], start: dict[str, np.ndarray], times: int) -> None:
    for name, W in weights.items():
        W.grad = times * start[name]


def upstream(y: Any, seed: int) -> Any:
    """The gradient of y, random numbers of a stream of their own."""
    random = np.random.default_rng([seed, 2])
    return random.normal(size=np.shape(y)) if np.shape(y) else float(random.normal())


def moved(call: Call, function: Function, random: np.random.Generator) -> Call:
    """The same call with other numbers."""
    other = copy.deepcopy(call)
    for value in names_of(function, other).values():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            value += random.normal(size=value.shape)
    return other
