"""Ranks on any number of machines, started by MPI's own launcher (mpiexec, srun), for NumPy arrays.

`mpiexec -l` and `srun -l` prefix each line that a rank prints with its number; with Open MPI, `mpiexec --tag-output`.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import Any

import numpy as np

from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel.communicator import Communicator, flat_view, timed_out
from scratchformer.parallel.job import MPI_SIZES
from scratchformer.parallel.watchdog import MARGIN, Watchdog

OUTPUT_DELAY = 0.5
"""Seconds that a rank's last lines may take to reach the terminal; MPI_Abort discards what is still on its way."""


def launched_size() -> int:
    """Count the ranks that an MPI launcher has started, by the environment; 1 without such a launcher."""
    return next((int(os.environ[name]) for name in MPI_SIZES if name in os.environ), 1)


def unusable(problem: str) -> UserError:
    """Build the error for processes that MPI has started and that cannot use it."""
    name = next(name for name in MPI_SIZES if name in os.environ)
    return UserError(f"MPI has started {launched_size()} processes (by {name} in the environment), but {problem}")


class Mpi(Communicator):
    """MPI_COMM_WORLD, by mpi4py. MPI chooses the order of a sum: with more than two ranks, its bits may vary.

    MPI's own operations wait actively and for ever, and cannot be interrupted. So before each of them the ranks meet at
    a barrier that polls, sleeps and observes the watchdog. The first rank to exit ends the job.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.watchdog.feed()  # importing MPI waits until all ranks have started
        self.MPI = import_mpi()
        self.world = self.MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        if self.size != launched_size():
            remedy = "start them by the launcher of the MPI that mpi4py uses (under SLURM: srun --mpi=pmix)"
            raise unusable(f"MPI reports {self.size}: {remedy}")
        self.local_rank = self.world.Split_type(self.MPI.COMM_TYPE_SHARED).rank

    def all_reduce_inplace(self, x: np.ndarray) -> None:
        numbers = flat_view(x)
        self.barrier()
        if x.itemsize == 2:  # MPI has no bfloat16
            wide = numbers.astype(np.float32)
            self.world.Allreduce(self.MPI.IN_PLACE, wide)
            numbers[:] = wide
        else:
            self.world.Allreduce(self.MPI.IN_PLACE, numbers)

    def broadcast_inplace(self, x: np.ndarray, root: int = 0) -> None:
        self.barrier()
        self.world.Bcast(flat_view(x).view(np.uint8), root)

    def barrier(self) -> None:
        if waited := self.watchdog.wait_until(self.world.Ibarrier().Test):
            time.sleep(MARGIN)  # the rank that hangs prints its stacks first
            raise timed_out(self.rank, waited, "another rank")

    def check(self, waited: float = 0.0) -> None:
        if not self.watchdog.may_wait(waited):
            raise timed_out(self.rank, waited)

    def abort(self, code: int = 1) -> None:
        """End all ranks when this one exits, after it has printed what was wrong.

        Bad input (code 2) usually fails on every rank: the others wait so that only rank 0 reports it.
        """
        atexit.register(self._abort_all, code)
        if code == 2 and self.rank:
            time.sleep(3 * OUTPUT_DELAY)

    def _abort_all(self, code: int) -> None:
        time.sleep(OUTPUT_DELAY)
        self.world.Abort(code)


def import_mpi() -> Any:
    """Import mpi4py.MPI, which loads the MPI library."""
    try:
        from mpi4py import MPI

        return MPI
    except ModuleNotFoundError:
        raise unusable("mpi4py is not installed: pip install 'scratchformer[mpi]'") from None
    except (ImportError, RuntimeError) as error:
        raise unusable(f"mpi4py finds no MPI library: {in_one_line(error)}") from None
