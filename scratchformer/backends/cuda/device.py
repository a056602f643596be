"""One NVIDIA GPU with CuPy as the device of a model."""

from __future__ import annotations

import platform
import time
from typing import Any, Callable

import numpy as np

from scratchformer.backends.cuda.fused_ops import FusedOps, steps_for
from scratchformer.backends.cuda.gemm import CuBlas, Gemm
from scratchformer.backends.cuda.kernels import FLOAT32, CupyKernels, Kernels
from scratchformer.backends.device import HOW_TO_INSTALL, Device, dtype_named, import_or_explain
from scratchformer.errors import UserError, in_one_line
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array
from scratchformer.parallel.communicator import Communicator, name_ranks
from scratchformer.parallel.nccl import HostStaged, Nccl

STORED_AS = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Precision -> the dtype of weights and activations in the layers."""

FIRST_LOSS_SCALE = 256.0
"""Smaller than usual, because our gradient is a sum over tokens and not their mean."""

SMALLEST_LOSS_SCALE = 2.0**-16
"""If gradients overflow even with this one, the range of fp16 is not the reason."""

STEPS_TO_DOUBLE = 2000
"""The loss scale doubles after this many steps without overflow."""

NOT_READY = 600
"""cudaErrorNotReady, the status of an event that has not happened yet."""

POLL_SECONDS = 1e-4
"""While a rank waits for its GPU, it checks this often whether the other ranks are still there."""


class Accelerator(Device):
    """A device with memory of its own: `kernels` and matrix products that work on the arrays of the library `xp`.

    exact, rounded  matrix products that take float32 as it is, and that round it as tf32 does
    precision       fp32, tf32, bf16 or fp16
    """

    is_async = True
    batch_factor = 4

    def __init__(self, xp: Any, kernels: Kernels, exact: Gemm, rounded: Gemm, precision: str) -> None:
        self.xp, self.kernels, self.precision = xp, kernels, precision
        self.stored = dtype_named(STORED_AS[precision])
        self.scale = xp.asarray([FIRST_LOSS_SCALE, 0], np.float32) if precision == "fp16" else None
        products = rounded if precision == "tf32" else exact
        fused = FusedOps(xp, kernels, products, exact, self.scale, (FLOAT32, self.stored))
        self.ops = (Ops(xp), fused)  # the reference is for float64

    def to_device(self, model: Model) -> None:
        try:
            steps_for(model.config.d_model)
        except ValueError as error:
            raise UserError(str(error)) from None
        store, xp = model.store, self.xp
        data = xp.asarray(store.data)
        stored = None if self.stored == data.dtype else xp.empty(data.shape, self.stored)
        store.hold(data, xp.zeros_like(data), stored)

    def communicator(self, host: Communicator) -> Communicator:
        return HostStaged(host, self.xp) if host.size > 1 else Communicator()

    def adapt_loss_scale(self, norm: Array) -> None:
        if self.scale is not None:
            self.kernels("adapt_loss_scale", (1,), (1,), self.scale, norm, STEPS_TO_DOUBLE)

    def overflow_is_normal(self) -> bool:
        return self.scale is not None and self.state()[0] > SMALLEST_LOSS_SCALE

    def state(self) -> list[float]:
        return [] if self.scale is None else self.scale.get().tolist()

    def restore(self, state: list[float]) -> None:
        if self.scale is not None and state:
            self.scale[...] = self.xp.asarray(state, np.float32)


class Gpu(Accelerator):
    """The NVIDIA GPU with this number, counted from 0. None takes the GPU of this rank.

    local_rank  of this process among those on the machine

    The first time, it compiles the kernels, which takes some seconds.
    """

    def __init__(self, number: int | None, precision: str, local_rank: int = 0) -> None:
        self.was_named, self.number = number is not None, number or 0
        try:
            cupy = import_or_explain("cupy")
            count = cupy.cuda.runtime.getDeviceCount()
            if self.number >= count:
                raise UserError(f"gpu:{self.number}: there are {count} GPUs here, counted from 0")
            if not self.was_named:  # a process may see all GPUs, or only its own
                self.number = local_rank % count
            cupy.cuda.Device(self.number).use()
            kernels = CupyKernels()
            exact, rounded = (Gemm(cupy, CuBlas(tf32)) for tf32 in (False, True))
            super().__init__(cupy, kernels, exact, rounded, precision)
            for stored in {FLOAT32, self.stored}:
                kernels.module(stored)
                matrix = cupy.ones((2, 2), stored)
                exact(matrix, matrix, cupy.empty_like(matrix))
        except (UserError, MemoryError):
            raise
        except Exception as error:  # from a driver, a library or a compiler
            remedy = f"if a library is missing, {HOW_TO_INSTALL}"
            raise UserError(f"gpu:{self.number}: {in_one_line(error)}; {remedy}") from error

    def communicator(self, host: Communicator) -> Communicator:
        """NCCL; or through host memory for ranks that share a GPU because the user named it."""
        if host.size == 1:
            return Communicator()
        mine = f"{platform.node()} {self.xp.cuda.Device(self.number).pci_bus_id}".encode()
        places = host.all_gather_bytes(mine)
        if len(set(places)) == len(places):
            return Nccl(host, self.xp)
        if self.was_named:
            return HostStaged(host, self.xp)
        sharing = [rank for rank, place in enumerate(places) if places.count(place) > 1]
        raise UserError(
            f"{name_ranks(sharing)} would have to share a GPU: start fewer processes; --device gpu:N lets all "
            "share the GPU with this number, for tests, slowly"
        )

    def read_back(self, number: Array, check: Callable[[float], None] = lambda waited: None) -> Callable[[], float]:
        """The copy is queued now. A copy queued later would have to wait for the steps begun in between.

        The function raises CUDARuntimeError if a kernel or a copy before has failed. `copied.done` is False then, too.
        """
        import cupyx

        cuda = self.xp.cuda
        answer, copied = cupyx.empty_pinned(1, number.dtype), cuda.Event()
        number.reshape(1).get(out=answer, blocking=False)
        copied.record()

        def wait() -> float:
            began = time.monotonic()
            while (status := cuda.runtime.eventQuery(copied.ptr)) == NOT_READY:
                check(time.monotonic() - began)
                time.sleep(POLL_SECONDS)
            if status:
                copied.synchronize()  # raises it
            return float(answer[0])

        return wait

    def memory_bytes(self) -> int | None:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return free

    def describe(self) -> str:
        properties = self.xp.cuda.runtime.getDeviceProperties(self.number)
        return f"{properties['name'].decode()}, {self.precision}"
