"""Ranks on one machine, NumPy arrays, and memory that all of them see."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

from scratchformer.errors import UserError
from scratchformer.parallel.communicator import ITS_GPU, Abandoned, Communicator, flat, listed, waited_in_vain
from scratchformer.parallel.watchdog import Watchdog

SLOT_BYTES = 1 << 20
"""What a rank lays down at a time. Larger pieces leave the cache, smaller ones mean more barriers."""

LINE = 8
"""Counters stand 64 bytes apart, so that two ranks never write to one line of the cache."""

SPINS = 200
"""How often a rank looks for the others before it lets go of the processor."""


class SharedMemory(Communicator):
    """All ranks map one file: a counter for each, a flag for failure, and places (slots) for numbers.

    For a sum each rank lays a piece of its array into its slot; at a barrier all wait until the pieces are there; then
    each adds up its share of the numbers, in the order of the ranks, and after another barrier all fetch the result. So
    the sum has the same bits on every rank and in every run. Two sets of slots take turns: while a slow rank still
    fetches from one, the others may fill the other.

    path       of the file, made by `create`; once all ranks have it open, it loses its name, and nothing remains of it
    watchdog   how long to wait for a rank, and what else to do then
    """

    def __init__(self, path: Path, rank: int, size: int, watchdog: Watchdog | None = None) -> None:
        self.rank, self.size, self.local_rank = rank, size, rank
        self.watchdog = watchdog or Watchdog()
        header, self.slots = mapped(path, size)
        self.arrivals, self.failure = header[:-1, 0], header[-1, :1]
        self.turn, self.fence = 0, threading.Lock()
        self.watchdog.feed()
        self.barrier()
        if rank == 0:
            path.unlink()

    def all_reduce_(self, x: np.ndarray) -> None:
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

    def broadcast_(self, x: np.ndarray, root: int = 0) -> None:
        for piece in self._pieces(x):
            slot = self._slots(piece)[root]
            if self.rank == root:
                slot[:] = piece
            self.barrier()
            piece[:] = slot

    def _pieces(self, x: np.ndarray) -> list[np.ndarray]:
        numbers, n = flat(x), SLOT_BYTES // x.itemsize
        return [numbers[start : start + n] for start in range(0, numbers.size, n)]

    def _slots(self, piece: np.ndarray) -> np.ndarray:
        """(size + 1, numbers) of the piece's dtype, in the set of slots whose turn it is."""
        self.turn = 1 - self.turn
        return self.slots[self.turn, :, : piece.nbytes].view(piece.dtype)

    def barrier(self) -> None:
        """Raises Abandoned if another rank has failed, or does not come."""
        self._in_order()
        self.arrivals[self.rank] += 1
        count, began, spins = self.arrivals[self.rank], time.monotonic(), 0
        while (self.arrivals < count).any():
            if self.failure[0] and (self.arrivals < count).any():  # still: who has come may be gone
                raise Abandoned
            spins += 1
            if spins > SPINS:
                waited = time.monotonic() - began
                if not self.watchdog.is_patient(waited):
                    absent = np.flatnonzero(self.arrivals < count).tolist()
                    raise waited_in_vain(self.rank, waited, listed(absent))
                time.sleep(min(0.001, waited / 10))
        self._in_order()
        self.watchdog.feed()

    def _in_order(self) -> None:
        """What is read and written before comes before what is read and written after; x86 keeps to that by itself."""
        for _ in range(2):  # release, then acquire
            with self.fence:
                pass

    def check(self, waited: float = 0.0) -> None:
        if self.failure[0]:
            raise Abandoned
        if not self.watchdog.is_patient(waited):
            raise waited_in_vain(self.rank, waited, ITS_GPU)

    def abort(self, code: int = 1) -> None:
        self.failure[0] = 1

    def close(self) -> None:
        self.watchdog.stop()


# The file -------------------------------------------------------------------------------------------------------------


def create(path: Path, size: int) -> None:
    """Make the file for so many ranks. Raises UserError if there is no room for it."""
    try:
        with open(path, "xb") as file:
            file.truncate(n_bytes(size))
            if hasattr(os, "posix_fallocate"):  # else a later write would end us
                os.posix_fallocate(file.fileno(), 0, n_bytes(size))
    except OSError as error:
        raise UserError(
            f"{path.parent}: no room for {n_bytes(size) >> 20} MiB of shared memory: " f"{error.strerror}"
        ) from None


def mapped(path: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The file in memory -> header (size + 1, LINE) int64, slots (2, size + 1, SLOT_BYTES) uint8

    A line of the header for each rank, and one for the failure; a slot for each rank, and one for the result.
    """
    memory = np.memmap(path, np.uint8, "r+")
    header, slots = memory[: header_bytes(size)], memory[header_bytes(size) :]
    return header.view(np.int64).reshape(size + 1, LINE), slots.reshape(2, size + 1, SLOT_BYTES)


def failure_flag(path: Path, size: int) -> np.ndarray:
    """(1,) int64: not 0 when a rank has failed. The launcher writes it for ranks that cannot any more."""
    return mapped(path, size)[0][-1, :1]


def n_bytes(size: int) -> int:
    """What the file of so many ranks takes."""
    return header_bytes(size) + 2 * (size + 1) * SLOT_BYTES


def header_bytes(size: int) -> int:
    return (size + 1) * LINE * 8
