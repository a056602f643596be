"""Which library computes the matrix products on the CPU: NumPy's, or MKL where that is faster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.backends import mkl
from scratchformer.errors import UserError
from scratchformer.nn.ops import Ops

SHAPES = [(1024, 256, 1024), (1024, 1024, 256), (512, 512, 2048), (256, 1024, 512)]
"""Rows, inputs and outputs of the products that are timed: those of layers with d_model 256 and 512."""

ROUNDS = 16
"""How often each product is timed: about a second for all."""

MARGIN = 1.05
"""MKL must be this much faster to be chosen."""


class Choice(NamedTuple):
    """name: numpy or mkl; why, in words for the user"""

    name: str
    why: str


@lru_cache
def choose(wanted: str = "auto", before: str = "") -> Choice:
    """The library to use. `auto` takes the faster one here, and remembers it for this machine.

    before  the library of a run that is resumed: `auto` keeps it if it can be used
    Raises UserError if MKL is wanted and cannot be used.
    """
    if wanted == "numpy" or (wanted, before) == ("auto", "numpy"):
        return Choice("numpy", "as asked for" if wanted == "numpy" else "as before")
    try:
        ratio = speed(mkl.MklOps)
        name = "mkl" if ratio >= MARGIN or "mkl" in (wanted, before) else "numpy"
        if name == "mkl":
            mkl.load()
    except UserError as error:
        if wanted == "mkl":
            raise
        return Choice("numpy", str(error))
    return Choice(name, f"in products of layers MKL is {ratio:.2f} times as fast as NumPy")


def slow_bf16() -> str:
    """What to tell the user if products in bfloat16 take longer here than those in float32; otherwise "".

    Raises UserError if MKL cannot be used.
    """
    ratio = speed(mkl.Bf16Ops) / max(1, speed(mkl.MklOps))
    if ratio >= 1:
        return ""
    return f"bf16 is slower than fp32 here: {ratio:.2f} times its speed in products of layers"


def speed(kind: type[mkl.MklOps]) -> float:
    """How many times as fast as NumPy's these products are on this machine: as remembered, or else measured.

    Raises UserError if MKL cannot be used.
    """
    ratio = remembered().get(place(kind))
    if not isinstance(ratio, float):
        ratio = measured(kind)
        remember(place(kind), ratio)
    return ratio


def measured(kind: type[mkl.MklOps]) -> float:
    """The speed, measured in a process of its own: a broken installation of MKL ends the process that loads it."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from scratchformer.backends import cpu, mkl, products; "
        f"print(products.measure(cpu.FAST, mkl.{kind.__name__}(mkl.Mkl(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(mkl.library_path())]
    said = "it does not answer"
    with suppress(OSError, subprocess.TimeoutExpired):
        child = subprocess.run(command, capture_output=True, text=True, timeout=60)
        with suppress(ValueError):
            return float(child.stdout)
        said = (child.stdout + child.stderr).strip().rpartition("\n")[-1] or f"exit code {child.returncode}"
        said = said.removeprefix("scratchformer.errors.UserError: ")
    raise UserError(said if "MKL cannot be used" in said else f"MKL cannot be used: {said}")


def place(kind: type[mkl.MklOps]) -> str:
    """What the speed of these products depends on."""
    return f"{kind.__name__}, {processor()}, NumPy {np.__version__}, MKL {mkl.installed_version()}"


def measure(*rivals: Ops) -> float:
    """The time of the first over that of the second, for the products of SHAPES: minima of runs in turns, one core.

    What `Bf16Ops` multiplies has been rounded before.
    """
    seconds = np.full((len(SHAPES), len(rivals)), np.inf)
    with threadpool_limits(1, "blas"):
        for index, (rows, inputs, outputs) in enumerate(SHAPES):
            operands = np.ones((rows, inputs), np.float32), np.ones((inputs, outputs), np.float32)
            rounded = [mkl.in_bfloat16(x) for x in operands]
            for _ in range(ROUNDS):
                for rival, ops in enumerate(rivals):
                    x, W = rounded if isinstance(ops, mkl.Bf16Ops) else operands
                    start = time.perf_counter()
                    ops.matmul(x, W)
                    seconds[index, rival] = min(seconds[index, rival], time.perf_counter() - start)
    first, second = seconds.sum(axis=0)
    return float(first / second)


def processor() -> str:
    """The processor's name, as Linux knows it; "unknown" elsewhere."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


# What is remembered ---------------------------------------------------------------------------------------------------


def memory_file() -> Path:
    """Where the measurement of this machine is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scratchformer" / "products.json"


def remembered() -> dict[str, Any]:
    """Machine and versions -> the measured ratio. Empty if nothing can be read."""
    with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: no home directory
        found = json.loads(memory_file().read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def remember(where: str, ratio: float) -> None:
    """Write it down, where that is possible: otherwise the next process measures again."""
    with suppress(OSError, RuntimeError):
        path = memory_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(remembered() | {where: ratio}), encoding="utf-8")
        os.replace(partial, path)
