"""Start the ranks of a job on this machine, watch them, and end all of them when one fails.

The launcher is the process that the user started. It runs its own command again, once for each rank, with environment
variables that tell each process its rank. The processes are not forked, since the state of a GPU does not survive that.

    launcher                                    rank
    creates a private directory                 opens the shared memory in it
    holds one end of a pipe                     reads from the pipe, and exits when the launcher has died and closed it
    forwards Ctrl-C and SIGTERM                 stops after a step that all ranks have agreed on
    sets the failure flag when a rank exits     sees the flag when it next waits for the others, and exits
    watches the counters in the shared memory   counts its exchanges there; its watchdog ends it if it hangs
    kills ranks that have stopped
"""

from __future__ import annotations

import math
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
from scratchformer.parallel.communicator import Communicator, PeerFailure, name_ranks
from scratchformer.parallel.shared_memory import SharedMemory, create_file, file_bytes, map_file
from scratchformer.parallel.watchdog import Watchdog

RANK, SIZE, DIRECTORY = "SCRATCHFORMER_RANK", "SCRATCHFORMER_SIZE", "SCRATCHFORMER_JOB"
"""The environment variables of a rank."""

INTERRUPTED, GAVE_UP = 130, 75
"""Exit codes of a rank that the user interrupted, and of one that exits because another rank or the launcher did."""

GRACE = 5.0
"""Seconds in which ranks must exit by themselves: all after the timeout, the others after one has failed."""

PREFIX = "scratchformer-"
"""The beginning of the name of a job's directory."""

MEMORY_DIRECTORY = Path("/dev/shm")
"""Linux keeps files in memory here."""

STDERR_LINES = 200
"""Last lines shown of a failed rank's standard error."""

# In a rank ------------------------------------------------------------------------------------------------------------


@contextmanager
def join_job(timeout: float) -> Iterator[Communicator]:
    """The communicator of the job that this process belongs to; for a single process, one that does nothing.

    timeout  of the watchdog, in seconds; 0: none
    At the end of the block the ranks wait for each other. An exception that leaves the block ends the whole job. The
    watchdog keeps running, so that a rank which hangs while it exits is ended, too.
    """
    ranks = open_communicator(timeout)
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


def is_rank() -> bool:
    """Return True if `launch` has started this process; refuse processes that MPI has started."""
    if mpi.launched_size() > 1:
        raise UserError(f"--nproc starts processes, but MPI has started {mpi.launched_size()} already: leave it out")
    return DIRECTORY in os.environ


def open_communicator(timeout: float) -> Communicator:
    """This rank's communicator: of a job started by `launch`, of MPI, or of one rank alone.

    timeout  seconds to wait for another rank; 0: for ever

    Raises UserError if the environment names a job that does not exist, or MPI cannot be used.
    """
    if DIRECTORY in os.environ:
        directory, rank, size = place_in_job()
        threading.Thread(target=exit_with_launcher, args=[directory], daemon=True).start()
        return SharedMemory(directory / "memory", rank, size, Watchdog(timeout))
    return mpi.Mpi(Watchdog(timeout)) if mpi.launched_size() > 1 else Communicator()


def place_in_job() -> tuple[Path, int, int]:
    """The job's directory, the rank and the number of ranks, by the environment.

    Raises UserError if these are not what a launcher writes: files in that directory are going to be deleted.
    """
    directory = Path(os.environ[DIRECTORY])
    try:
        rank, size = int(os.environ[RANK]), int(os.environ[SIZE])
        sound = 0 <= rank < size and (directory / "memory").stat().st_size == file_bytes(size)
    except (KeyError, ValueError, OSError):
        sound = False
    if not (sound and directory.name.startswith(PREFIX)):
        raise UserError(f"{DIRECTORY}={directory} is set, but no launcher has started this process: unset it")
    return directory, rank, size


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


# In the launcher ------------------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """A rank that failed: its exit code (negative: the signal that killed it) and what it wrote to standard error."""

    rank: int
    code: int
    stderr: str


