"""A pool of worker processes that are forks of this one and share its memory.

A decoding step is many short calls of NumPy, and only one thread of a process can run Python code at a time. So two
processes translate faster than two threads.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from scratchformer.errors import UserError

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

INDEX = struct.Struct("I")
MOST_ITEMS = 4096 // INDEX.size
"""Indices that fit into the smallest pipe of Linux."""


def map_in_processes(work: Callable[[Any], Any], items: Sequence[Any], n: int) -> list[Any]:
    """Compute work(item) for at most MOST_ITEMS items in n processes, this one and forks of it -> results in order

    Each process takes the next item when it has done one. Results and exceptions of `work` are pickled; an exception is
    raised here. Forks are safe on Linux only: elsewhere n threads do the work. Meanwhile no other thread may multiply
    matrices: OpenBLAS can hang in a fork then.
    """
    if n == 1 or multiprocessing.current_process().daemon:  # a daemon may have no children
        return list(map(work, items))
    if sys.platform != "linux":
        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(work, items))
    if len(items) > MOST_ITEMS:
        raise ValueError(f"{len(items)} items; {MOST_ITEMS} at most")
    context, parent = multiprocessing.get_context("fork"), os.getpid()
    read_fd, write_fd = os.pipe()  # the indices of the items: the process that reads one does its work
    with open(write_fd, "wb") as file:
        file.write(b"".join(map(INDEX.pack, range(len(items)))))

    def my_share() -> dict[int, Any]:
        results = {}
        while data := os.read(read_fd, INDEX.size):
            (index,) = INDEX.unpack(data)
            results[index] = work(items[index])
        return results

    def run_fork(sender: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent ends the forks
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))  # if the parent is killed
        if os.getppid() != parent:
            return
        try:
            sender.send((my_share(), None, ""))
        except Exception as error:
            sender.send(({}, error, traceback.format_exc()))

    forks = []
    try:
        for _ in range(n - 1):
            receiver, sender = context.Pipe(duplex=False)
            with sender, warnings.catch_warnings():  # closed here, so that receiving ends when the fork does
                warnings.simplefilter("ignore", DeprecationWarning)  # the fork does not need this process's threads
                fork = context.Process(target=run_fork, args=[sender])
                fork.start()
            forks.append((fork, receiver))
        results = my_share()
        for fork, receiver in forks:
            try:
                share, error, place = receiver.recv()
            except EOFError:
                fork.join()
                memory = ": is there enough memory? Fewer processes need less" * (fork.exitcode == -signal.SIGKILL)
                raise UserError(f"a worker process has ended (exit code {fork.exitcode}){memory}") from None
            if error is not None:
                raise error from RuntimeError(f"in a worker process:\n{place}")
            results |= share
    finally:
        for fork, receiver in forks:
            fork.kill()
            fork.join()
            receiver.close()
        os.close(read_fd)
    return [results[index] for index in range(len(items))]
