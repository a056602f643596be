"""The job of a process: one rank of several that the launcher or MPI has started, or a process alone."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator, PeerFailure

RANK, SIZE, DIRECTORY = "SCRATCHFORMER_RANK", "SCRATCHFORMER_SIZE", "SCRATCHFORMER_JOB"
"""The environment variables of a rank."""

MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""The number of ranks that Open MPI, MPICH (and MPIs derived from it) or SLURM's srun has started.

SLURM comes last: under it, mpiexec may itself be a step of SLURM, with another number.
"""

PREFIX = "scratchformer-"
"""The beginning of the name of a job's directory."""

INTERRUPTED, GAVE_UP = 130, 75
"""Exit codes of a rank that the user interrupted, and of one that exits because another rank or the launcher did."""


def is_rank() -> bool:
    """Return True if `launcher.launch` or MPI has started this process as one of several."""
    return DIRECTORY in os.environ or any(int(os.environ.get(name, 1)) > 1 for name in MPI_SIZES)


@contextmanager
def join(timeout: float, nproc: int = 1) -> Iterator[Communicator]:
    """Yield the communicator of the job that this rank belongs to; the ranks wait for each other at the end.

    timeout  seconds to wait for another rank; 0: for ever
    nproc    number of processes that the command asks for: MPI has started its ranks already

    An exception that leaves the block ends the whole job. The watchdog keeps running, so that a rank which hangs while
    it exits is ended, too.
    """
    ranks = open_communicator(timeout, nproc)
    try:
        yield ranks
        ranks.barrier()
    except BaseException as error:
        ranks.abort(exit_code(error))
        raise


def exit_code(error: BaseException) -> int:
    """The code with which `cli.main` ends a rank after this exception."""
    codes = {KeyboardInterrupt: INTERRUPTED, PeerFailure: GAVE_UP, UserError: 2, OSError: 2, MemoryError: 2}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)


def open_communicator(timeout: float, nproc: int) -> Communicator:
    """Connect this rank with the others of its job."""
    from scratchformer.parallel import mpi
    from scratchformer.parallel.shared_memory import SharedMemory
    from scratchformer.parallel.watchdog import Watchdog

    if DIRECTORY in os.environ:
        directory = Path(os.environ[DIRECTORY])
        if not directory.name.startswith(PREFIX):  # files in it are going to be deleted
            raise UserError(f"{DIRECTORY}={directory} is set, but no launcher has started this process: unset it")
        threading.Thread(target=exit_with_launcher, args=[directory], daemon=True).start()
        rank, size = int(os.environ[RANK]), int(os.environ[SIZE])
        return SharedMemory(directory / "memory", rank, size, Watchdog(timeout))
    if mpi.launched_size() == 1:
        return Communicator()
    if nproc > 1:
        raise UserError(f"--nproc starts processes, but MPI has started {mpi.launched_size()} already: leave it out")
    return mpi.Mpi(Watchdog(timeout))


def exit_with_launcher(directory: Path) -> None:
    """Exit when the launcher has died. It never writes to the pipe, so reading returns when the pipe is closed."""
    os.read(0, 1)
    with suppress(OSError):
        for path in (directory / "memory", *directory.glob("rank*.stderr")):
            path.unlink(missing_ok=True)
        directory.rmdir()  # another rank may have removed it already
    os._exit(GAVE_UP)


def stop_signals() -> list[int]:
    """The signals that ask a program to stop: SIGINT, SIGTERM, and SIGHUP unless nohup has disabled it."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignores_hangup else [signal.SIGHUP])]