def command_of(arguments: Sequence[str]) -> list[str]:
    """Returns a command that runs `scratchformer` with these arguments and the same module search path as here."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from scratchformer.__main__ import main; sys.exit(main())"
    return [sys.executable, "-c", start, *arguments]


def launch(command: Sequence[str], size: int, timeout: float = 0.0) -> int:
    """Run a command as `size` ranks -> exit code: 0, 130 if interrupted, 2 for bad input, 1 for other failures.

    timeout  when the ranks have exchanged nothing for so many seconds and GRACE, they are killed; 0: never

    Rank 0 writes to the terminal. The standard error of another rank is printed if that rank fails.
    """
    with Job(command, size) as job:
        codes = job.wait(timeout)
        failures, unresponsive = job.failures(codes), [rank for rank in range(size) if rank not in codes]
    if job.interrupted and not failures and (unresponsive or any(codes.values())):
        if INTERRUPTED not in codes.values():  # no rank has printed it
            print("scratchformer: interrupted", file=sys.stderr)
        return INTERRUPTED
    return report(failures, unresponsive) if failures or unresponsive else max(codes.values())


class Job:
    """The processes of the ranks and their shared directory. Both are gone when the `with` block ends.

    header       of the shared memory: a counter for each rank, and the failure flag
    interrupted  whether a signal has arrived and was forwarded
    """

    def __init__(self, command: Sequence[str], size: int) -> None:
        self.command, self.size, self.interrupted = command, size, False
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> Job:
        with ExitStack() as stack:
            for number in stop_signals():
                stack.callback(signal.signal, number, signal.signal(number, self.forward_signal))
            self.directory = stack.enter_context(private_directory(file_bytes(self.size)))
            self.memory = self.directory / "memory"
            create_file(self.memory, self.size)
            self.header = map_file(self.memory, self.size)[0][:, 0]
            stack.callback(self.kill)
            for rank in range(self.size):
                self.start(rank)
            if self.interrupted:  # perhaps before all processes existed
                self.forward_signal(signal.SIGTERM, None)
            self.exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.exit_stack.close()

    def start(self, rank: int) -> None:
        """In a session of its own, so that only the launcher receives Ctrl-C."""
        variables = {RANK: str(rank), SIZE: str(self.size), DIRECTORY: str(self.directory)}
        environment = {**os.environ, **variables}
        with open(self.stderr_file(rank), "wb") as file:
            stderr = file if rank else None
            process = subprocess.Popen(
                self.command, env=environment, stdin=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
            self.processes.append(process)

    def wait(self, timeout: float) -> dict[int, int]:
        """Wait until all ranks have exited, or show no sign of life for too long -> rank -> exit code of the former

        A sign of life is an exchange, a failure or an exit. If this process was stopped (Ctrl-Z) and continues, it must
        not take that time for the ranks' silence: so `now` is taken before the signs are read, and `since` afterwards.
        """
        signs: Any = None
        while True:
            now = time.monotonic()
            codes, header = self.codes(), self.header.tolist()
            if len(codes) == self.size:
                return codes
            if signs != (codes, header):
                signs, since = (codes, header), time.monotonic()
            if now - since > GRACE + (0 if any(codes.values()) else timeout or math.inf):
                return codes
            if codes:
                self.header[-1] = 1  # so that no rank waits for the one that has exited
            time.sleep(0.05)

    def forward_signal(self, number: int, frame: Any) -> None:
        """Until all ranks have opened the shared memory, they have nothing to save: SIGTERM ends them at once."""
        self.interrupted = True
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM if self.memory.exists() else number)

    def kill(self) -> None:
        """Kill the ranks that still run, with the processes they have started."""
        for process in self.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for rank, process in enumerate(self.processes):
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:  # blocked in a driver or by a disk
                print(f"scratchformer: rank {rank}, process {process.pid}, cannot be killed", file=sys.stderr)
            process.stdin.close()  # type: ignore[union-attr]

    def stderr_file(self, rank: int) -> Path:
        """The file with this rank's standard error."""
        return self.directory / f"rank{rank}.stderr"

    def codes(self) -> dict[int, int]:
        """Returns rank -> exit code of the ranks that have exited."""
        return {rank: process.returncode for rank, process in enumerate(self.processes) if process.poll() is not None}

    def failures(self, codes: dict[int, int]) -> list[Failure]:
        """The ranks that failed, of `codes`: rank, exit code. Those that an interruption has ended did not fail."""
        expected = {0, INTERRUPTED}
        if self.interrupted:
            expected |= {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, GAVE_UP}
        return [
            Failure(rank, code, self.stderr_file(rank).read_text(encoding="utf-8", errors="replace"))
            for rank, code in codes.items()
            if code not in expected
        ]


@contextmanager
def private_directory(n_bytes: int) -> Iterator[Path]:
    """A temporary directory for this user only, in memory if so many bytes are free there."""
    in_memory = os.access(MEMORY_DIRECTORY, os.W_OK) and shutil.disk_usage(MEMORY_DIRECTORY).free > n_bytes
    parent = MEMORY_DIRECTORY if in_memory else None
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent) as directory:
        yield Path(directory)


def report(failures: list[Failure], unresponsive: list[int]) -> int:
    """Print to standard error which ranks failed, and why -> exit code

    unresponsive  ranks that had to be killed
    """
    culprits = [failure for failure in failures if failure.code != GAVE_UP]
    if culprits and all(failure.code == 2 for failure in culprits):
        rank, _, stderr = culprits[0]
        if rank:  # rank 0 has printed its message itself
            print(stderr.strip().replace("scratchformer: ", f"scratchformer: rank {rank}: ", 1), file=sys.stderr)
        return 2
    for rank, _, stderr in culprits or failures:
        for line in stderr.splitlines()[-STDERR_LINES:]:
            print(f"rank {rank} | {line}", file=sys.stderr)
    reasons = [f"rank {rank} {describe_exit(code, stderr)}" for rank, code, stderr in culprits]
    if unresponsive:
        reasons.append(f"{name_ranks(unresponsive)} stopped responding" + ("" if failures else " (--timeout)"))
    reason = "; ".join(reasons) or "the ranks gave up waiting for each other"
    print(f"scratchformer: {reason}; the job was ended", file=sys.stderr)
    return 1


def describe_exit(code: int, stderr: str) -> str:
    """Describe how a rank failed, as the end of a sentence."""
    if timeout := re.search(r"^Timeout \((.*?)\)!$", stderr, re.MULTILINE):  # printed by the watchdog
        return f"showed no sign of life for {timeout[1]} (--timeout)"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
