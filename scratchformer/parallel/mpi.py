"""Ranks on any number of machines, started by MPI's own launcher (mpiexec, srun); NumPy arrays."""

from __future__ import annotations

import atexit
import os
from typing import Any

import numpy as np

from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel.communicator import Communicator, flat
from scratchformer.parallel.watchdog import Watchdog

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Where Open MPI, MPICH (with all that is made of it) and SLURM's srun say how many ranks they have started."""


def size_said() -> int:
    """How many ranks an MPI launcher says it has started; 1 if there is no such launcher."""
    return max(int(os.environ.get(name, "1")) for name in SIZES)


class Mpi(Communicator):
    """MPI's world, by mpi4py. Sums are in MPI's own order: of two ranks always the same, of more perhaps not.

    watchdog  ends a rank that hangs; MPI's launcher then ends the others
    """

    def __init__(self, watchdog: Watchdog | None = None) -> None:
        self.MPI = imported()
        self.world = self.MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        if self.size != size_said():
            raise UserError(f"{size_said()} processes were started, but MPI knows of {self.size}: "
                            "start them by the launcher of the MPI that mpi4py uses (under SLURM: srun --mpi=pmix)")
        here = self.world.Split_type(self.MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = here.rank, here.size
        here.Free()
        self.watchdog = watchdog or Watchdog()
        self.watchdog.feed()

    def all_reduce_(self, x: np.ndarray) -> None:
        self.watchdog.feed()
        self.world.Allreduce(self.MPI.IN_PLACE, flat(x))
        self.watchdog.feed()

    def broadcast_(self, x: np.ndarray, root: int = 0) -> None:
        self.watchdog.feed()
        self.world.Bcast(flat(x), root)
        self.watchdog.feed()

    def barrier(self) -> None:
        self.watchdog.feed()
        self.world.Barrier()
        self.watchdog.feed()

    def abort(self, code: int = 1) -> None:
        """All ranks are ended when this one ends: by then it has said what was wrong."""
        atexit.register(self.world.Abort, code)

    def close(self) -> None:
        self.watchdog.stop()


def imported() -> Any:
    """mpi4py's module MPI, which finds an MPI library when it is imported."""
    try:
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise UserError("started by MPI, but mpi4py is not installed: pip install 'scratchformer[mpi]'") from None
    except (ImportError, RuntimeError) as error:
        raise UserError(f"mpi4py finds no MPI library: {in_one_line(error)}") from None
    return MPI
