"""Share work among processes that are forks of this one and share its memory.

A decoding step is many short calls of NumPy, and only one thread of a process can run Python code at a time. So two
processes translate faster than two threads.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from scratchformer.errors import UserError

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

ITEMS_AHEAD = 3
"""Items in progress for each process: enough that none has to wait, few enough to fit into memory."""

_work: Any = None  # of a fork


def map_in_processes(work: Callable[[Any], Any], items: Iterable[Any], n: int) -> Iterator[Any]:
    """Yield work(item) for each item, in order, computed by n forks of this process; 1 means this process itself.

    Items are read as they are needed. Items, results and exceptions of `work` are pickled; an exception is raised here.
    Forks are safe on Linux only: elsewhere n threads do the work. When the first result is asked for, no other thread
    may multiply matrices: OpenBLAS can hang in a fork then.
    """
    if n == 1:
        yield from map(work, items)
        return
    if sys.platform != "linux":
        with ThreadPoolExecutor(n) as threads:
            yield from threads.map(work, items)
        return
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(n, multiprocessing.get_context("fork"), begin_fork, (work, os.getpid()))
    in_progress: deque[Future] = deque()
    try:
        for item in items:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # a fork does not need this process's threads
                in_progress.append(pool.submit(work_on, item))
            if len(in_progress) == ITEMS_AHEAD * n:
                yield in_progress.popleft().result()
        while in_progress:
            yield in_progress.popleft().result()
    except BrokenProcessPool:
        memory = "is there enough memory? Fewer --threads or --workers need less"
        raise UserError(f"a worker process has ended: {memory}") from None
    finally:
        for fork in multiprocessing.active_children():
            if fork not in others:
                fork.kill()
        pool.shutdown(cancel_futures=True)


def begin_fork(work: Callable[[Any], Any], parent: int) -> None:
    """Leave Ctrl-C to the parent, and end this process when the parent ends."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def work_on(item: Any) -> Any:
    """In a fork: the result for one item."""
    return _work(item)
