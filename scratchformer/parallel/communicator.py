"""The interface by which the processes of a job exchange arrays, whether over shared memory, MPI or NCCL.

Each process is a rank. All ranks run the same program and call the same operations in the same order, with arrays of
the same shape and dtype. An operation returns when this rank's array holds the result or, on a GPU, once it is queued.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

Array = Any
"""A NumPy array or a CuPy array."""


class PeerFailure(RuntimeError):
    """This rank stops because another one failed or did not arrive. Without a message if the other reports why."""


def timed_out(
    rank: int, seconds: float, awaited: str = "its GPU, which may be waiting for another rank"
) -> PeerFailure:
    """Build the exception for a rank that has waited so many seconds for others."""
    return PeerFailure(f"rank {rank} gave up after waiting {seconds:.0f} s for {awaited}")


class Communicator:
    """The interface of all communicators, and the communicator of a job with one rank, where nothing has to be sent.

    rank, size  number of this rank, from 0, and number of ranks
    local_rank  number of this rank among those on the same machine
    host        a communicator of the same ranks for NumPy arrays
    """

    rank = local_rank = 0
    size = 1
    _host: Communicator | None = None

    @property
    def host(self) -> Communicator:
        """This communicator itself, if its arrays are NumPy's."""
        return self._host or self

    def all_reduce_inplace(self, x: Array) -> None:
        """Replace x, a contiguous array of numbers, by the sum over all ranks; every rank gets the same bits.

        The sum may only be queued: call `wait` before using it.
        """

    def broadcast_inplace(self, x: Array, root: int = 0) -> None:
        """Replace x, a contiguous array, by that of the rank `root`."""

    def wait(self) -> None:
        """Let computations that follow wait for the sums queued so far."""

    def barrier(self) -> None:
        """Return when all ranks have called this."""

    def check(self, waited: float = 0.0) -> None:
        """Raise RuntimeError if a queued operation has failed or takes too long. Does not block.

        waited  seconds that this rank has been waiting for the result
        """

    def abort(self, code: int = 1) -> None:
        """Tell the other ranks that this one has failed and will exit with this code."""

    def broadcast_bytes(self, message: bytes = b"", root: int = 0) -> bytes:
        """Give all ranks the message of the rank `root`."""
        length = np.array([len(message)], np.int64)
        self.host.broadcast_inplace(length, root)
        received = np.zeros(length[0], np.uint8)
        if self.rank == root:
            received[:] = np.frombuffer(message, np.uint8)
        self.host.broadcast_inplace(received, root)
        return received.tobytes()

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Give all ranks the messages of all ranks."""
        return [self.broadcast_bytes(message, root) for root in range(self.size)]


class HostStaged(Communicator):
    """Sends arrays of a GPU through host memory. Slow, but works without NCCL, as for two ranks on one GPU.

    host  sends the copies
    xp    the array module, CuPy
    """

    def __init__(self, host: Communicator, xp: Any) -> None:
        self.rank, self.size, self.local_rank = host.rank, host.size, host.local_rank
        self._host, self.xp = host, xp

    def all_reduce_inplace(self, x: Array) -> None:
        on_host = x.get()
        self.host.all_reduce_inplace(on_host)
        x[...] = self.xp.asarray(on_host)

    def broadcast_inplace(self, x: Array, root: int = 0) -> None:
        on_host = x.get()
        self.host.broadcast_inplace(on_host, root)
        x[...] = self.xp.asarray(on_host)

    def barrier(self) -> None:
        self.host.barrier()

    def check(self, waited: float = 0.0) -> None:
        self.host.check(waited)


def require_contiguous(x: Array) -> None:
    """Refuse an array that is not contiguous in C order."""
    if not x.flags.c_contiguous:
        raise ValueError(f"cannot send an array of shape {x.shape} that is not contiguous")


def flat_view(x: np.ndarray) -> np.ndarray:
    """View x, a contiguous array, as (x.size,)."""
    require_contiguous(x)
    return x.reshape(-1)


def name_ranks(ranks: Sequence[int]) -> str:
    """[0, 2] -> 'ranks 0, 2'"""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
