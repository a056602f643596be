"""Where a model computes: on the CPU with NumPy, or on one NVIDIA GPU with CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from scratchformer.errors import UserError
from scratchformer.gpu.fused_ops import FusedOps
from scratchformer.gpu.gemm import CuBlas, Gemm
from scratchformer.gpu.kernels import CupyKernels, Kernels
from scratchformer.nn.ops import FAST, OPS, Ops
from scratchformer.nn.transformer import Transformer

STORED = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Precision -> the dtype of weights and activations in the layers."""

FIRST_LOSS_SCALE = 256.0
"""Of a gradient summed over tokens, not their mean: so it need not be as large as is usual."""

SMALLEST_LOSS_SCALE = 2.0**-16
"""When gradients overflow even then, it is not for want of range."""


class Device:
    """The CPU: models are made there, so there is nothing to do.

    runs_ahead  whether the host should begin a step before it waits for the last one
    breadth     how many times as many sentences it should translate at once as a CPU
    loss_scale  with fp16, what the gradient of the loss is multiplied by and for how many steps it has been; else empty
    """

    runs_ahead = False
    breadth = 1
    loss_scale: list[float] = []

    def take_over(self, model: Transformer) -> None:
        """Move the weights of a model here, in the precision that was asked for."""

    def overflow_is_normal(self) -> bool:
        """Whether a gradient that is not finite may be passed over."""
        return False

    def describe(self) -> str:
        return "NumPy on the CPU"


class Accelerator(Device):
    """A device with memory of its own, on which `kernels` and matrix products work on the arrays of `xp`.

    From now on such arrays are worked on by fused operations, in float64 by the reference.

    exact, rounded  products of float32 as they are, and as the precision tf32 rounds them
    """

    runs_ahead = True
    breadth = 4

    def __init__(self, xp: Any, kernels: Kernels, exact: Gemm, rounded: Gemm, precision: str) -> None:
        self.xp, self.precision, self.stored = xp, precision, dtype_named(STORED[precision])
        self.scale = xp.asarray([FIRST_LOSS_SCALE, 0], np.float32) if precision == "fp16" else None
        ops = FusedOps(xp, kernels, rounded if precision == "tf32" else exact, exact, self.scale)
        OPS[xp.ndarray] = Ops(xp)
        FAST[xp.ndarray, np.dtype("float32")] = FAST[xp.ndarray, self.stored] = ops

    def take_over(self, model: Transformer) -> None:
        store, xp = model.store, self.xp
        data = xp.asarray(store.data)
        store.hold(data, xp.zeros_like(data), None if self.stored == data.dtype else xp.empty(data.shape, self.stored))

    @property
    def loss_scale(self) -> list[float]:                                           # type: ignore[override]
        return [] if self.scale is None else self.scale.get().tolist()

    @loss_scale.setter
    def loss_scale(self, value: list[float]) -> None:
        if self.scale is not None and value:
            self.scale[...] = self.xp.asarray(value, np.float32)

    def overflow_is_normal(self) -> bool:
        return self.scale is not None and self.loss_scale[0] > SMALLEST_LOSS_SCALE


class Gpu(Accelerator):
    """The NVIDIA GPU with this number, counted from 0. Raises UserError if CuPy, a driver or this GPU is missing."""

    def __init__(self, number: int, precision: str) -> None:
        cupy, self.number = found_cupy(), number
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise UserError(f"gpu:{number}: no NVIDIA driver that works ({error})") from None
        if number >= count:
            raise UserError(f"gpu:{number}: there are {count} GPUs here, counted from 0")
        cupy.cuda.Device(number).use()
        super().__init__(cupy, CupyKernels(), Gemm(cupy, CuBlas()), Gemm(cupy, CuBlas(tf32=True)), precision)

    def describe(self) -> str:
        properties = self.xp.cuda.runtime.getDeviceProperties(self.number)
        return f"gpu:{self.number} ({properties['name'].decode()}), {self.precision}"


def found_cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise UserError("--device gpu needs CuPy: pip install 'scratchformer[cuda13]', or [cuda12]") from None
    return cupy


def dtype_named(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes                                                           # which CuPy brings along

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def open_device(name: str, precision: str = "") -> Device:
    """As `TrainingConfig.device` and `precision` say. Raises UserError if there is no such device."""
    kind, _, number = name.partition(":")
    return Device() if kind == "cpu" else Gpu(int(number or 0), precision or "tf32")
