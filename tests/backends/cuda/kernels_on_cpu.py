"""Runs kernels.cu on the CPU, compiled by a C++ compiler with the definitions of on_cpu.h and on_cpu.cpp."""

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from scratchformer.backends.cuda.kernels import C_TYPE, SOURCE, Kernels, parse_kernels

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")


def has_barriers(source):
    """1 if threads wait for each other in these lines of CUDA C, otherwise 0."""
    return int(bool(re.search(r"warp_|block_|drop\.|__sync|__shfl|_REDUCE", source)))


def with_shared_memory(source):
    """A call of `share` for each variable, after the statement that declares it."""

    def share(declared):
        names = re.findall(r"(\w+)[\[\s]*[,;]", re.sub(r"\[[^]]*\]", "[", declared[0]))
        return declared[0] + "".join(f" share({name});" for name in names)

    return re.sub(r"(?<!extern )__shared__ [^;]*;", share, source)


def entry_points(source):
    """C functions kernel_N(grid and block, forward, pointers to arguments), one for each instance of a kernel.

    -> source, instance -> N
    """
    lines, number = [], {}
    for kernel in parse_kernels(source).values():
        body = re.search(rf"void {kernel.name}\((.*?)\n}}", source, re.DOTALL)[1]
        for dtype in C_TYPE:
            for instance in kernel.instances(dtype):
                if instance in number:
                    continue
                number[instance] = len(number)
                values = []
                for index, (kind, is_pointer, *_) in enumerate(kernel.arguments):
                    c_type = C_TYPE[dtype] if kind == "T" else kind
                    values.append(f"({c_type}*)a[{index}]" if is_pointer else f"*({c_type}*)a[{index}]")
                thread = f"[](void* all) {{ void** a = (void**)all; {instance}({', '.join(values)}); }}"
                lines.append(
                    f'extern "C" void kernel_{number[instance]}(const int* shape, int forward, void** a) '
                    f"{{ launch(shape, shape + 3, forward, {has_barriers(body)}, {thread}, a); }}"
                )
    return "\n".join(lines), number


FAIL = 'void fail(const char* why) { fprintf(stderr, "on_cpu.cpp: %s\\n", why); abort(); }'

LIBRARIES = tempfile.TemporaryDirectory(prefix="kernels_on_cpu_")
"""The compiled libraries, removed when this process ends."""


@functools.cache
def compiled(source):
    """Compile the source -> the library, instance -> number of its entry point"""
    functions, number = entry_points(source)
    library = Path(LIBRARIES.name) / f"{len(list(Path(LIBRARIES.name).iterdir()))}.so"
    options = "-O1 -std=c++17 -Wno-unknown-pragmas -shared -fPIC -U_FORTIFY_SOURCE -x c++ -".split()
    text = f'#include "on_cpu.cpp"\n{FAIL}\n{with_shared_memory(source)}\n{functions}\n'
    subprocess.run([COMPILER, f"-I{HERE}", *options, "-o", library], input=text, text=True, check=True)
    return ctypes.CDLL(str(library)), number


class CpuKernels(Kernels):
    """Launches kernels on the CPU, for NumPy arrays or another `array_type`.

    forward   whether the threads of a block run from first to last; a missing barrier shows in one of the orders
    memory    returns the NumPy array inside an array
    launches  names of the kernels launched so far
    """

    def __init__(self, source=SOURCE, forward=True, array_type=np.ndarray, memory=lambda array: array):
        self.source, self.forward, self.array_type, self.memory = source, forward, array_type, memory
        self.address = lambda array: memory(array).ctypes.data
        self.launches = []

    def run(self, instance, dtype, grid, block, arguments):
        library, number = compiled(self.source)
        self.launches.append(re.match(r"\w+", instance)[0])
        shape = (ctypes.c_int * 6)(*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
        pointers = (ctypes.c_void_p * len(arguments))()
        kept = []
        for index, value in enumerate(arguments):
            if isinstance(value, self.array_type):
                pointers[index] = self.memory(value).ctypes.data
            elif value is not None:
                kept.append(np.array(value))
                pointers[index] = kept[-1].ctypes.data
        getattr(library, f"kernel_{number[instance]}")(shape, int(self.forward), pointers)
