"""Real CuPy on a GPU that does not exist: emulated_cuda.cpp takes the place of CUDA's runtime, driver, cuBLAS and NCCL.

`install()` must run before anything imports CuPy; sitecustomize.py calls it in each process of the tests. It loads the
stand-in under the names of NVIDIA's libraries, and imports CuPy. CuPy's module `runtime` contains its own copy of the
CUDA runtime, so the first bytes of its functions are overwritten with jumps into the stand-in. NVIDIA's compiler is
replaced by g++: the "compiled code" that CuPy stores and loads is the path of a library with the kernel.
"""

import atexit
import ctypes
import functools
import hashlib
import importlib.util
import json
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
KERNELS = HERE.parent / "backends" / "cuda"
CUPY = "cupy-cuda13x", "14.2.0"
"""The wheel that is emulated. Another one may call other functions."""

OPTIONS = [*"-std=c++17 -w -shared -fPIC -U_FORTIFY_SOURCE".split(), f"-I{KERNELS}", f"-I{HERE / 'include'}"]
CHECKED = (
    "-O1 -fpermissive -fno-gnu-unique -fsanitize=kernel-address --param asan-instrumentation-with-call-threshold=0"
    " --param asan-globals=0 --param asan-stack=0"
).split()
"""Each access to memory becomes a call of __asan_load or __asan_store, which emulated_cuda.cpp defines."""

NOT_SUPPORTED = 15
"""Status of functions that are not emulated."""


def reason_to_skip():
    """Why the emulation cannot run here; "" if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the emulated GPU is for Linux on x86-64"
    if not all(map(shutil.which, ("g++", "readelf"))):
        return "the emulated GPU needs g++ and readelf"
    try:
        found = metadata.version(CUPY[0])
    except metadata.PackageNotFoundError:
        found = "none"
    if found != CUPY[1]:
        return f"the emulated GPU is for {'=='.join(CUPY)}, found: {found}; pip install '.[kernels]' brings it"
    if not headers():
        return "the emulated GPU needs NVIDIA's headers: pip install '.[kernels]' brings them"
    command = ["g++", *OPTIONS, *CHECKED, *"-S -o - -x c++ -".split()]
    compiles = not subprocess.run(command, input="_Float16 x;", text=True, capture_output=True).returncode
    return "" if compiles else "the emulated GPU needs a g++ that knows _Float16 and -fsanitize=kernel-address"


@functools.cache
def headers():
    """Options for g++ that name the directories of driver_types.h and of CuPy's headers; None if there are none."""
    nvidia, cupy = (importlib.util.find_spec(name) for name in ("nvidia", "cupy"))
    places = nvidia.submodule_search_locations if nvidia else []
    found = [path.parent for place in places for path in Path(place).glob("**/driver_types.h")]
    return [f"-I{found[0]}", f"-I{Path(cupy.origin).parent / '_core' / 'include'}"] if found else None


@functools.cache
def cache():
    """The directory of the compiled libraries, named after the checksum of their sources. Processes may share it."""
    sources = Path(__file__), *HERE.glob("*.cpp"), *HERE.rglob("*.*h"), *KERNELS.glob("*on_cpu.*")
    made_of = hashlib.sha256(repr((OPTIONS, CHECKED)).encode())
    for path in sorted(sources):
        made_of.update(path.read_bytes())
    place = Path(os.environ["CUPY_CACHE_DIR"])
    return place if place.name == made_of.hexdigest() else place / made_of.hexdigest()


