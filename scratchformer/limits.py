"""The limits of the container that we run in: its share of the processor, and its memory.

Linux keeps them in control groups (`man 7 cgroups`). A group is a directory, and the limits of all directories above it
hold as well. Version 2 has one tree for everything, version 1 one for each kind of limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
"""Where proc/self/cgroup and sys/fs/cgroup are found."""

UNLIMITED_BYTES = 2**62
"""Version 1 has a number like this, not a word, where the memory has no limit."""


def cpu_quota(root: Path = ROOT) -> float | None:
    """How many processors this process may keep busy, such as 1.5; None if no quota limits it."""
    quotas = []
    for group in groups("cpu", root):
        for quota in (version_2_quota(group), version_1_quota(group)):
            if quota and quota > 0:
                quotas.append(quota)
    return min(quotas, default=None)


def version_2_quota(group: Path) -> float | None:
    """cpu.max: "max 100000", or the microseconds of processor time in each period, and the period."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    return None


def version_1_quota(group: Path) -> float | None:
    """The same in two files; a quota of -1 is none."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((group / f"cpu.cfs_{part}_us").read_text() for part in ("quota", "period"))
        return int(quota) / int(period)
    return None


def memory_limit(root: Path = ROOT) -> int | None:
    """How many bytes of memory this process may use; None if no limit is set."""
    limits = []
    for group in groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # no such file, or "max"
                limits.append(int((group / name).read_text()))
    return min((limit for limit in limits if limit < UNLIMITED_BYTES), default=None)


def groups(controller: str, root: Path) -> Iterator[Path]:
    """The directories whose limits of this kind hold for this process: its own groups and all above them.

    A container may see the path of its group outside, but only a part of the tree, from some group of the path down.
    So all ends of the path are tried as well, and a directory that is not there is passed over.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, found, rest = line.partition(":")
        controllers, _, path = rest.partition(":")  # "0::/user.slice", "4:cpu,cpuacct:/docker/12ab"
        if not found:
            continue
        if not controllers:
            trees = ["", "unified"]
        elif controller in controllers.split(","):
            trees = [controller, controllers]
        else:
            continue
        inner = [part for part in path.split("/") if part and part != ".."]
        for tree in dict.fromkeys(trees):
            for end in range(len(inner) + 1):
                yield root.joinpath("sys/fs/cgroup", tree, *inner[:end])
                yield root.joinpath("sys/fs/cgroup", tree, *inner[end:])
