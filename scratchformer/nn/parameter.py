"""What a model is made of: parameters, the layers that own them, and the one flat buffer they live in."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy as np

Array = Any
"""A NumPy array, or an array of any library with NumPy's interface (CuPy)."""


class Parameter:
    """A weight and its gradient: two arrays of the same shape.

    Both have one dtype; only where weights are stored with less precision, gradients stay float32. `grad` is only ever
    added to (`+=`) or overwritten in place (`[...] =`): both arrays may be views into the flat buffers of a
    `ParameterStore`, and `p.grad = p.grad + g` would cut the view loose.
    """

    def __init__(self, data: Array) -> None:
        self.data = data
        self.grad = np.zeros_like(data)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def __repr__(self) -> str:
        return f"Parameter{self.data.shape}"


class Layer:
    """Whatever has a forward and a backward.

        forward(*inputs, rng=None) -> (output, cache)
        backward(doutput, cache)   -> the gradients of the float inputs, in forward's order

    A layer holds parameters, child layers and constants, and nothing about a call: all that backward needs travels in
    the cache. So one layer may be called several times before its backward, in any order. A stack of layers empties its
    cache on the way back, so a cache serves one backward.

    `rng` is a `DropoutKey`; None means no dropout. `backward` adds into `Parameter.grad`, and returns one array for one
    float input, a tuple for several.
    """

    forward: Callable[..., tuple[Array, Any]]
    backward: Callable[..., Any]

    def parameters(self) -> dict[str, Parameter]:
        """Dotted name -> Parameter in order of definition; a Parameter that is shared appears once."""
        first_names: dict[int, tuple[str, Parameter]] = {}
        for name, parameter in self._named_parameters():
            first_names.setdefault(id(parameter), (name, parameter))
        return dict(first_names.values())

    def _named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            for path, item in enumerate_named(name, value):
                if isinstance(item, Parameter):
                    yield path, item
                elif isinstance(item, Layer):
                    for inner, parameter in item._named_parameters():
                        yield f"{path}.{inner}", parameter

    def zero_grad(self) -> None:
        for parameter in self.parameters().values():
            parameter.grad[...] = 0


def enumerate_named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value under its name, or the items of a list under `name.0`, `name.1`, ..."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield f"{name}.{index}", item
    else:
        yield name, value


class ParameterStore:
    """All parameters of a model in one flat array, all gradients in another.

    Optimizer, norm and (across devices) all-reduce then work on one array instead of hundreds. The order is that of
    definition, layer after layer as in forward: backward fills the gradient from the end to the beginning.

    data, grad: (n_parameters,) arrays of one dtype. Afterwards each Parameter's `data` and `grad` are views into them.
    stored: what the parameters' `data` are views into: `data` itself, or a copy of it with less precision.
    """

    def __init__(self, parameters: dict[str, Parameter]) -> None:
        self.parameters = parameters
        data = np.concatenate([parameter.data.reshape(-1) for parameter in parameters.values()])
        self.hold(data, np.zeros_like(data))

    def hold(self, data: Array, grad: Array, stored: Array | None = None) -> None:
        """Take these flat arrays, and let the parameters be views into them. Models may share `data`."""
        self.data, self.grad, self.stored = data, grad, data if stored is None else stored
        self.refresh()
        grads = self.named_views(grad)
        for name, view in self.named_views(self.stored).items():
            self.parameters[name].data, self.parameters[name].grad = view, grads[name]

    def refresh(self) -> None:
        """After a change of `data`: let the copy that the layers see follow."""
        if self.stored is not self.data:
            self.stored[...] = self.data

    def begin_of(self, layer: Layer) -> int:
        """Where a layer's first parameter stands in the flat arrays."""
        first, offset = id(next(iter(layer.parameters().values()))), 0
        for parameter in self.parameters.values():
            if id(parameter) == first:
                break
            offset += parameter.data.size
        return offset

    def named_views(self, flat: Array) -> dict[str, Array]:
        """Cut any flat array of this layout (Adam's moments, say) into views of the parameters' shapes, by name."""
        views, offset = {}, 0
        for name, parameter in self.parameters.items():
            end = offset + parameter.data.size
            views[name] = flat[offset:end].reshape(parameter.shape)
            offset = end
        return views
