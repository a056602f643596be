"""Run one check within limits, and end all processes that it has started.

    python supervisor.py SECONDS COUNT ANSWER COMMAND...

`desk.begin` starts this program, which starts the command: `runner.main`, which loads the learner's code. They are
two processes, so that nothing that the code does can keep this one from ending it: SECONDS after the last of COUNT
verdicts, or when standard input ends, because the program that asked has ended. What the command prints is copied to
standard output. The verdicts, and why the rest is missing, go to the file descriptor ANSWER, as lines of JSON.

On Linux this process adopts the orphans among its descendants, so it can end the processes that have left the process
group, too. Elsewhere only the group is ended, and the limit of memory may not hold. The number of processes and of
files has no limit but the time.
"""

from __future__ import annotations

import ctypes
import glob
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

MEMORY = 4 * 2**30
"""Bytes of address space that each process of a check may use. NumPy and the exercises take less than 0.2 GiB."""

RESERVE = 2**28
"""So many bytes more are left for the check itself, which has to say that the memory is full."""

FILE = 100 * 10**6
"""Bytes that a file may have which a check writes."""

OUTPUT = 10**6
"""So many bytes of what is printed are shown."""

ANSWER = 10**6
"""More bytes than all verdicts have."""

VERDICTS = "SCRATCHFORMER_VERDICTS"
"""The environment variable that holds the file descriptor for verdicts."""

GRACE = 5
"""Seconds to end all processes."""

TICK = 0.05
"""Seconds between two looks whether the command has ended."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(seconds: float, count: int, answer: int, command: list[str]) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    verdicts, verdicts_of_command = os.pipe()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[verdicts_of_command],
        env={**os.environ, VERDICTS: str(verdicts_of_command)},
        start_new_session=True,
        preexec_fn=lambda: limit(count * seconds),
    )
    os.close(verdicts_of_command)
    assert process.stdout
    shown = Shown()
    passed_on = Passed(answer, seconds, shown)
    receivers: dict[int, Callable[[bytes], None]] = {process.stdout.fileno(): shown.extend, verdicts: passed_on.extend}
    code = None
    while passed_on.size < ANSWER and time.monotonic() < passed_on.deadline:
        code = process.poll()
        if code is not None or not receive(receivers, TICK):
            break
    end_all(process.pid)
    receive(receivers, 0)  # what was still in the pipes
    shown.end()
    if passed_on.count < count:
        passed_on.extend(json.dumps(["stopped", without_verdict(code, seconds), ""]).encode() + b"\n")


class Passed:
    """The verdicts, passed on as they come. Each gives the next as many seconds."""

    def __init__(self, answer: int, seconds: float, shown: Shown) -> None:
        self.shown = shown
        self.answer, self.seconds, self.size, self.count = answer, seconds, 0, 0
        self.deadline = time.monotonic() + seconds

    def extend(self, data: bytes) -> None:
        self.shown.end()  # what was printed before it
        self.size += len(data)
        self.count += data.count(b"\n")
        self.deadline = time.monotonic() + self.seconds
        with suppress(OSError):  # nobody may be there to read it
            os.write(self.answer, data)


def prctl(option: int, value: int) -> None:
    """Set a property of this process that only Linux has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *3 * [ctypes.c_ulong(0)])


def limit(seconds: float) -> None:
    """Set the limits of this process, and of those that it will start."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the supervisor be killed
    cpu = math.ceil(seconds) + GRACE
    for kind, soft, hard in (
        (resource.RLIMIT_AS, MEMORY, MEMORY + RESERVE),
        (resource.RLIMIT_FSIZE, FILE, FILE),
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        before = resource.getrlimit(kind)[1]
        if before != resource.RLIM_INFINITY:
            soft, hard = min(soft, before), min(hard, before)
        with suppress(ValueError, OSError):  # macOS does not limit the memory
            resource.setrlimit(kind, (soft, hard))


def receive(receivers: dict[int, Callable[[bytes], None]], seconds: float) -> bool:
    """Hand on what can be read from the descriptors, or will be in the seconds -> whether standard input is open"""
    ready = select.select([0, *receivers], [], [], seconds)[0]
    for descriptor in [each for each in receivers if each in ready]:  # what is printed before verdicts
        data = os.read(descriptor, 2**20)
        if data:
            receivers[descriptor](data)
        else:  # its end
            del receivers[descriptor]
    return 0 not in ready


class Shown:
    """Copies what the command prints to standard output, up to a limit."""

    def __init__(self) -> None:
        self.size, self.is_cut = 0, False
        self.last = b"\n"

    def extend(self, data: bytes) -> None:
        self.copy(data[: max(0, OUTPUT - self.size)])
        self.size += len(data)

    def copy(self, data: bytes) -> None:
        self.last = data[-1:] or self.last
        with suppress(OSError):  # nobody reads it
            while data:
                data = data[os.write(1, data) :]

    def end(self) -> None:
        """End the last line, and say if something was not shown."""
        if self.last != b"\n":
            self.copy(b"\n")
        if self.size > OUTPUT and not self.is_cut:
            self.is_cut = True
            self.copy(b"(your code printed more than %d MB; the rest is not shown)\n" % (OUTPUT // 10**6))


def end_all(group: int) -> None:
    """Kill the process group, then the children of this process, among them the orphans that it adopts, until none is
    left; or give up, because there are always new ones.
    """
    with suppress(ProcessLookupError, PermissionError):  # none of them is there any more
        os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + GRACE
    with suppress(ChildProcessError):  # no child is left
        while time.monotonic() < deadline:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            for child in children():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.001)


def children() -> list[int]:
    """The numbers of the processes that this one has started or adopted. None where there is no /proc."""
    found = []
    for name in glob.glob("/proc/[0-9]*/stat"):
        with suppress(OSError), open(name, "rb") as file:  # some end meanwhile
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name.split("/")[2]))
    return found


def without_verdict(code: int | None, seconds: float) -> str:
    """Why a command that has ended with this code, or had to be stopped, has no verdict."""
    if code is None:
        return f"stopped after {seconds:g} seconds: a loop that does not end?"
    how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"the process {how} before the check was through"


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
