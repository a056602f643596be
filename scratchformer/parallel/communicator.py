"""How the processes of a job talk: one small interface, whatever carries the numbers.

A process of the job is a rank. All ranks run the same program and call the same operations in the same order, each with
an array of one shape and dtype; an operation returns when this rank's array holds the result, or, on a GPU, once its
work is queued.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

Array = Any
"""A NumPy array, or one of CuPy."""


class Abandoned(RuntimeError):
    """This rank gives up, because another one does not come; or has failed, and tells of it: then without a message."""


def waited_in_vain(rank: int, seconds: float, for_whom: str) -> Abandoned:
    return Abandoned(f"rank {rank} gives up: it waited {seconds:.0f} s in vain for {for_whom}")


ITS_GPU = "its GPU, which may be waiting for another rank"


class Communicator:
    """A job of one rank, which has nobody to talk to; and what every communicator is able to do.

    rank, size  this rank's number from 0, and how many there are
    local_rank  its number among the ranks on this machine
    host        a communicator of the same ranks for NumPy arrays, by which they agree on what to do
    """

    rank = local_rank = 0
    size = 1

    @property
    def host(self) -> Communicator:
        return self

    def all_reduce_(self, x: Array) -> None:
        """Let x, a contiguous array of numbers, be the sum of the arrays of all ranks, in place.

        All ranks get the same bits. Where the sum is queued, `wait` comes before its use.
        """

    def broadcast_(self, x: Array, root: int = 0) -> None:
        """Let x, a contiguous array, be that of the rank `root`, in place."""

    def wait(self) -> None:
        """What is computed from here on sees the sums that are queued so far."""

    def barrier(self) -> None:
        """Return when all ranks have come here."""

    def check(self, waited: float = 0.0) -> None:
        """Raises RuntimeError if an operation that is under way has failed, or takes too long. Never waits itself.

        waited  seconds, so far, for its result
        """

    def abort(self, code: int = 1) -> None:
        """Let the others give up as well, since this rank has failed; it is to end with this exit code."""

    def close(self) -> None:
        """Give back what was opened; after the last operation, not after a failure."""

    # Made of the above, for few and small things

    def share(self, message: bytes = b"", root: int = 0) -> bytes:
        """The message of the rank `root`, on all of them."""
        length = np.array([len(message)], np.int64)
        self.host.broadcast_(length, root)
        received = np.zeros(length[0], np.uint8)
        if self.rank == root:
            received[:] = np.frombuffer(message, np.uint8)
        self.host.broadcast_(received, root)
        return received.tobytes()

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, on all of them."""
        return [self.share(message, root) for root in range(self.size)]


class HostStaged(Communicator):
    """Arrays of a GPU, by way of the host's memory: slow, and possible where NCCL is not, as for two ranks on one GPU.

    host  carries them
    xp    the module of the arrays
    """

    def __init__(self, host: Communicator, xp: Any) -> None:
        self.rank, self.size, self.local_rank = host.rank, host.size, host.local_rank
        self._host, self.xp = host, xp

    @property
    def host(self) -> Communicator:
        return self._host

    def all_reduce_(self, x: Array) -> None:
        on_host = x.get()
        self.host.all_reduce_(on_host)
        x[...] = self.xp.asarray(on_host)

    def broadcast_(self, x: Array, root: int = 0) -> None:
        on_host = x.get()
        self.host.broadcast_(on_host, root)
        x[...] = self.xp.asarray(on_host)

    def barrier(self) -> None:
        self.host.barrier()

    def check(self, waited: float = 0.0) -> None:
        self.host.check(waited)


def flat(x: np.ndarray) -> np.ndarray:
    """x as (numbers,), the same memory. Raises ValueError if it does not lie in memory in one piece."""
    if not x.flags.c_contiguous:
        raise ValueError(f"an array of shape {x.shape} that is not contiguous cannot be sent")
    return x.reshape(-1)


def listed(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
