"""The command `scratchformer`, with a fault built in: what `job_faults.py` starts as ranks.

    python tests/parallel/faulty.py '{"fault": "kill", "rank": 1, "moment": "step", "call": 3, "mark": FILE}' train ...

The fault strikes one rank, at the given call (from 1) of what its moment names. When it does, the file `mark` appears.
Until all ranks have connected the timeout is longer, since one may start some seconds after the other.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any, Callable

from scratchformer.cli import main
from scratchformer.parallel import job
from scratchformer.parallel.shared_memory import SharedMemory
from scratchformer.tasks import translation
from scratchformer.training import loop
from scratchformer.training.trainer import Trainer


def throw() -> None:
    raise RuntimeError("a fault was built in")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    while True:
        time.sleep(0.01)


FAULTS = {"raise": throw, "kill": kill, "stop": stop, "hang": hang}


def place(moment: str, rank: int) -> tuple[Any, str]:
    """The function that is called at this moment: its module or class, its name."""
    if moment == "checkpoint" and rank == 0:
        return os, "replace"  # written, but not under its name
    return {
        "start-up": (translation, "read_corpus"),
        "step": (Trainer, "step"),
        "validation": (loop, "validate"),
        "checkpoint": (loop, "save"),
    }[moment]


def build_in(fault: str, rank: int, moment: str, call: int, mark: str) -> None:
    holder, name = place(moment, rank)
    function: Callable = getattr(holder, name)
    calls = 0

    @wraps(function)
    def with_fault(*arguments: Any) -> Any:
        nonlocal calls
        if name != "replace" or str(arguments[0]).endswith(".safetensors.partial"):
            calls += 1
        if calls == call:
            Path(mark).touch()
            FAULTS[fault]()
        return function(*arguments)

    setattr(holder, name, with_fault)


def join(
    ranks: SharedMemory, path: Any, rank: int, size: int, watchdog: Any, original: Any = SharedMemory.__init__
) -> None:
    timeout, watchdog.seconds = watchdog.seconds, 8.0
    original(ranks, path, rank, size, watchdog)
    watchdog.seconds = timeout
    watchdog.set(timeout)


if __name__ == "__main__":
    SharedMemory.__init__ = join
    wanted = json.loads(sys.argv[1])
    if wanted and wanted["rank"] == int(os.environ[job.RANK]):
        build_in(**wanted)
    sys.exit(main(sys.argv[2:]))
