"""Start the ranks of a job on this machine, watch over them, and end all when one fails.

The launcher is the process that the user started. It runs its own command again, once for each rank, and tells each in
its environment which one it is. A rank is a new process, never a fork: the state of a GPU does not survive one.

    launcher                              rank
    makes a private directory             opens the shared memory in it
    holds the end of a pipe               reads from the pipe: when that ends, the launcher is dead, and the rank ends
    passes on Ctrl-C and SIGTERM          stops after a step that all ranks have agreed on
    sees a rank end, and flags it         sees the flag when it next waits for the others, and gives up
    kills who is left after some seconds
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

from scratchformer.errors import UserError
from scratchformer.parallel import mpi
from scratchformer.parallel.communicator import Abandoned, Communicator, listed
from scratchformer.parallel.shared_memory import SharedMemory, create, failure_flag, n_bytes
from scratchformer.parallel.watchdog import Watchdog

RANK, SIZE, DIRECTORY = "SCRATCHFORMER_RANK", "SCRATCHFORMER_SIZE", "SCRATCHFORMER_JOB"
"""What a rank reads in its environment."""

INTERRUPTED, GAVE_UP = 130, 75
"""Exit codes of a rank that the user interrupted, and of one that ends because another has failed."""

GRACE, LEAVING = 5.0, 60.0
"""Seconds for the other ranks to end by themselves when one has failed, and when one has ended well."""

IN_MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""

LINES = 200
"""What is shown of a failed rank's standard error, from the end."""

# The side of the rank -------------------------------------------------------------------------------------------------


@contextmanager
def joined(timeout: float) -> Iterator[Communicator]:
    """The communicator of the job that this process belongs to; of itself alone if nobody started it as a rank.

    timeout  in seconds, of the watchdog; 0: none
    An exception that leaves the block ends the job. Else all ranks leave it together.
    """
    ranks = join(timeout)
    try:
        yield ranks
        ranks.barrier()
    except BaseException as error:
        ranks.abort(exit_code(error))
        raise
    ranks.close()


def exit_code(error: BaseException) -> int:
    """With what `cli.main` ends a rank after an exception."""
    codes = {KeyboardInterrupt: INTERRUPTED, Abandoned: GAVE_UP, UserError: 2, OSError: 2, MemoryError: 2}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)


def is_rank() -> bool:
    """Whether `launch` has started this process. Raises UserError if MPI's launcher has, as one of several."""
    if mpi.size_said() > 1:
        raise UserError(f"--nproc starts processes, but MPI has started {mpi.size_said()} already: leave it out")
    return DIRECTORY in os.environ


def join(timeout: float) -> Communicator:
    if DIRECTORY in os.environ:
        directory, rank, size = Path(os.environ[DIRECTORY]), os.environ.get(RANK, ""), os.environ.get(SIZE, "")
        if not (directory / "memory").exists() or not (rank + size).isdecimal():
            raise UserError(f"{DIRECTORY}={directory} is set, but no launcher has started this process: unset it")
        threading.Thread(target=end_with_launcher, args=[directory], daemon=True).start()
        return SharedMemory(directory / "memory", int(rank), int(size), Watchdog(timeout))
    return mpi.Mpi(Watchdog(timeout)) if mpi.size_said() > 1 else Communicator()


def end_with_launcher(directory: Path) -> None:
    """The launcher writes nothing: reading returns when it has closed the pipe, and it never does so alive."""
    os.read(0, 1)
    with suppress(OSError):
        for path in (directory / "memory", *directory.glob("rank*.stderr")):
            path.unlink(missing_ok=True)
        directory.rmdir()  # the other ranks do it, too
    os._exit(GAVE_UP)


def stop_signals() -> list[int]:
    """What asks a program to end: Ctrl-C, SIGTERM, and a terminal that is closed, unless nohup is to outlive it."""
    outlives_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if outlives_terminal else [signal.SIGHUP])]


# The side of the launcher ---------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """A rank that ended badly: its exit code (negative: the signal that killed it), what it said on standard error."""

    rank: int
    code: int
    said: str


def command_of(arguments: Sequence[str]) -> list[str]:
    """`scratchformer` with these arguments as another process, with the very modules that this one would import."""
    start = f"import sys; sys.path[:] = {sys.path!r}; import scratchformer.__main__"
    return [sys.executable, "-c", start, *arguments]


