"""The interface by which the processes of a job exchange arrays, whether over shared memory, MPI or NCCL.

Each process is a rank. All ranks run the same program and call the same operations in the same order, with arrays of
the same shape and dtype. An operation returns when this rank's array holds the result or, on a GPU, once it is queued.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

import numpy as np

from scratchformer.errors import UserError

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
    host        a communicator of the same ranks for NumPy arrays; None if that is this one itself
    """

    rank = local_rank = 0
    size = 1
    host: Communicator | None = None

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
        if self.size == 1:
            return message
        ranks, length = self.host or self, np.array([len(message)], np.int64)
        ranks.broadcast_inplace(length, root)
        received = np.zeros(length[0], np.uint8)
        if self.rank == root:
            received[:] = np.frombuffer(message, np.uint8)
        ranks.broadcast_inplace(received, root)
        return received.tobytes()

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Give all ranks the messages of all ranks."""
        return [self.broadcast_bytes(message, root) for root in range(self.size)]

    def require_agreement(self, facts: dict[str, Any]) -> None:
        """Compare `facts`, name -> string or number, of all ranks; if some differ, every rank names them and stops."""
        received = [json.loads(message) for message in self.all_gather_bytes(json.dumps(facts).encode())]
        differences = []
        for name in facts:
            ranks: dict[str, list[int]] = {}  # value -> the ranks that have it
            for rank, of_rank in enumerate(received):
                ranks.setdefault(repr(of_rank.get(name)), []).append(rank)
            if len(ranks) > 1:
                values = " and ".join(f"{value} on {name_ranks(which)}" for value, which in ranks.items())
                differences.append(f"{name} is {values}")
        if differences:
            raise UserError(f"the ranks do not agree: {'; '.join(differences)}")


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
