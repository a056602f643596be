"""The origin of a result, for the JSON files in results/: commit, hardware and versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / folder) for folder in ("lessons", "tools")]


def surroundings() -> dict[str, Any]:
    """The commit, hardware and versions that the numbers depend on. No names of hosts, no paths."""
    blas = [
        {key: pool[key] for key in ("internal_api", "version", "architecture", "num_threads") if key in pool}
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]
    changes = git("status", "--porcelain", "--", "scratchformer", "benchmarks/*.py")
    return {
        "date": date.today().isoformat(),
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": None if changes is None else bool(changes),
        "hardware": {"cpu": processor(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "numpy_blas": blas,
    }


def processor() -> str:
    """The processor's name, as Linux knows it; "unknown" elsewhere."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


def git(*arguments: str) -> str | None:
    """The output of a git command; None where there is no repository."""
    try:
        return subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=Path(__file__).parents[1],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
