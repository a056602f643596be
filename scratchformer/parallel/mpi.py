"""Ranks on any number of machines, started by MPI's own launcher (mpiexec, srun); NumPy arrays.

`mpiexec -l` or `srun -l` puts its rank before each line that a rank prints; Open MPI: `mpiexec --tag-output`.
"""

from __future__ import annotations

import atexit
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel.communicator import ITS_GPU, Communicator, flat, waited_in_vain
from scratchformer.parallel.shared_memory import SPINS
from scratchformer.parallel.watchdog import MARGIN, Watchdog

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Where Open MPI, MPICH (with all that is made of it) and SLURM's srun say how many ranks they have started.

SLURM comes last: under it, mpiexec may itself be a step of SLURM, with another number.
"""

HEARD = 0.5
"""Seconds in which a rank's last words reach the terminal; MPI's launcher drops what is on its way when it ends all."""


def size_said() -> int:
    """How many ranks an MPI launcher says it has started; 1 if there is no such launcher."""
    name = next((name for name in SIZES if name in os.environ), None)
    said = os.environ[name] if name else "1"
    if not said.isdecimal():
        raise UserError(f"{name}={said!r} in the environment is no number of processes")
    return int(said)


def said() -> str:
    """That it was an MPI launcher, and how one knows."""
    name = next(name for name in SIZES if name in os.environ)
    return f"MPI has started {size_said()} processes (so {name} says in the environment)"


class Mpi(Communicator):
    """MPI's world, by mpi4py. Sums are in MPI's own order: of two ranks always the same, of more perhaps not.

    MPI itself waits with all its might, for ever, and deaf to everything. So the ranks meet at a barrier of our own
    patience before each operation; what MPI then does has all it needs.

    watchdog  how long to wait for a rank, and what else to do then. The first rank to end ends the job.
    """

    def __init__(self, watchdog: Watchdog | None = None) -> None:
        self.watchdog = watchdog or Watchdog()
        self.watchdog.feed()  # MPI waits here for all to begin
        self.MPI = imported()
        self.world = self.MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        if self.size != size_said():
            raise UserError(
                f"{said()}, but MPI knows of {self.size}: start them by the launcher of the MPI that "
                "mpi4py uses (under SLURM: srun --mpi=pmix)"
            )
        here = self.world.Split_type(self.MPI.COMM_TYPE_SHARED)
        self.local_rank = here.rank
        here.Barrier()
        take_names_away()
        here.Free()

    def all_reduce_(self, x: np.ndarray) -> None:
        numbers = flat(x)
        self.barrier()
        if x.itemsize == 2:  # MPI knows no bfloat16
            wide = numbers.astype(np.float32)
            self.world.Allreduce(self.MPI.IN_PLACE, wide)
            numbers[:] = wide
        else:
            self.world.Allreduce(self.MPI.IN_PLACE, numbers)

    def broadcast_(self, x: np.ndarray, root: int = 0) -> None:
        self.barrier()
        self.world.Bcast(flat(x).view(np.uint8), root)

    def barrier(self) -> None:
        """Raises Abandoned if another rank does not come."""
        arrived, began, spins = self.world.Ibarrier(), time.monotonic(), 0
        while not arrived.Test():
            spins += 1
            if spins > SPINS:
                waited = time.monotonic() - began
                if not self.watchdog.is_patient(waited):
                    time.sleep(MARGIN)  # who hangs is to speak first
                    raise waited_in_vain(self.rank, waited, "another one")
                time.sleep(min(0.001, waited / 10))
        self.watchdog.feed()

    def check(self, waited: float = 0.0) -> None:
        if not self.watchdog.is_patient(waited):
            raise waited_in_vain(self.rank, waited, ITS_GPU)

    def abort(self, code: int = 1) -> None:
        """All ranks are ended when this one ends: by then it has said what was wrong.

        What is wrong with the user's input is mostly so on every rank: the first one then says it for all.
        """
        atexit.register(self._end_all, code)
        if code == 2 and self.rank:
            time.sleep(3 * HEARD)

    def _end_all(self, code: int) -> None:
        time.sleep(HEARD)
        self.world.Abort(code)

    def close(self) -> None:
        self.watchdog.stop()


def take_names_away() -> None:
    """MPICH leaves a file in shared memory behind when ranks are killed. Once all have it open, it needs no name."""
    maps = Path("/proc/self/maps")
    for path in re.findall(r"/dev/shm/mpich_\S+", maps.read_text()) if maps.exists() else ():
        Path(path).unlink(missing_ok=True)


def imported() -> Any:
    """mpi4py's module MPI, which finds an MPI library when it is imported."""
    try:
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise UserError(f"{said()}, but mpi4py is not installed: pip install 'scratchformer[mpi]'") from None
    except (ImportError, RuntimeError) as error:
        raise UserError(f"{said()}, but mpi4py finds no MPI library: {in_one_line(error)}") from None
    return MPI
