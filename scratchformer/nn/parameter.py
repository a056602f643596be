"""Parameters, the layers that own them, and the flat arrays that hold all parameters of a model."""

from __future__ import annotations

import gc
from itertools import accumulate
from types import FunctionType, ModuleType
from typing import Any, Callable, Iterator

import numpy as np

Array = Any
"""A NumPy array, or an array of any library with NumPy's interface (CuPy)."""


class Parameter:
    """A weight and its gradient: two arrays of the same shape.

    Both have the same dtype, unless weights are stored with less precision than gradients. Both may be views into the
    flat arrays of a `ParameterStore`. So change them in place only (`+=` or `[...] =`): `p.grad = p.grad + g` would
    replace the view by another array.
    """

    def __init__(self, data: Array) -> None:
        self.data = data
        self.grad = np.zeros(data.shape, data.dtype, like=data)  # takes memory only when it is written

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `data` and of `grad`."""
        return self.data.shape

    def __repr__(self) -> str:
        return f"Parameter{self.data.shape}"


class Layer:
    """A part of the model with a forward and a backward.

        forward(*inputs, rng=None) -> (output, cache)
        backward(doutput, cache)   -> the gradients of the float inputs, in forward's order

    The cache holds everything that backward needs. The layer itself keeps parameters, child layers and constants, and
    nothing about a call, so forward may be called several times before backward. A cache serves one backward: stacks of
    layers empty its lists as they go, to free memory, but no array in it is changed. Parameters and child layers are
    attributes, or items of attributes that are lists, tuples or dicts. Weights in a plain array, and a layer that a
    function finds among the names of its module, are neither checked nor trained.

    `rng` is a `DropoutKey`; None means no dropout. `backward` adds into `Parameter.grad`. It returns one array for one
    float input and a tuple for several.
    """

    forward: Callable[..., tuple[Array, Any]]
    backward: Callable[..., Any]

    def parameters(self) -> dict[str, Parameter]:
        """Dotted name -> Parameter, in order of definition. A Parameter that layers share appears once.

        Raises TypeError if an attribute hides one elsewhere, as in a set, or if two have one name: it would never be
        trained.
        """
        named: dict[str, Parameter] = {}
        first_names: dict[int, str] = {}
        for name, parameter in self._named_parameters():
            if named.setdefault(name, parameter) is not parameter:
                raise TypeError(
                    f"{type(self).__name__} has two parameters called {name}: give one of them another name"
                )
            first_names.setdefault(id(parameter), name)
        return {name: named[name] for name in first_names.values()}

    def _named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        found, others = set[int](), dict[str, Any]()
        for kind in type(self).__mro__:  # what belongs to a class instead of an object, and what `__slots__` hold
            others |= {
                name: each for name, each in vars(kind).items() if isinstance(each, (Layer, Parameter, *CONTAINERS))
            }
            others |= {name: getattr(self, name, None) for name in vars(kind).get("__slots__", ())}
        for name, value in vars(self).items():
            for path, item in enumerate_named(name, value):
                if isinstance(item, Parameter):
                    found.add(id(item))
                    yield path, item
                elif isinstance(item, Layer):
                    for inner, parameter in item._named_parameters():
                        found.add(id(parameter))
                        yield f"{path}.{inner}", parameter
                else:
                    others[path] = item
        for path, item in others.items():
            if any(id(parameter) not in found for parameter in parameters_behind(item)):
                raise TypeError(
                    f"{type(self).__name__}.{path}: this {type(item).__name__} hides parameters, which would not be "
                    "trained: keep layers and parameters in attributes, lists, tuples or dicts"
                )

    def zero_grad(self) -> None:
        """Set all gradients to 0, in place."""
        for parameter in self.parameters().values():
            parameter.grad[...] = 0


CONTAINERS = (list, tuple, dict, set)


def as_tuple(gradients: Any) -> tuple:
    """The gradients that `Layer.backward` returns, as a tuple also for a layer with one float input."""
    return gradients if isinstance(gradients, tuple) else (gradients,)


def enumerate_named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value under its name, or the items of a list, tuple or dict under `name.0` or `name.key`."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = dict(enumerate(value)).items()
    else:
        yield name, value
        return
    for key, item in items:
        yield from enumerate_named(f"{name}.{key}", item)


def parameters_behind(value: Any) -> Iterator[Parameter]:
    """The parameters that an object refers to, directly or not: a set, a closure, an object of another class, ..."""
    seen, waiting = set(), [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType, ParameterStore)):
            continue
        seen.add(id(each))
        if isinstance(each, Parameter):
            yield each
        elif isinstance(each, FunctionType):  # but not the names of its module
            waiting += [each.__closure__, each.__defaults__, each.__kwdefaults__]
        elif getattr(each, "dtype", None) == object:
            waiting += each.ravel().tolist()
        else:
            waiting += gc.get_referents(each)


class ParameterStore:
    """All parameters of a model in one flat array, and all their gradients in another.

    The optimizer, the norm and the all-reduce between devices then work on one array instead of hundreds. Parameters
    stand in the order of forward, so backward completes the gradient from the end to the beginning.

    data, grad  (n_parameters,) arrays; each Parameter's `data` and `grad` are views into them
    stored      the array that the layers read: `data` itself, or a copy of it with less precision
    views       name -> these two views; viewed: the arrays into which they are views
    """

    def __init__(self, parameters: dict[str, Parameter]) -> None:
        self.parameters = parameters
        dtypes = {parameter.data.dtype: name for name, parameter in parameters.items()}
        if len(dtypes) > 1:
            named = " and ".join(f"{name} is {dtype}" for dtype, name in dtypes.items())
            raise ValueError(f"the parameters of a model have one type, but {named}")
        sizes = [parameter.data.size for parameter in parameters.values()]
        self.offsets = dict(zip(parameters.values(), accumulate(sizes, initial=0)))
        data = np.concatenate([parameter.data.reshape(-1) for parameter in parameters.values()])
        self.hold(data, np.zeros(data.shape, data.dtype, like=data))

    def hold(self, data: Array, grad: Array, stored: Array | None = None) -> None:
        """Use these flat arrays from now on, and make the parameters views into them. Models may share `data`."""
        self.data, self.grad, self.stored = data, grad, data if stored is None else stored
        self.refresh()
        weights, gradients = self.named_views(self.stored), self.named_views(grad)
        self.views = {name: (weights[name], gradients[name]) for name in self.parameters}
        self.viewed = self.stored, self.grad
        for name, parameter in self.parameters.items():
            parameter.data, parameter.grad = self.views[name]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, by `copy.deepcopy` or pickle, makes views into its own arrays."""
        vars(self).update(state)
        self.hold(self.data, self.grad, None if self.stored is self.data else self.stored)

    def require(self, parameters: dict[str, Parameter]) -> None:
        """Raises ValueError unless these are the parameters of the store, and still views into its arrays.

        Their names may differ, as when a layer stands within another one for a while.
        """
        anew = "after a change of layers, call model.rebuild_store() and make a new Adam"
        given = {id(parameter) for parameter in parameters.values()}
        for name, parameter in parameters.items():
            if parameter not in self.offsets:
                raise ValueError(f"the model's store does not hold its {name}, so it would not be trained: {anew}")
        for name, parameter in self.parameters.items():
            if id(parameter) not in given:
                raise ValueError(f"the model's store holds {name}, which the model no longer has: {anew}")
            data, grad = self.views[name]
            if parameter.data is not data or parameter.grad is not grad:
                if parameter.data is not data:
                    which, remedy = "data", "write into the array, `data[...] = ...`"
                else:
                    which, remedy = "grad", "add into the array that is there, `.grad += ...`"
                raise ValueError(f"{name}.{which} is not in the store any more: {remedy}; {anew}")
        if self.viewed[0] is not self.stored or self.viewed[1] is not self.grad:
            raise ValueError(f"an array of the model's store was replaced: write into it, `[...] = ...`; {anew}")

    def refresh(self) -> None:
        """After a change of `data`: update what is made of it, such as the copy that the layers read."""
        if self.stored is not self.data:
            self.stored[...] = self.data

    def offset_of(self, layer: Layer) -> int:
        """The index of a layer's first parameter in the flat arrays."""
        _, first = next(layer._named_parameters())
        return self.offsets[first]

    def named_views(self, flat: Array) -> dict[str, Array]:
        """Views of a flat array of this layout (also of Adam's moments) with the parameters' names and shapes."""
        views, offset = {}, 0
        for name, parameter in self.parameters.items():
            end = offset + parameter.data.size
            views[name] = flat[offset:end].reshape(parameter.shape)
            offset = end
        return views