def launch(command: Sequence[str], size: int) -> int:
    """Run a command as `size` ranks -> exit code: 0, 130 if interrupted, 2 for bad input, 1 for all other failures.

    Rank 0 writes to the terminal. What another one writes to standard error is printed if it fails.
    """
    with Job(command, size) as job:
        while not job.codes():
            time.sleep(0.05)
        job.flag[0] = 1  # nobody shall wait for who has gone
        ended = time.monotonic()
        while len(codes := job.codes()) < size:
            if time.monotonic() > ended + (GRACE if any(codes.values()) else LEAVING):
                break
            time.sleep(0.05)
        failures, silent = job.failures(codes), [rank for rank in range(size) if rank not in codes]
    if job.interrupted and not failures and (silent or any(codes.values())):
        if INTERRUPTED not in codes.values():  # nobody has said so yet
            print("scratchformer: interrupted", file=sys.stderr)
        return INTERRUPTED
    return report(failures, silent) if failures or silent else max(codes.values())


class Job:
    """The processes of the ranks, and the directory they share; nothing is left of either when the block ends.

    flag         (1,) not 0: a rank has failed
    interrupted  whether a signal has come, and was passed on
    """

    def __init__(self, command: Sequence[str], size: int) -> None:
        self.command, self.size, self.interrupted = command, size, False
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> Job:
        with ExitStack() as stack:
            for number in stop_signals():
                stack.callback(signal.signal, number, signal.signal(number, self.pass_on))
            self.directory = stack.enter_context(private_directory(n_bytes(self.size)))
            self.memory = self.directory / "memory"
            create(self.memory, self.size)
            self.flag = failure_flag(self.memory, self.size)
            stack.callback(self.kill)
            for rank in range(self.size):
                self.start(rank)
            if self.interrupted:  # perhaps before all were there
                self.pass_on(signal.SIGTERM, None)
            self.opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def start(self, rank: int) -> None:
        place = {RANK: str(rank), SIZE: str(self.size), DIRECTORY: str(self.directory)}
        with open(self.stderr_of(rank), "wb") as file:
            self.processes.append(
                subprocess.Popen(
                    self.command,
                    env={**os.environ, **place},
                    stdin=subprocess.PIPE,
                    stderr=file if rank else None,
                    start_new_session=True,
                )
            )  # so that Ctrl-C comes here alone

    def pass_on(self, number: int, frame: Any) -> None:
        """Ranks that have not all met yet have nothing to save: SIGTERM ends them without another word."""
        self.interrupted = True
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM if self.memory.exists() else number)

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for rank, process in enumerate(self.processes):
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:  # in the hands of a driver or a disk
                print(f"scratchformer: rank {rank}, process {process.pid}, cannot be killed", file=sys.stderr)
            process.stdin.close()  # type: ignore[union-attr]

    def stderr_of(self, rank: int) -> Path:
        return self.directory / f"rank{rank}.stderr"

    def codes(self) -> dict[int, int]:
        """The exit codes of the ranks that have ended."""
        return {rank: process.returncode for rank, process in enumerate(self.processes) if process.poll() is not None}

    def failures(self, codes: dict[int, int]) -> list[Failure]:
        fine = {0, INTERRUPTED}
        if self.interrupted:
            fine |= {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, GAVE_UP}
        return [
            Failure(rank, code, self.stderr_of(rank).read_text(encoding="utf-8", errors="replace"))
            for rank, code in codes.items()
            if code not in fine
        ]


@contextmanager
def private_directory(room: int) -> Iterator[Path]:
    """A new one that only this user may enter, in memory if there is room for so many bytes; removed afterwards."""
    in_memory = os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > room
    parent = IN_MEMORY if in_memory else None
    with tempfile.TemporaryDirectory(prefix="scratchformer-", dir=parent) as directory:
        yield Path(directory)


def report(failures: list[Failure], silent: list[int]) -> int:
    """Say on standard error who failed, and why -> exit code

    silent  ranks that had to be killed
    """
    culprits = [failure for failure in failures if failure.code != GAVE_UP]
    if culprits and all(failure.code == 2 for failure in culprits):
        rank, _, said = culprits[0]
        if rank:  # rank 0 has told the user itself
            print(said.strip().replace("scratchformer: ", f"scratchformer: rank {rank}: ", 1), file=sys.stderr)
        return 2
    for rank, _, said in culprits or failures:
        for line in said.splitlines()[-LINES:]:
            print(f"rank {rank} | {line}", file=sys.stderr)
    told = [f"rank {rank} {ending(code, said)}" for rank, code, said in culprits]
    if silent:
        told.append(f"{listed(silent)} did not answer any more")
    print(
        f"scratchformer: {'; '.join(told) or 'the ranks waited for each other in vain'}; the job was ended",
        file=sys.stderr,
    )
    return 1


def ending(code: int, said: str) -> str:
    if timeout := re.search(r"^Timeout \((.*?)\)!$", said, re.MULTILINE):  # the watchdog's words
        return f"showed no sign of life for {timeout[1]} (--timeout)"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