def compiled(path, *arguments, text=None):
    """Compile to this path unless that exists -> the path. Raises RuntimeError with the compiler's errors."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        command = ["g++", *OPTIONS, *headers(), *arguments, "-o", unfinished]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"g++ failed: {done.stderr}")
        unfinished.rename(path)
    return path


@functools.cache
def library():
    """The stand-in, loaded under the names that CuPy asks for."""
    main = compiled(
        cache() / "libcuda.so.1",
        *("-O2", "-Wl,-soname,libcuda.so.1", HERE / "emulated_cuda.cpp", KERNELS / "on_cpu.cpp"),
    )
    loaded = ctypes.CDLL(str(main), ctypes.RTLD_GLOBAL)
    libraries = Path(importlib.util.find_spec("cupy_backends").origin).parent / "cuda" / "libs"
    # CuPy loads libcublasLt before libcublas, and calls nothing in it.
    for module, name in (("cublas", "libcublasLt.so.13"), ("cublas", "libcublas.so.13"), ("nccl", "libnccl.so.2")):
        (path,) = libraries.glob(f"{module}.*.so")
        functions = set(re.findall(rf" UND ({module}\w+)", symbols(path)))  # `loaded` comes before these
        text = "".join(f'extern "C" int {function}() {{ return {NOT_SUPPORTED}; }}\n' for function in functions)
        options = f"-Wl,-soname,{name},--default-symver", "-x", "c++", "-"
        ctypes.CDLL(str(compiled(cache() / name, *options, text=text)), ctypes.RTLD_GLOBAL)
    return loaded


def symbols(path):
    return subprocess.run(["readelf", "-sW", path], capture_output=True, text=True, check=True).stdout


# Compiling kernels ----------------------------------------------------------------------------------------------------


class Compiler:
    """In place of CuPy's _NVRTCProgram."""

    def __init__(self, src, name="", headers=(), include_names=(), name_expressions=None, method="ptx"):
        self.source, self.names = src, name_expressions
        self.instances = name_expressions or re.findall(r"__global__ void (\w+)\(", src)

    def compile(self, options_of_cupy=(), log_stream=None):
        """-> the path of the library, C++ name -> name in the library. compile_for_real.py reads what it writes."""
        if not self.source:  # CuPy asks for the version of the compiler in this way
            return b"// g++", None
        from kernels_on_cpu import has_barriers, with_shared_memory

        names = {instance: re.sub(r"\W+", "_", instance) for instance in self.instances}
        entries = "".join(
            f'extern "C" Kernel entry_{name} = Call<&{instance}>::entry({barriers}, "{instance}");\n'
            for instance, name in names.items()
            for barriers in [has_barriers(self.body(instance))]
        )
        prelude = compiled(cache() / "kernel_prelude.h.gch", *CHECKED, "-x", "c++-header", HERE / "kernel_prelude.h")
        text = f"{with_shared_memory(self.source)}\n{entries}"
        path = cache() / f"{hashlib.sha256(text.encode()).hexdigest()}.so"
        try:
            options = "-x c++ - -nodefaultlibs -lgcc -Wl,-Bsymbolic".split()
            compiled(path, *CHECKED, "-include", prelude.with_suffix(""), *options, text=text)
        except RuntimeError as error:
            from cupy.cuda.compiler import CompileException

            raise CompileException(str(error), self.source, "", options) from None
        path.with_suffix(".json").write_text(json.dumps([self.source, self.names, options_of_cupy]))
        return bytes(path) + b"\0", names

    def body(self, instance):
        name = re.match(r"\w+", instance)[0]
        found = re.search(rf"__global__ void {name}\(.*?\n}}", self.source, re.DOTALL)
        return found[0] if found else self.source


# Installing -----------------------------------------------------------------------------------------------------------


def redirect(path):
    """Let the functions of the CUDA runtime in this loaded library jump to those of the stand-in with the same name."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = next(
        int(line.split("-")[0], 16) for line in maps if line.endswith(str(path)) and line.split()[2] == "00000000"
    )
    libc = ctypes.CDLL(None)
    for value, name in re.findall(r"\d+: (\w+) +\d+ FUNC .* (cuda[A-Z]\w+)$", symbols(path), re.MULTILINE):
        ours = getattr(library(), name, None)
        if ours is None:
            continue
        place = base + int(value, 16)
        page = place // mmap.PAGESIZE * mmap.PAGESIZE
        if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), 7):
            raise OSError("this system does not allow a process to change its code")
        target = ctypes.cast(ours, ctypes.c_void_p).value
        jump = b"\x49\xbb" + target.to_bytes(8, "little") + b"\x41\xff\xe3"  # mov r11, target; jmp r11
        ctypes.memmove(place, jump, len(jump))


def install():
    """Must come before the first import of CuPy."""
    sys.path.append(str(KERNELS))
    os.environ["CUPY_CACHE_DIR"] = str(cache())
    library()
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB's kernels are machine code of a GPU
    import cupy
    from cupy.cuda import compiler
    from cupy_backends.cuda.api import runtime

    redirect(Path(runtime.__file__).resolve())
    compiler._NVRTCProgram = Compiler
    # Each array is an allocation of its own, so that an access outside of it is noticed.
    cupy.cuda.set_allocator(cupy.cuda.malloc_async)
    atexit.register(exit_with_problems)


def exit_with_problems():
    """End this process with an error if something was wrong that nobody asked for, as in a rank of a test."""
    if found := problems():
        sys.stdout.flush()
        print("The emulated GPU:", *found, sep="\n", file=sys.stderr, flush=True)
        os._exit(70)


def problems():
    """Run what is queued -> what was wrong since the last call, a sentence each."""
    function = library().emulated_problems
    function.restype = ctypes.c_char_p
    return function().decode().splitlines()


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("launches", "products", "copies", "synchronisations", "polls")]


def counts():
    """Numbers of launches, products, copies, synchronisations and loops that wait for an event."""
    now = Counts.in_dll(library(), "emulated_counts")
    return {name: getattr(now, name) for name, _ in Counts._fields_}
