"""The limits of the container that we run in: its share of the processor, and its memory.

Linux keeps them in control groups (`man 7 cgroups`, version 2). A group is a directory, and the limits of all
directories above it hold as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
"""The directory of proc/self/cgroup and sys/fs/cgroup."""


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many processors this process may keep busy, such as 1.5; None if no quota limits it."""
    quotas = []
    for group in groups(root):
        with suppress(OSError, ValueError):  # no such file, or "max 100000"
            quota, period = map(int, (group / "cpu.max").read_text().split())  # microseconds of each period
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Return how many bytes of memory this process may use; None if no limit is set."""
    limits = []
    for group in groups(root):
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int((group / "memory.max").read_text()))
    return min(limits, default=None)


def machine_memory_bytes(root: Path = ROOT) -> int | None:
    """Memory of this machine, or the limit of the container we run in. None if the system does not say.

    root  where the files of the system are
    """
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
    return min(there, memory_limit(root) or there)


def groups(root: Path) -> Iterator[Path]:
    """Yield the directories whose limits may hold for this process: its own group and all above it.

    A container may see the path of its group outside, but only a part of the tree, from some group of the path down.
    So all ends of the path are tried as well; one that does not exist has no limits.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        if line.startswith("0::"):
            inner = [part for part in line[len("0::") :].split("/") if part and part != ".."]
            for end in range(len(inner) + 1):
                yield root.joinpath("sys/fs/cgroup", *inner[:end])
                yield root.joinpath("sys/fs/cgroup", *inner[end:])
