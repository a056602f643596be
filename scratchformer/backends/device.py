"""The devices that compute: the CPU, or a GPU (`backends/cuda`). `Device.ops` are the operations for its arrays."""

from __future__ import annotations

import importlib
from typing import Any, Callable

import numpy as np

from scratchformer.backends.cpu import FAST, FrozenOps
from scratchformer.errors import UserError
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array
from scratchformer.parallel.communicator import Communicator

HOW_TO_INSTALL = "pip install 'scratchformer[cuda13]', or [cuda12], brings it"


class Device:
    """The CPU, and what every device can do.

    ops           the operations for its arrays: whoever computes there does so inside `using(*device.ops)`
    is_async      whether it computes in the background, so that the host should begin a step before the last one ends
    batch_factor  sentences to translate at once, as a multiple of the CPU's
    """

    ops: tuple[Ops, ...] = (FAST,)
    is_async = False
    batch_factor = 1

    def to_device(self, model: Model) -> None:
        """Move the weights of a model here, in the device's precision. New models are on the CPU already."""

    def frozen_ops(self) -> tuple[Ops, ...]:
        """New operations for weights that do not change while these are in use, as in translation."""
        return tuple(FrozenOps() if ops is FAST else ops for ops in self.ops)

    def communicator(self, host: Communicator) -> Communicator:
        """A communicator for arrays of this device, between the ranks of `host`. All ranks call this."""
        return host

    def read_back(self, number: Array, check: Callable[[float], None] = lambda waited: None) -> Callable[[], float]:
        """Start to copy a 0-d array to the host -> a function that waits for the number.

        check  is called from time to time with the seconds waited so far, and may raise
        """
        return lambda: float(number)

    def adapt_loss_scale(self, norm: Array) -> None:
        """After a step with fp16: choose the loss scale of the next step."""

    def overflow_is_normal(self) -> bool:
        """True if gradients overflow now and then, so that a step may be skipped."""
        return False

    def state(self) -> list[float]:
        """State of the device for a checkpoint: the loss scale with fp16, otherwise empty."""
        return []

    def restore(self, state: list[float]) -> None:
        """Take up a `state`. That of a device of another kind has no effect."""

    def memory_bytes(self) -> int | None:
        """Free memory of the device; None if it has none of its own or cannot tell."""
        return None

    def describe(self) -> str:
        """The name of the device, and its precision, for the user."""
        return "NumPy on the CPU"


def open_device(name: str, precision: str = "", local_rank: int = 0) -> Device:
    """The device of this rank, as `TrainingConfig.device` and `precision` say.

    local_rank  of this process among those on the machine: `gpu` without a number is the GPU of this rank
    """
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return Device()
    from scratchformer.backends.cuda.device import Gpu

    return Gpu(int(number) if number else None, precision or "tf32", local_rank)


def import_or_explain(module: str) -> Any:
    """A module of an optional package. Raises UserError if it is not installed, ImportError if it is broken."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(f"--device gpu needs {module}; {HOW_TO_INSTALL}") from None


def dtype_named(name: str) -> np.dtype:
    """NumPy's dtype, or bfloat16 from ml_dtypes."""
    return np.dtype(import_or_explain("ml_dtypes").bfloat16 if name == "bfloat16" else name)
