"""Start the ranks of a job on this machine, watch them, and end all of them when one fails.

The launcher is the process that the user started. It runs its own command again, once for each rank, with environment
variables that tell each process its rank. The processes are not forked, since the state of a GPU does not survive that.

    launcher                                    rank (job.py)
    creates a private directory                 opens the shared memory in it
    holds one end of a pipe                     reads from the pipe, and exits when the launcher has died and closed it
    forwards Ctrl-C and SIGTERM                 stops after a step that all ranks have agreed on
    sets the failure flag when a rank exits     sees the flag when it next waits for the others, and exits
    kills ranks that run on after a failure     has a watchdog that ends it if it hangs
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
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, Sequence

from scratchformer.parallel.communicator import name_ranks
from scratchformer.parallel.job import DIRECTORY, GAVE_UP, INTERRUPTED, PREFIX, RANK, SIZE, stop_signals
from scratchformer.parallel.shared_memory import create_file, file_bytes, map_file

GRACE = 5.0
"""Seconds in which the other ranks must exit by themselves after one has failed."""

MEMORY_DIRECTORY = Path("/dev/shm")
"""Linux keeps files in memory here."""


def command_of(arguments: Sequence[str]) -> list[str]:
    """Build a command that runs `scratchformer` with these arguments and this process's module search path."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from scratchformer.__main__ import main; sys.exit(main())"
    return [sys.executable, "-c", start, *arguments]


def launch(command: Sequence[str], size: int) -> int:
    """Run a command as `size` ranks -> exit code: 0, 130 if interrupted, 2 for bad input, 1 for other failures.

    Rank 0 writes to the terminal. The standard error of another rank is printed if that rank fails.
    """
    with private_directory(file_bytes(size)) as directory:
        job = Job(command, size, directory)
        handlers = {number: signal.signal(number, job.forward_signal) for number in stop_signals()}
        try:
            job.start()
            codes = job.wait()
        finally:
            job.kill()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return report(job, codes)


class Job:
    """The processes of the ranks; their shared memory and their standard error are files in the directory."""

    def __init__(self, command: Sequence[str], size: int, directory: Path) -> None:
        self.command, self.size, self.directory = command, size, directory
        self.memory, self.interrupted = directory / "memory", False
        create_file(self.memory, size)
        self.failure = map_file(self.memory, size)[0][-1, :1]
        self.processes: list[subprocess.Popen] = []

    def start(self) -> None:
        """Start each rank in a session of its own, so that only the launcher receives Ctrl-C."""
        for rank in range(self.size):
            variables = {RANK: str(rank), SIZE: str(self.size), DIRECTORY: str(self.directory)}
            options: Any = {"env": os.environ | variables, "stdin": subprocess.PIPE, "start_new_session": True}
            with open(self.stderr_file(rank), "wb") as file:
                self.processes.append(subprocess.Popen(self.command, stderr=file if rank else None, **options))
        if self.interrupted:  # perhaps before all processes existed
            self.forward_signal(signal.SIGTERM, None)

    def wait(self) -> dict[int, int]:
        """Wait until all ranks have exited, or for GRACE after one has failed -> exit code of each that has exited."""
        end = math.inf
        while True:
            codes = {
                rank: process.returncode for rank, process in enumerate(self.processes) if process.poll() is not None
            }
            if len(codes) == self.size or time.monotonic() > end:
                return codes
            if codes:
                self.failure[0] = 1  # so that no rank waits for the one that has exited
            if any(codes.values()):
                end = min(end, time.monotonic() + GRACE)
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
            with suppress(subprocess.TimeoutExpired):  # blocked in a driver or by a disk
                process.wait(GRACE)
            process.stdin.close()  # type: ignore[union-attr]

    def stderr_file(self, rank: int) -> Path:
        return self.directory / f"rank{rank}.stderr"


@contextmanager
def private_directory(n_bytes: int) -> Iterator[Path]:
    """Create a temporary directory for this user only, in memory if so many bytes are free there."""
    in_memory = os.access(MEMORY_DIRECTORY, os.W_OK) and shutil.disk_usage(MEMORY_DIRECTORY).free > n_bytes
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=MEMORY_DIRECTORY if in_memory else None) as directory:
        yield Path(directory)


def report(job: Job, codes: dict[int, int]) -> int:
    """Print to standard error which ranks failed, and why -> exit code of the job

    codes  exit code of each rank that exited (negative: the signal that killed it); the others had to be killed
    """
    expected = {0, INTERRUPTED}
    if job.interrupted:
        expected |= {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, GAVE_UP}
    failures = [rank for rank, code in codes.items() if code not in expected]
    unresponsive = [rank for rank in range(job.size) if rank not in codes]
    if job.interrupted and not failures and (unresponsive or any(codes.values())):
        if INTERRUPTED not in codes.values():  # no rank has printed it
            print("scratchformer: interrupted", file=sys.stderr)
        return INTERRUPTED
    if not failures and not unresponsive:
        return max(codes.values())
    stderr = {rank: job.stderr_file(rank).read_text(encoding="utf-8", errors="replace") for rank in failures}
    culprits = [rank for rank in failures if codes[rank] != GAVE_UP]
    if culprits and all(codes[rank] == 2 for rank in culprits):
        rank = culprits[0]
        if rank:  # rank 0 has printed its message itself
            print(stderr[rank].strip().replace("scratchformer: ", f"scratchformer: rank {rank}: ", 1), file=sys.stderr)
        return 2
    for rank in culprits or failures:
        for line in stderr[rank].splitlines():
            print(f"rank {rank} | {line}", file=sys.stderr)
    reasons = [f"rank {rank} {describe_exit(codes[rank], stderr[rank])}" for rank in culprits]
    if unresponsive:
        reasons.append(f"{name_ranks(unresponsive)} stopped responding")
    reason = "; ".join(reasons) or "the ranks gave up waiting for each other"
    print(f"scratchformer: {reason}; the job was ended", file=sys.stderr)
    return 1


def describe_exit(code: int, stderr: str) -> str:
    """Describe how a rank failed, as the end of a sentence."""
    if timeout := re.search(r"^Timeout \((.*?)\)!$", stderr, re.MULTILINE):  # printed by the watchdog
        return f"exchanged nothing for {timeout[1]} (--timeout)"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
