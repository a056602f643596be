"""The kernels of kernels.cu, called by name.

CUDA takes whatever bytes it is given: a Python float would go over as a double, an array of another dtype as nonsense.
So every argument is checked and cast by the kernel's signature, which stands in kernels.cu and nowhere else.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SOURCE = Path(__file__).with_name("kernels.cu")
SCALARS = {"int": np.int32, "float": np.float32, "i64": np.int64, "u64": np.uint64}
FLOAT32 = np.dtype("float32")
POINTERS = {"int": np.dtype("int32"), "float": FLOAT32, "double": np.dtype("float64")}
C_TYPE = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
"""Name of a dtype -> what T is."""

STEPS = (16, 32, 64)
"""What the second argument of templates may be: a row has up to 32 times as many numbers."""


class Argument(NamedTuple):
    """kind: "T" or the C type of a scalar, or of what a pointer points to."""

    kind: str
    is_pointer: bool
    name: str


class Kernel(NamedTuple):
    """What kernels.cu declares: template<T, STEPS>, template<T> or neither."""

    name: str
    template: tuple[str, ...]
    arguments: tuple[Argument, ...]

    def instances(self, stored: str) -> list[str]:
        """As C++ names them, where numbers are stored as the dtype of this name."""
        if not self.template:
            return [self.name]
        if len(self.template) == 1:
            return [f"{self.name}<{C_TYPE[stored]}>"]
        return [f"{self.name}<{C_TYPE[stored]}, {steps}>" for steps in STEPS]


def declared(source: str) -> dict[str, Kernel]:
    """All kernels in CUDA C, by name. Raises ValueError for an argument of a kind that is not known."""
    for name, text in re.findall(r"^#define (\w+) (.+)$", source, re.MULTILINE):
        source = source.replace(name, text)
    found = re.findall(r"(?:template <([^>]*)>\s*)?__global__ void (\w+)\(([^)]*)\)", source)
    return {
        name: Kernel(
            name,
            tuple(part.split()[1] for part in template.split(",")) if template else (),
            tuple(argument_of(text) for text in arguments.split(",")),
        )
        for template, name, arguments in found
    }


def argument_of(text: str) -> Argument:
    """From a declaration such as `const T* x`."""
    match = re.fullmatch(r"\s*(?:const )?(\w+)(\*?) (\w+)\s*", text)
    if match is None or match[1] not in ({"T", *POINTERS} if match[2] else SCALARS):
        raise ValueError(f"kernels.cu: {text.strip()!r} is no argument that a kernel can be given")
    return Argument(match[1], bool(match[2]), match[3])


def checked(kernel: Kernel, given: tuple[Any, ...], stored: np.dtype, array_type: Any) -> list[Any]:
    """The arguments as the kernel takes them: contiguous arrays of its dtypes or None, and NumPy scalars.

    Raises TypeError for anything else.
    """
    if len(given) != len(kernel.arguments):
        raise TypeError(f"{kernel.name}: {len(given)} arguments for the {len(kernel.arguments)} of its signature")
    taken = []
    for (kind, is_pointer, name), value in zip(kernel.arguments, given):
        if not is_pointer:
            taken.append(SCALARS[kind](value))
        elif value is None:
            taken.append(None)
        else:
            wanted = stored if kind == "T" else POINTERS[kind]
            fits = isinstance(value, array_type) and value.dtype == wanted and value.flags.c_contiguous
            if not fits:
                raise TypeError(
                    f"{kernel.name}: {name} must be a contiguous {array_type.__name__} of {wanted}, not "
                    f"{type(value).__name__} of {getattr(value, 'dtype', 'no dtype')}"
                )
            taken.append(value)
    return taken


class Kernels:
    """kernels(name, grid, block, *arguments): launch one. What runs them says where; see CupyKernels."""

    array_type: Any

    @cached_property
    def declared(self) -> dict[str, Kernel]:
        return declared(SOURCE.read_text(encoding="utf-8"))

    @cached_property
    def instances(self) -> dict[tuple[str, np.dtype, int], str]:
        """By name, dtype of T and STEPS, those that have been asked for."""
        return {}

    def __call__(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        stored: np.dtype = FLOAT32,
        steps: int = STEPS[0],
    ) -> None:
        """stored: the dtype for T; steps: for kernels with a second template argument, one of STEPS."""
        kernel, wanted = self.declared[name], (name, stored, steps)
        if wanted not in self.instances:
            self.instances[wanted] = kernel.instances(stored.name)[STEPS.index(steps)]
        self.run(self.instances[wanted], stored, grid, block, checked(kernel, arguments, stored, self.array_type))

    def run(
        self, instance: str, stored: np.dtype, grid: tuple[int, ...], block: tuple[int, ...], taken: list[Any]
    ) -> None:
        raise NotImplementedError


class CupyKernels(Kernels):
    """On the current GPU. CuPy keeps what the compiler made for later processes."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.array_type = cupy, cupy.ndarray
        self.modules: dict[np.dtype, Any] = {}
        self.functions: dict[tuple[str, np.dtype], Any] = {}

    def run(
        self, instance: str, stored: np.dtype, grid: tuple[int, ...], block: tuple[int, ...], taken: list[Any]
    ) -> None:
        function = self.functions.get((instance, stored))
        if function is None:
            function = self.functions[instance, stored] = self.module(stored).get_function(instance)
        function(grid, block, tuple(np.uint64(0) if value is None else value for value in taken))

    def module(self, stored: np.dtype) -> Any:
        """All kernels for numbers of this dtype, compiled."""
        if stored not in self.modules:
            names = [name for kernel in self.declared.values() for name in kernel.instances(stored.name)]
            module = self.cupy.RawModule(
                code=SOURCE.read_text(encoding="utf-8"), options=("-std=c++17",), name_expressions=names
            )
            module.compile()
            self.modules[stored] = module
        return self.modules[stored]
