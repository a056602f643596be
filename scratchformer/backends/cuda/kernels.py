"""Launches the kernels of kernels.cu by name.

CUDA does not check arguments: it would pass a Python float as a double, and misread an array of another dtype. So every
argument is checked and cast here, according to the kernel's signature in kernels.cu.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

SOURCE = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
SCALARS = {"int": np.int32, "float": np.float32, "i64": np.int64, "u64": np.uint64}
FLOAT32 = np.dtype("float32")
POINTERS: dict[str, np.dtype] = {"int": np.dtype("int32"), "float": FLOAT32, "double": np.dtype("float64")}
C_TYPE = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
"""Name of a dtype -> the template argument T."""

STEPS = (16, 32, 64)
"""Values of the template argument STEPS: how many numbers of a row each of the 32 threads of a warp holds."""

Shape = tuple[int, ...]


class Argument(NamedTuple):
    """kind: the C type of the scalar or of the array's elements, or "T"; is_view: the array need not be contiguous."""

    kind: str
    is_pointer: bool
    is_view: bool
    name: str


class Kernel(NamedTuple):
    """A kernel declared in kernels.cu. Its template parameters are (T, STEPS), (T,) or ()."""

    name: str
    template: tuple[str, ...]
    arguments: tuple[Argument, ...]

    def instance(self, dtype: str, steps: int) -> str:
        """The C++ name of the instance for T = this dtype and this number of STEPS."""
        values = ", ".join([C_TYPE[dtype], str(steps)][: len(self.template)])
        return f"{self.name}<{values}>" if values else self.name

    def instances(self, dtype: str) -> list[str]:
        """The C++ names of all instances for T = this dtype, sorted."""
        return sorted({self.instance(dtype, steps) for steps in STEPS})


def parse_kernels(source: str) -> dict[str, Kernel]:
    """Parse the kernels declared in CUDA source -> name -> kernel. Raises ValueError for unsupported argument types."""
    for name, text in re.findall(r"^#define (\w+) (.+)$", source, re.MULTILINE):
        source = re.sub(rf"\b{name}\b", text, source)
    found = re.findall(r"(?:template <([^>]*)>\s*)?__global__ void (\w+)\(([^)]*)\)", source)
    return {
        name: Kernel(
            name,
            tuple(part.split()[1] for part in template.split(",")) if template else (),
            tuple(parse_argument(text) for text in arguments.split(",")),
        )
        for template, name, arguments in found
    }


def parse_argument(text: str) -> Argument:
    """Parse the declaration of an argument, such as `const T* x`."""
    match = re.fullmatch(r"\s*(?:const )?(\w+)(\*?) (VIEW )?(\w+)\s*", text)
    if match is None or match[1] not in ({"T", *POINTERS} if match[2] else SCALARS):
        raise ValueError(f"kernels.cu: {text.strip()!r} is not a supported kernel argument")
    return Argument(match[1], bool(match[2]), bool(match[3]), match[4])


KERNELS = parse_kernels(SOURCE)


@lru_cache(maxsize=None)
def instance_named(name: str, dtype: np.dtype, steps: int) -> str:
    """The C++ name of a kernel's instance."""
    return KERNELS[name].instance(dtype.name, steps)


class Signature(NamedTuple):
    """Places of the arrays and the scalars among a kernel's arguments.

    arrays  place, dtype and is_view of each
    """

    n: int
    arrays: tuple[tuple[int, np.dtype, bool], ...]
    scalars: tuple[int, ...]


@lru_cache(maxsize=None)
def signature(name: str, dtype: np.dtype) -> Signature:
    """With this dtype for T."""
    arguments = list(enumerate(KERNELS[name].arguments))
    dtypes: dict[str, np.dtype] = {**POINTERS, "T": dtype}
    return Signature(
        len(arguments),
        tuple((i, dtypes[x.kind], x.is_view) for i, x in arguments if x.is_pointer),
        tuple(i for i, x in arguments if not x.is_pointer),
    )


@lru_cache(maxsize=1 << 14)
def cast(name: str, scalars: tuple[Any, ...]) -> list[Any]:
    """Numbers as the C types of a kernel's scalars. NumPy takes long to make them, and most launches repeat others."""
    kinds = (argument.kind for argument in KERNELS[name].arguments if not argument.is_pointer)
    return [SCALARS[kind](value) for kind, value in zip(kinds, scalars)]


def checked(name: str, given: tuple[Any, ...], dtype: np.dtype, array_type: Any) -> list[Any]:
    """Check the arguments and cast scalars -> contiguous arrays (or None) and NumPy scalars, as in the signature.

    dtype  for T
    Raises TypeError if the arguments do not match the signature.
    """
    n, arrays, scalars = signature(name, dtype)
    if len(given) != n:
        raise TypeError(f"{name}: {len(given)} arguments for the {n} of its signature")
    arguments = list(given)
    for place, wanted, is_view in arrays:
        value = given[place]
        if value is None:
            continue
        if not (isinstance(value, array_type) and value.dtype == wanted and (is_view or value.flags.c_contiguous)):
            raise TypeError(
                f"{name}: {KERNELS[name].arguments[place].name} must be a contiguous {array_type.__name__} of "
                f"{wanted}, not {type(value).__name__} of {getattr(value, 'dtype', 'no dtype')}"
            )
    for place, scalar in zip(scalars, cast(name, tuple([given[place] for place in scalars]))):
        arguments[place] = scalar
    return arguments


class Kernels:
    """kernels(name, grid, block, *arguments) launches a kernel. Subclasses say where it runs; see CupyKernels.

    address  of an array's first number in memory
    """

    array_type: Any
    address: Callable[[Any], int]

    def __call__(
        self, name: str, grid: Shape, block: Shape, *arguments: Any, dtype: np.dtype = FLOAT32, steps: int = STEPS[0]
    ) -> None:
        """dtype: of T; steps: one of STEPS, for kernels with that template parameter."""
        self.run(
            instance_named(name, dtype, steps), dtype, grid, block, checked(name, arguments, dtype, self.array_type)
        )

    def run(self, instance: str, dtype: np.dtype, grid: Shape, block: Shape, arguments: list[Any]) -> None:
        """Launch the instance with this C++ name. The arguments are what `checked` returns."""
        raise NotImplementedError


NULL = np.uint64(0)


class CupyKernels(Kernels):
    """Kernels on the current GPU. CuPy caches the compiled code on disk."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.array_type = cupy, cupy.ndarray
        self.address = lambda array: array.data.ptr
        self.modules: dict[np.dtype, Any] = {}
        self.functions: dict[tuple[str, np.dtype], Any] = {}

    def run(self, instance: str, dtype: np.dtype, grid: Shape, block: Shape, arguments: list[Any]) -> None:
        function = self.functions.get((instance, dtype))
        if function is None:
            function = self.functions[instance, dtype] = self.module(dtype).get_function(instance)
        function(grid, block, [NULL if value is None else value for value in arguments])

    def module(self, dtype: np.dtype) -> Any:
        """Compile all kernels for T = this dtype, the first time."""
        if dtype not in self.modules:
            names = [name for kernel in KERNELS.values() for name in kernel.instances(dtype.name)]
            module = self.cupy.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=names)
            module.compile()
            self.modules[dtype] = module
        return self.modules[dtype]
