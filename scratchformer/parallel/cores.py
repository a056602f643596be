"""Count the cores this process may use, and share them between the ranks on one machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from scratchformer import limits
from scratchformer.parallel.communicator import Communicator


def available_cores(root: Path = limits.ROOT) -> int:
    """Count the cores this process may run on, or fewer if a container's quota allows less.

    root  where the files of the system are
    """
    cores, quota = len(core_numbers()) or os.cpu_count() or 1, limits.cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def core_numbers() -> list[int]:
    """List the numbers of these cores; empty where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_of_cores(ranks: Communicator) -> int:
    """Count the cores for each rank: ranks that may use the same cores divide them. All ranks call this."""
    mine = f"{platform.node()} {core_numbers()}".encode()
    return max(1, available_cores() // ranks.all_gather_bytes(mine).count(mine))
