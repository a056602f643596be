"""Communication between ranks with GPUs: by NVIDIA's NCCL, or through host memory."""

from __future__ import annotations

import atexit
import importlib
import warnings
from typing import Any

from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel.communicator import Array, Communicator, require_contiguous

TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64", "float16": "NCCL_FLOAT16", "bfloat16": "NCCL_BFLOAT16"}

IN_PROGRESS = 7
"""An NCCL status that is not an error. CuPy knows the codes up to 6 and raises KeyError for others."""


class HostStaged(Communicator):
    """Sends arrays of a GPU through host memory. Slow, but works without NCCL, as for two ranks on one GPU.

    host  a communicator of the same ranks, which sends the copies
    """

    host: Communicator

    def __init__(self, host: Communicator, cupy: Any) -> None:
        self.rank, self.size, self.local_rank = host.rank, host.size, host.local_rank
        self.host, self.cupy = host, cupy

    def all_reduce_inplace(self, x: Array) -> None:
        on_host = x.get()
        self.host.all_reduce_inplace(on_host)
        x[...] = self.cupy.asarray(on_host)

    def broadcast_inplace(self, x: Array, root: int = 0) -> None:
        on_host = x.get()
        self.host.broadcast_inplace(on_host, root)
        x[...] = self.cupy.asarray(on_host)

    def barrier(self) -> None:
        self.host.barrier()

    def check(self, waited: float = 0.0) -> None:
        self.host.check(waited)


class Nccl(HostStaged):
    """All-reduce and broadcast of CuPy arrays on a separate stream, so that the GPU can compute meanwhile.

    host  sends NCCL's id to all ranks, and whatever is not on a GPU

    This rank's GPU must be the current device. NCCL refuses two ranks on one GPU.
    """

    def __init__(self, host: Communicator, cupy: Any) -> None:
        super().__init__(host, cupy)
        self.nccl = import_nccl()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        try:
            shared_id = host.broadcast_bytes(self.nccl.get_unique_id() if self.rank == 0 else b"")
            self.world = self.nccl.NcclCommunicator(self.size, shared_id, self.rank)
        except (self.nccl.NcclError, KeyError) as error:
            details = "for details, set NCCL_DEBUG=WARN in the environment"
            raise UserError(f"NCCL cannot connect the GPUs: {in_one_line(error)}; {details}") from None
        atexit.register(self.world.abort)  # otherwise CuPy destroys it, which may wait for other ranks

    def all_reduce_inplace(self, x: Any) -> None:
        self._wait_for_current_stream()
        self.world.allReduce(x.data.ptr, x.data.ptr, x.size, self._type(x), self.nccl.NCCL_SUM, self.stream.ptr)

    def broadcast_inplace(self, x: Any, root: int = 0) -> None:
        self._wait_for_current_stream()
        self.world.broadcast(x.data.ptr, x.data.ptr, x.size, self._type(x), root, self.stream.ptr)
        self.wait()

    def _wait_for_current_stream(self) -> None:
        """Let NCCL's stream wait for what is queued on the current stream."""
        self.stream.wait_event(self.cupy.cuda.get_current_stream().record())

    def _type(self, x: Any) -> int:
        require_contiguous(x)
        if x.dtype.name not in TYPES:
            raise ValueError(f"cannot send an array of {x.dtype.name}, only of {', '.join(TYPES)}")
        return getattr(self.nccl, TYPES[x.dtype.name])

    def wait(self) -> None:
        self.cupy.cuda.get_current_stream().wait_event(self.stream.record())

    def barrier(self) -> None:
        self.stream.synchronize()
        super().barrier()

    def check(self, waited: float = 0.0) -> None:
        """Raise NcclError if NCCL has noticed that another rank or the connection to it is gone."""
        super().check(waited)
        try:
            self.world.check_async_error()
        except KeyError as error:
            if error.args[0] != IN_PROGRESS:
                raise RuntimeError(f"NCCL failed with code {error}") from None


def import_nccl() -> Any:
    """Import `cupy.cuda.nccl`, which loads the NCCL library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing library is reported below
        nccl = importlib.import_module("cupy.cuda.nccl")
    if not nccl.available:
        remedy = "pip install nvidia-nccl-cu13, or cu12, installs it"
        raise UserError(f"several GPUs need NCCL, which CuPy cannot find; {remedy}")
    return nccl
