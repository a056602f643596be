"""Where a model computes: on the CPU with NumPy, or on one NVIDIA GPU with CuPy."""

from __future__ import annotations

import importlib
import platform
import time
from typing import Any, Callable

import numpy as np

from scratchformer.backends.cuda.fused_ops import FusedOps, steps_for
from scratchformer.backends.cuda.gemm import CuBlas, Gemm
from scratchformer.backends.cuda.kernels import FLOAT32, CupyKernels, Kernels
from scratchformer.errors import UserError, in_one_line
from scratchformer.nn.ops import FAST, OPS, Ops
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.communicator import Communicator, HostStaged, listed
from scratchformer.parallel.nccl import Nccl

STORED_AS = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Precision -> the dtype of weights and activations in the layers."""

FIRST_LOSS_SCALE = 256.0
"""Of a gradient summed over tokens, not their mean: so it need not be as large as is usual."""

SMALLEST_LOSS_SCALE = 2.0**-16
"""When gradients overflow even then, it is not for want of range."""

PATIENCE = 2000
"""Steps without overflow after which the loss scale doubles."""

POLL_SECONDS = 1e-4
"""How often a rank that waits for its GPU looks whether the others are still there."""

HOW_TO_INSTALL = "pip install 'scratchformer[cuda13]', or [cuda12], brings it"


class Device:
    """The CPU: models are made there, so there is nothing to do.

    runs_ahead  whether the host should begin a step before it waits for the last one
    breadth     how many times as many sentences it should translate at once as a CPU
    """

    runs_ahead = False
    breadth = 1

    def take_over(self, model: Transformer) -> None:
        """Move the weights of a model here, in the precision that was asked for."""

    def communicator(self, host: Communicator) -> Communicator:
        """What carries arrays of this device between the ranks that `host` connects. All of them call it."""
        return host

    def asked(self, number: Array, check: Callable[[float], None] = lambda waited: None) -> Callable[[], float]:
        """Ask for a number that is being computed -> a function that waits for it, and not for what is begun later.

        check  is called now and then with the seconds that it has been waiting, and may raise
        """
        return lambda: float(number)

    def adapt_loss_scale(self, norm: Array) -> None:
        """After a step with fp16: what the gradient of the loss is to be multiplied by in the next one."""

    def overflow_is_normal(self) -> bool:
        """Whether a gradient that is not finite may be passed over."""
        return False

    def state(self) -> list[float]:
        """What a run needs to go on here as if it had not stopped: with fp16 the loss scale, else nothing."""
        return []

    def restore(self, state: list[float]) -> None:
        """The state of another device, or none, changes nothing."""

    def memory_bytes(self) -> int | None:
        """How much memory of its own is free there; None if it has none of its own, or does not tell."""
        return None

    def describe(self) -> str:
        return "NumPy on the CPU"


class Accelerator(Device):
    """A device with memory of its own, on which `kernels` and matrix products work on the arrays of `xp`.

    From now on all such arrays are worked on by fused operations in this precision, and in float64 by the reference.

    exact, rounded  products of float32 as they are, and as the precision tf32 rounds them
    """

    runs_ahead = True
    breadth = 4

    def __init__(self, xp: Any, kernels: Kernels, exact: Gemm, rounded: Gemm, precision: str) -> None:
        self.xp, self.kernels, self.precision = xp, kernels, precision
        self.stored = dtype_named(STORED_AS[precision])
        self.scale = xp.asarray([FIRST_LOSS_SCALE, 0], np.float32) if precision == "fp16" else None
        ops = FusedOps(xp, kernels, rounded if precision == "tf32" else exact, exact, self.scale)
        OPS[xp.ndarray] = Ops(xp)
        FAST[xp.ndarray, FLOAT32] = FAST[xp.ndarray, self.stored] = ops

    def take_over(self, model: Transformer) -> None:
        """Raises UserError for a model that the kernels are not made for."""
        try:
            steps_for(model.config.d_model)
        except ValueError as error:
            raise UserError(str(error)) from None
        store, xp = model.store, self.xp
        data = xp.asarray(store.data)
        store.hold(data, xp.zeros_like(data), None if self.stored == data.dtype else xp.empty(data.shape, self.stored))

    def communicator(self, host: Communicator) -> Communicator:
        return HostStaged(host, self.xp) if host.size > 1 else Communicator()

    def adapt_loss_scale(self, norm: Array) -> None:
        if self.scale is not None:
            self.kernels("adapt_loss_scale", (1,), (1,), self.scale, norm, PATIENCE)

    def overflow_is_normal(self) -> bool:
        return self.scale is not None and self.state()[0] > SMALLEST_LOSS_SCALE

    def state(self) -> list[float]:
        return [] if self.scale is None else self.scale.get().tolist()

    def restore(self, state: list[float]) -> None:
        if self.scale is not None and state:
            self.scale[...] = self.xp.asarray(state, np.float32)


class Gpu(Accelerator):
    """The NVIDIA GPU with this number, counted from 0; None takes the one that falls to the rank.

    local_rank  of this process among those on the machine

    Compiles the kernels, the first time some seconds. Raises UserError if CuPy, a driver, this GPU or something that
    they need is missing.
    """

    def __init__(self, number: int | None, precision: str, local_rank: int = 0) -> None:
        self.was_named, self.number = number is not None, number or 0
        try:
            cupy = found("cupy")
            count = cupy.cuda.runtime.getDeviceCount()
            if self.number >= count:
                raise UserError(f"gpu:{self.number}: there are {count} GPUs here, counted from 0")
            if not self.was_named:  # it may see all of them, or just one
                self.number = local_rank % count
            cupy.cuda.Device(self.number).use()
            kernels, exact, rounded = CupyKernels(), Gemm(cupy, CuBlas()), Gemm(cupy, CuBlas(tf32=True))
            super().__init__(cupy, kernels, exact, rounded, precision)
            for stored in {FLOAT32, self.stored}:
                kernels.module(stored)
                matrix = cupy.ones((2, 2), stored)
                exact(matrix, matrix, cupy.empty_like(matrix))
        except (UserError, MemoryError):
            raise
        except Exception as error:  # a driver, a library, a compiler
            raise UserError(
                f"gpu:{self.number}: {in_one_line(error)}; " f"if a library is missing, {HOW_TO_INSTALL}"
            ) from None

    def communicator(self, host: Communicator) -> Communicator:
        """NCCL, or the host's memory for ranks that share a GPU because it was named.

        Raises UserError if ranks would share one by accident, or NCCL cannot connect them.
        """
        if host.size == 1:
            return Communicator()
        mine = f"{platform.node()} {self.xp.cuda.Device(self.number).pci_bus_id}".encode()
        places = host.gather(mine)
        if len(set(places)) == len(places):
            return Nccl(host, self.xp)
        if self.was_named:
            return HostStaged(host, self.xp)
        sharing = [rank for rank, place in enumerate(places) if places.count(place) > 1]
        raise UserError(
            f"{listed(sharing)} would have to share a GPU: start fewer processes; --device gpu:N lets all "
            "share the GPU with this number, for tests, slowly"
        )

    def asked(self, number: Array, check: Callable[[float], None] = lambda waited: None) -> Callable[[], float]:
        """Its copy to the host is queued here and now: a later one would wait for the steps begun meanwhile."""
        import cupyx

        answer, here = cupyx.empty_pinned(1, number.dtype), self.xp.cuda.Event()
        number.reshape(1).get(out=answer, blocking=False)
        here.record()

        def wait() -> float:
            began = time.monotonic()
            while not here.done:
                check(time.monotonic() - began)
                time.sleep(POLL_SECONDS)
            return float(answer[0])

        return wait

    def memory_bytes(self) -> int | None:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return free

    def describe(self) -> str:
        properties = self.xp.cuda.runtime.getDeviceProperties(self.number)
        return f"{properties['name'].decode()}, {self.precision}"


def found(module: str) -> Any:
    """Raises UserError if it is not installed, ImportError if it is, but broken."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(f"--device gpu needs {module}; {HOW_TO_INSTALL}") from None


def dtype_named(name: str) -> np.dtype:
    return np.dtype(found("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def open_device(name: str, precision: str = "", local_rank: int = 0) -> Device:
    """As `TrainingConfig.device` and `precision` say; `gpu` is the one of this rank.

    Raises UserError if there is no such device.
    """
    kind, _, number = name.partition(":")
    return Device() if kind == "cpu" else Gpu(int(number) if number else None, precision or "tf32", local_rank)
