"""Ranks with a GPU each, and NVIDIA's NCCL between the GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel.communicator import Communicator

TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64", "float16": "NCCL_FLOAT16", "bfloat16": "NCCL_BFLOAT16"}


class Nccl(Communicator):
    """Sums and copies between the arrays of CuPy, queued on a stream of their own: the GPU computes on meanwhile.

    host  carries NCCL's id to all ranks, and whatever is not on a GPU

    The device of this rank must be the current one. Two ranks on one GPU are refused by NCCL: see `HostStaged`.
    Raises UserError if NCCL is missing or cannot connect the ranks.
    """

    def __init__(self, host: Communicator, cupy: Any) -> None:
        self.rank, self.size, self.local_rank, self.local_size = host.rank, host.size, host.local_rank, host.local_size
        self._host, self.cupy = host, cupy
        self.nccl = imported()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.world = self._connected(self._shared_id())

    def _shared_id(self) -> tuple[int, ...]:
        """Rank 0 makes it; if that fails, none waits for it."""
        made, trouble = b"", b""
        if self.rank == 0:
            try:
                made = np.array(self.nccl.get_unique_id(), np.int8).tobytes()
            except Exception as error:
                trouble = in_one_line(error).encode()
        if trouble := self.host.share(trouble):
            raise UserError(f"NCCL: {trouble.decode()}")
        return tuple(np.frombuffer(self.host.share(made), np.int8).tolist())

    def _connected(self, shared_id: tuple[int, ...]) -> Any:
        try:
            return self.nccl.NcclCommunicator(self.size, shared_id, self.rank)
        except self.nccl.NcclError as error:
            raise UserError(f"rank {self.rank}: NCCL cannot connect the GPUs: {in_one_line(error)}; "
                            "NCCL_DEBUG=WARN in the environment lets it say more") from None

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
        return getattr(self.nccl, TYPES[x.dtype.name])

    def wait(self) -> None:
        self.cupy.cuda.get_current_stream().wait_event(self.stream.record())

    def barrier(self) -> None:
        self.stream.synchronize()
        self.host.barrier()

    def check(self) -> None:
        """Raises NcclError if NCCL noticed that another rank or the connection to it is gone."""
        self.world.check_async_error()

    def abort(self, code: int = 1) -> None:
        """Before Python ends: to free a communicator that waits for another rank would wait as well."""
        self.host.abort(code)
        self.world.abort()

    def close(self) -> None:
        self.stream.synchronize()
        self.world.destroy()
        self.host.close()


def imported() -> Any:
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise UserError(f"several GPUs need NCCL ({in_one_line(error)}); "
                        "pip install nvidia-nccl-cu13, or cu12, brings it") from None
    return nccl
