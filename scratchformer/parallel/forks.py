"""Divide work among copies of this process, where threads would wait for each other.

A decoding step is many short calls of NumPy, and only one thread of a process can run Python code at a time. So two
processes translate faster than two threads. They share the memory of the weights.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from scratchformer.errors import UserError

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

TICKET = struct.Struct("I")
MOST_ITEMS = 4096 // TICKET.size
"""As many tickets as the smallest pipe of Linux holds while nobody reads it."""


def map_in_processes(work: Callable[[Any], Any], items: Sequence[Any], n: int) -> list[Any]:
    """The work's results for the items, computed by n processes: this one, and forks of it.

    Each takes the next item when it has done one. What the work returns or raises must be possible to pickle; an error
    is raised here. Forks are safe on Linux only: elsewhere n threads do the work. There are MOST_ITEMS items at most.
    Meanwhile no other thread may multiply matrices: OpenBLAS can hang in a fork then. Raises UserError if a fork
    ends before it has answered.
    """
    if n == 1 or multiprocessing.current_process().daemon:  # such a process may have no children
        return list(map(work, items))
    if sys.platform != "linux":
        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(work, items))
    if len(items) > MOST_ITEMS:
        raise ValueError(f"{len(items)} items; {MOST_ITEMS} at most")
    context = multiprocessing.get_context("fork")
    tickets, office = os.pipe()  # the numbers of the items: who reads one does its work
    with open(office, "wb") as file:
        file.write(b"".join(map(TICKET.pack, range(len(items)))))

    def my_share() -> dict[int, Any]:
        results = {}
        while ticket := os.read(tickets, TICKET.size):
            (index,) = TICKET.unpack(ticket)
            results[index] = work(items[index])
        return results

    def serve(answer: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the first one ends the others
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))  # should the first one be killed
        if os.getppid() != first:
            return
        try:
            answer.send((my_share(), None, ""))
        except Exception as error:
            answer.send(({}, picklable(error), traceback.format_exc()))

    first, forks = os.getpid(), []
    try:
        for _ in range(n - 1):
            with suppress(OSError):  # the system allows no more processes or pipes: then fewer do the work
                answer, answer_of_fork = context.Pipe(duplex=False)
                with answer_of_fork, warnings.catch_warnings():  # when closed here, reading ends when the fork does
                    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork without the threads: it needs none
                    fork = context.Process(target=serve, args=[answer_of_fork])
                    fork.start()
                forks.append((fork, answer))
        results = my_share()
        for fork, answer in forks:
            try:
                share, error, place = answer.recv()
            except EOFError:
                fork.join()
                memory = ": is there enough memory? --threads 1 needs less" * (fork.exitcode == -signal.SIGKILL)
                raise UserError(
                    f"a process that shared the work has ended (exit code {fork.exitcode}){memory}"
                ) from None
            if error is not None:
                raise error from RuntimeError(f"in a process that shared the work:\n{place}")
            results |= share
    finally:
        for fork, answer in forks:
            fork.kill()
            fork.join()
            answer.close()
        os.close(tickets)
    return [results[index] for index in range(len(items))]


def picklable(error: Exception) -> Exception:
    """The error; or another that says the same, if it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
