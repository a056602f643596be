"""Start the ranks of a job on this machine, watch over them, and end all when one fails.

The launcher is the process that the user started. It runs its own command again, once for each rank, and tells each in
its environment which one it is. A rank is a new process, never a fork: the state of a GPU does not survive one.

    launcher                              rank
    makes a private directory             opens the shared memory in it
    holds the end of a pipe               reads from the pipe: when that ends, the launcher is dead, and the rank ends
    passes on Ctrl-C and SIGTERM          stops after a step that all ranks have agreed on
    sees a rank fail, and flags it        sees the flag when it next waits for the others, and gives up
    kills who is left after some seconds
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

from scratchformer.errors import UserError
from scratchformer.parallel import mpi
from scratchformer.parallel.communicator import Communicator, listed
from scratchformer.parallel.shared_memory import SharedMemory, create, failure_flag
from scratchformer.parallel.watchdog import MARGIN, Watchdog

RANK, SIZE, DIRECTORY = "SCRATCHFORMER_RANK", "SCRATCHFORMER_SIZE", "SCRATCHFORMER_JOB"
"""What a rank reads in its environment."""

INTERRUPTED, GAVE_UP = 130, 75
"""Exit codes of a rank that the user interrupted, and of one that ends because another has failed."""

GRACE = 5.0
"""Seconds for the other ranks to end by themselves when one has failed."""

# The side of the rank -------------------------------------------------------------------------------------------------


@contextmanager
def joined(timeout: float) -> Iterator[Communicator]:
    """The communicator of the job that this process belongs to; of itself alone if nobody started it as a rank.

    timeout  in seconds, of the watchdog; 0: none
    An exception that leaves the block ends the job.
    """
    ranks = join(timeout)
    try:
        yield ranks
    except BaseException as error:
        ranks.abort(2 if isinstance(error, UserError) else 1)
        raise
    ranks.close()


def is_rank() -> bool:
    """Whether a launcher has started this process as one of several. Raises UserError if two launchers have."""
    return DIRECTORY in os.environ


def join(timeout: float) -> Communicator:
    if DIRECTORY in os.environ:
        directory = Path(os.environ[DIRECTORY])
        threading.Thread(target=end_with_launcher, args=[directory], daemon=True).start()
        return SharedMemory(directory / "memory", int(os.environ[RANK]), int(os.environ[SIZE]), Watchdog(timeout))
    return mpi.Mpi(Watchdog(timeout)) if mpi.size_said() > 1 else Communicator()


def end_with_launcher(directory: Path) -> None:
    """The launcher writes nothing: reading returns when it has closed the pipe, and it never does so alive."""
    os.read(0, 1)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(GAVE_UP)


# The side of the launcher ---------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """A rank that ended badly: its exit code (negative: the signal that killed it), what it said on standard error."""

    rank: int
    code: int
    said: str


def launch(command: Sequence[str], size: int) -> int:
    """Run a command as `size` ranks -> exit code: 0, 130 if interrupted, 2 for bad input, 1 for all other failures.

    Rank 0 writes to the terminal. What another one writes to standard error is printed if it fails.
    """
    with private_directory() as directory:
        create(directory / "memory", size)
        flag = failure_flag(directory / "memory", size)
        with Job(command, size, directory) as job:
            while job.running() and not job.failures():
                if INTERRUPTED in job.codes():                                     # perhaps one alone: the others
                    flag[0] = 1                                                    # shall not wait for it
                time.sleep(0.05)
            flag[0] = 1
            vain = all(failure.code == GAVE_UP for failure in job.failures())      # they waited: who hangs has ended by
            deadline = time.monotonic() + (MARGIN if vain else GRACE)              # itself, or cannot
            while job.running() and time.monotonic() < deadline:
                time.sleep(0.05)
            silent, failures = job.running(), job.failures()
        return report(failures, silent) if failures else max(job.codes())


@contextmanager
def private_directory() -> Iterator[Path]:
    """A new one that only this user may enter, in memory if the system has a place there; removed afterwards."""
    in_memory = Path("/dev/shm")
    parent = in_memory if os.access(in_memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="scratchformer-", dir=parent) as directory:
        yield Path(directory)


class Job:
    """The processes of the ranks; none is left when the block ends. Signals in the meantime are passed on to them."""

    def __init__(self, command: Sequence[str], size: int, directory: Path) -> None:
        self.command, self.size, self.directory = command, size, directory
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> Job:
        self.before = {number: signal.signal(number, self.pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for rank in range(self.size):
                self.start(rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, rank: int) -> None:
        place = {RANK: str(rank), SIZE: str(self.size), DIRECTORY: str(self.directory)}
        with open(self.stderr_of(rank), "wb") as file:
            self.processes.append(subprocess.Popen(
                self.command, env={**os.environ, **place}, stdin=subprocess.PIPE, stderr=file if rank else None,
                start_new_session=True))                                           # so that Ctrl-C comes here alone

    def pass_on(self, number: int, frame: Any) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def stderr_of(self, rank: int) -> Path:
        return self.directory / f"rank{rank}.stderr"

    def running(self) -> list[int]:
        return [rank for rank, process in enumerate(self.processes) if process.poll() is None]

    def codes(self) -> set[int]:
        """The exit codes of the ranks that have ended."""
        return {process.returncode for process in self.processes if process.poll() is not None}

    def failures(self) -> list[Failure]:
        return [Failure(rank, process.returncode, self.stderr_of(rank).read_text(encoding="utf-8", errors="replace"))
                for rank, process in enumerate(self.processes) if process.poll() not in (None, 0, INTERRUPTED)]

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()                                                  # type: ignore[union-attr]
        for number, handler in self.before.items():
            signal.signal(number, handler)


def report(failures: list[Failure], silent: list[int]) -> int:
    """Say on standard error who failed, and why -> exit code

    silent  ranks that had to be killed
    """
    culprits = [failure for failure in failures if failure.code != GAVE_UP]
    if culprits and all(failure.code == 2 for failure in culprits):
        rank, _, said = culprits[0]
        if rank:                                                                   # rank 0 has told the user itself
            print(said.strip().replace("scratchformer: ", f"scratchformer: rank {rank}: ", 1), file=sys.stderr)
        return 2
    for rank, _, said in culprits:
        for line in said.splitlines():
            print(f"rank {rank} | {line}", file=sys.stderr)
    if culprits:
        told = "; ".join(f"rank {rank} {ending(code)}" for rank, code, _ in culprits)
    else:
        told = f"{listed(silent)} did not answer any more" if silent else failures[0].said.strip()
    print(f"scratchformer: {told}; the job was ended", file=sys.stderr)
    return 1


def ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
