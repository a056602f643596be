"""Communication between ranks on one machine, for NumPy arrays, through shared memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np

from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator, PeerFailure, flat_view, name_ranks, timed_out
from scratchformer.parallel.watchdog import Watchdog

SLOT_BYTES = 1 << 20
"""Bytes that a rank copies at a time. Larger pieces do not stay in the cache, smaller ones need more barriers."""

CACHE_LINE = 64
"""Bytes between two counters, so that two ranks never write to the same cache line."""


class SharedMemory(Communicator):
    """All ranks map the same file. It holds a counter for each rank, a failure flag, and buffers (slots) for numbers.

    For a sum each rank copies a piece of its array into its slot. After a barrier each rank adds up its share of the
    piece, in the order of the ranks; after another barrier all copy the result. So the sum has the same bits on every
    rank and in every run. Two sets of slots alternate: a fast rank may fill one set while a slow one still reads the
    other.

    path      the file, made by `create_file`. It is unlinked once all ranks have opened it, so nothing is left behind
    watchdog  how long to wait for a rank
    """

    def __init__(self, path: Path, rank: int, size: int, watchdog: Watchdog) -> None:
        self.rank, self.size, self.local_rank, self.watchdog = rank, size, rank, watchdog
        header, self.slots = map_file(path, size)
        self.arrivals, self.failure = header[:-1, 0], header[-1, :1]
        self.slot_set, self.lock = 0, threading.Lock()
        self.watchdog.feed()
        self.barrier()
        if rank == 0:
            path.unlink()

    def all_reduce_inplace(self, x: np.ndarray) -> None:
        for piece in self._pieces(x):
            slots = self._slots(piece)
            slots[self.rank] = piece
            self.barrier()
            mine = slice(piece.size * self.rank // self.size, piece.size * (self.rank + 1) // self.size)
            total = slots[self.size, mine]
            total[:] = slots[0, mine]
            for other in range(1, self.size):
                total += slots[other, mine]
            self.barrier()
            piece[:] = slots[self.size]

    def broadcast_inplace(self, x: np.ndarray, root: int = 0) -> None:
        for piece in self._pieces(x):
            slot = self._slots(piece)[root]
            if self.rank == root:
                slot[:] = piece
            self.barrier()
            piece[:] = slot

    def _pieces(self, x: np.ndarray) -> list[np.ndarray]:
        numbers, n = flat_view(x), SLOT_BYTES // x.itemsize
        return [numbers[start : start + n] for start in range(0, numbers.size, n)]

    def _slots(self, piece: np.ndarray) -> np.ndarray:
        """Take the other set of slots, as (size + 1, piece.size) of the piece's dtype; the last is for the result."""
        self.slot_set = 1 - self.slot_set
        return self.slots[self.slot_set, :, : piece.nbytes].view(piece.dtype)

    def barrier(self) -> None:
        """Wait for all ranks; raise PeerFailure if one has failed or does not arrive in time."""
        self._memory_fence()
        self.arrivals[self.rank] += 1
        count = self.arrivals[self.rank]

        def all_arrived() -> bool:
            if self.failure[0] and (self.arrivals < count).any():
                raise PeerFailure
            return bool((self.arrivals >= count).all())

        if waited := self.watchdog.wait_until(all_arrived):
            absent = np.flatnonzero(self.arrivals < count).tolist()
            raise timed_out(self.rank, waited, name_ranks(absent))
        self._memory_fence()

    def _memory_fence(self) -> None:
        """Keep the processor from reordering memory accesses across this call. (On x86 it would not anyway.)"""
        for _ in range(2):  # release, then acquire
            with self.lock:
                pass

    def check(self, waited: float = 0.0) -> None:
        if self.failure[0]:
            raise PeerFailure
        if not self.watchdog.may_wait(waited):
            raise timed_out(self.rank, waited)

    def abort(self, code: int = 1) -> None:
        self.failure[0] = 1


def create_file(path: Path, size: int) -> None:
    """Create the file for `size` ranks."""
    try:
        with open(path, "xb") as file:
            file.truncate(file_bytes(size))
            if hasattr(os, "posix_fallocate"):  # without reserved space, a later write could end the process (SIGBUS)
                os.posix_fallocate(file.fileno(), 0, file_bytes(size))
    except OSError as error:
        needed = f"{file_bytes(size) >> 20} MiB of shared memory"
        raise UserError(f"{path.parent}: no room for {needed}: {error.strerror}") from None


def map_file(path: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Map the file into memory -> header (size + 1, CACHE_LINE / 8) int64, slots (2, size + 1, SLOT_BYTES) uint8

    Column 0 of the header has a counter for each rank and, last, the failure flag, which the launcher sets for ranks
    that have died. Each set of slots has one for each rank and one for the result.
    """
    header, slots = np.split(np.memmap(path, np.uint8, "r+"), [(size + 1) * CACHE_LINE])
    return header.view(np.int64).reshape(size + 1, -1), slots.reshape(2, size + 1, SLOT_BYTES)


def file_bytes(size: int) -> int:
    """Compute the length of the file for `size` ranks."""
    return (size + 1) * (CACHE_LINE + 2 * SLOT_BYTES)
