"""kernels.cu on the CPU: compiled by the C++ compiler with the definitions of on_cpu.h."""

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from scratchformer.backends.cuda.kernels import SOURCE, Kernels, declared

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
TYPES = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}


def entry_points(source):
    """C functions, one for each instance of a kernel: name_N(grid and block, order, pointers to the arguments)."""
    lines, number = [], {}
    for kernel in declared(source).values():
        body = re.search(rf"void {kernel.name}\((.*?)\n}}", source, re.DOTALL)[1]
        barriers = int(bool(re.search(r"warp_|drop\.|__sync|__shfl", body)))
        for stored in TYPES:
            for instance in kernel.instances(stored):
                if instance in number:
                    continue
                number[instance] = len(number)
                values = []
                for index, (kind, is_pointer, _) in enumerate(kernel.arguments):
                    c_type = TYPES[stored] if kind == "T" else kind
                    values.append(f"({c_type}*)a[{index}]" if is_pointer else f"*({c_type}*)a[{index}]")
                call = f"launch(shape, shape + 3, forward, {barriers}, [=] {{ {instance}({', '.join(values)}); }});"
                lines.append(
                    f'extern "C" void kernel_{number[instance]}(const int* shape, int forward, void** a) '
                    f"{{ {call} }}"
                )
    return "\n".join(lines), number


LIBRARIES = tempfile.TemporaryDirectory(prefix="kernels_on_cpu_")
"""What the compiler makes, until this process ends."""


@functools.cache
def compiled(source):
    """-> the library, and the number of each instance's entry point."""
    functions, number = entry_points(source)
    library = Path(LIBRARIES.name) / f"{len(list(Path(LIBRARIES.name).iterdir()))}.so"
    options = "-O1", "-std=c++17", "-Wno-unknown-pragmas", "-shared", "-fPIC", f"-I{HERE}", "-x", "c++", "-"
    text = f'#include "on_cpu.h"\n{source}\n{functions}\n'
    subprocess.run([COMPILER, *options, "-o", library], input=text, text=True, check=True)
    return ctypes.CDLL(str(library)), number


class CpuKernels(Kernels):
    """For arrays of `array_type`, whose memory `memory` finds; by default NumPy's.

    forward  whether the threads of a block run from the first to the last: a missing barrier shows in one of the orders
    launches what was launched, by name
    """

    def __init__(self, source=None, forward=True, array_type=np.ndarray, memory=lambda array: array):
        self.source = SOURCE.read_text(encoding="utf-8") if source is None else source
        self.forward, self.array_type, self.memory = forward, array_type, memory
        self.launches = []

    def run(self, instance, stored, grid, block, taken):
        library, number = compiled(self.source)
        self.launches.append(re.match(r"\w+", instance)[0])
        shape = (ctypes.c_int * 6)(*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
        pointers = (ctypes.c_void_p * len(taken))()
        kept = []
        for index, value in enumerate(taken):
            if isinstance(value, self.array_type):
                pointers[index] = self.memory(value).ctypes.data
            elif value is not None:
                kept.append(np.array(value))
                pointers[index] = kept[-1].ctypes.data
        getattr(library, f"kernel_{number[instance]}")(shape, int(self.forward), pointers)
