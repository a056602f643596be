"""A stand-in for CuPy on machines without a GPU: NumPy arrays that count as being on a device.

They do not mix with NumPy's own arrays: what would fail with CuPy, or silently copy between host and device, fails
here. What makes the host wait for the device is allowed and recorded in `waits`. `xp` stands for the module `cupy`.
"""

import functools
import types

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

waits = []
"""The names of the operations that made the host wait, oldest first."""

IN_CUPY = set(
    """add arange asarray ascontiguousarray concatenate einsum empty empty_like exp float32 float64 isfinite log matmul
    maximum minimum ndarray ones repeat sqrt subtract tanh where zeros zeros_like""".split()
)
"""The functions of CuPy that the library uses. Look a name up in CuPy's reference before adding it."""

METHODS = set(
    """T all argmax astype copy dtype flags itemsize max mean min nbytes ndim reshape shape size strides sum swapaxes
    transpose""".split()
)
"""The attributes of CuPy arrays that the library uses."""


class Array(NDArrayOperatorsMixin):
    """Wraps a NumPy array. NumPy would accept a subclass as one of its own arrays."""

    __hash__ = None

    def __init__(self, inside):
        self.inside = inside

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if out is None:
            return call(getattr(ufunc, method), *inputs, **options)
        call(getattr(ufunc, method), *inputs, out=out, **options)
        return out[0]

    def __array_function__(self, function, _, arguments, options):
        return call(function, *arguments, **options)

    def get(self):
        waits.append("get")
        return self.inside.copy()

    def __float__(self):
        waits.append("float")
        return float(self.inside)

    def __int__(self):
        waits.append("int")
        return int(self.inside)

    def __bool__(self):
        waits.append("bool")
        return bool(self.inside)

    def __len__(self):
        return len(self.inside)

    def __getitem__(self, index):
        return wrapped(self.inside[index_of(index)])

    def __setitem__(self, index, value):
        self.inside[index_of(index)] = unwrapped(value)

    def __getattr__(self, name):
        if name not in METHODS:  # such as __array_interface__, which NumPy tries
            raise AttributeError(f"do CuPy arrays have {name}? Look it up, then add it to METHODS")
        value = getattr(self.inside, name)
        return functools.partial(call, value) if callable(value) else wrapped(value)


def unwrapped(value):
    """The NumPy array inside. Raises TypeError for arrays on the host."""
    if isinstance(value, (np.ndarray, list)):
        raise TypeError(f"unsupported type {type(value).__name__}: it is on the host")
    if isinstance(value, tuple):
        return tuple(unwrapped(part) for part in value)
    return value.inside if isinstance(value, Array) else value


def wrapped(value):
    """A result of NumPy as a device array. Even a single number is an array there."""
    if isinstance(value, (np.ndarray, np.generic)):
        return Array(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(wrapped(part) for part in value)
    return value


def call(function, *arguments, **options):
    lists = [
        [unwrapped(part) for part in value] if isinstance(value, list) else unwrapped(value) for value in arguments
    ]
    return wrapped(function(*lists, **{name: unwrapped(value) for name, value in options.items()}))


def index_of(index):
    """Indexing with a mask makes the host wait, since it must know the size of the result."""
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, Array) and part.inside.dtype == bool:
            waits.append("mask")
    return unwrapped(index)


class Module(types.ModuleType):
    """The functions that NumPy and CuPy have in common, on the arrays of this file."""

    ndarray = Array

    def asarray(self, value, dtype=None):
        """Copy an array from the host; there is no other way."""
        return Array(np.array(unwrapped(value) if isinstance(value, Array) else value, dtype))

    array = asarray

    def __getattr__(self, name):
        if name not in IN_CUPY:
            raise AttributeError(f"does CuPy have {name}? Look it up, then add it to IN_CUPY")
        value = getattr(np, name)
        if isinstance(value, type) or not callable(value):
            return value
        function = functools.partial(call, value)
        if isinstance(value, np.ufunc):
            function.at = functools.partial(call, value.at)
        return function


xp = Module("strict_array")
