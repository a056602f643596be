"""Ranks with a GPU each, and NVIDIA's NCCL between the GPUs."""

from __future__ import annotations

import atexit
import importlib
import warnings
from typing import Any

from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel.communicator import Communicator

TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64", "float16": "NCCL_FLOAT16", "bfloat16": "NCCL_BFLOAT16"}

IN_PROGRESS = 7
"""A code of NCCL's that is no error. CuPy knows codes up to 6, and raises KeyError for others."""


class Nccl(Communicator):
    """Sums and copies between the arrays of CuPy, queued on a stream of their own: the GPU computes on meanwhile.

    host  carries NCCL's id to all ranks, and whatever is not on a GPU

    The device of this rank must be the current one. Two ranks on one GPU are refused by NCCL: see `HostStaged`.
    Raises UserError if NCCL is missing or cannot connect the ranks.
    """

    def __init__(self, host: Communicator, cupy: Any) -> None:
        self.rank, self.size, self.local_rank = host.rank, host.size, host.local_rank
        self._host, self.cupy = host, cupy
        self.nccl = imported()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        try:
            shared_id = host.share(self.nccl.get_unique_id() if self.rank == 0 else b"")
            self.world = self.nccl.NcclCommunicator(self.size, shared_id, self.rank)
        except (self.nccl.NcclError, KeyError) as error:
            raise UserError(
                f"NCCL cannot connect the GPUs: {in_one_line(error)}; "
                "NCCL_DEBUG=WARN in the environment lets it say more"
            ) from None
        atexit.register(self.world.abort)  # else CuPy frees it, and may wait

    @property
    def host(self) -> Communicator:
        return self._host

    def all_reduce_(self, x: Any) -> None:
        self._follow_current()
        self.world.allReduce(x.data.ptr, x.data.ptr, x.size, self._type(x), self.nccl.NCCL_SUM, self.stream.ptr)

    def broadcast_(self, x: Any, root: int = 0) -> None:
        self._follow_current()
        self.world.broadcast(x.data.ptr, x.data.ptr, x.size, self._type(x), root, self.stream.ptr)
        self.wait()

    def _follow_current(self) -> None:
        """What is queued on NCCL's stream from here on begins when what is queued on the current one is done."""
        self.stream.wait_event(self.cupy.cuda.get_current_stream().record())

    def _type(self, x: Any) -> int:
        if not x.flags.c_contiguous:
            raise ValueError(f"an array of shape {x.shape} that is not contiguous cannot be sent")
        if x.dtype.name not in TYPES:
            raise ValueError(f"an array of {x.dtype.name} cannot be sent, only of {', '.join(TYPES)}")
        return getattr(self.nccl, TYPES[x.dtype.name])

    def wait(self) -> None:
        self.cupy.cuda.get_current_stream().wait_event(self.stream.record())

    def barrier(self) -> None:
        self.stream.synchronize()
        self.host.barrier()

    def check(self, waited: float = 0.0) -> None:
        """Raises NcclError if NCCL noticed that another rank or the connection to it is gone."""
        self.host.check(waited)
        try:
            self.world.check_async_error()
        except KeyError as error:
            if error.args[0] != IN_PROGRESS:
                raise RuntimeError(f"NCCL failed with code {error}") from None


def imported() -> Any:
    """The module `cupy.cuda.nccl`, which finds NCCL's library when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is told below
        nccl = importlib.import_module("cupy.cuda.nccl")
    if not nccl.available:
        raise UserError("several GPUs need NCCL, and CuPy finds none; pip install nvidia-nccl-cu13, or cu12, brings it")
    return nccl
