"""Share the work on a long text among several processes; the result does not depend on their number."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from scratchformer.errors import UserError

BLOCKS_PER_WORKER = 3
"""Blocks in progress for each process: enough that none has to wait, few enough to fit into memory."""

A = TypeVar("A")
B = TypeVar("B")


def map_in_order(work: Callable[[A], B], blocks: Iterable[A], workers: int) -> Generator[B, None, None]:
    """Yield work(block) for each block, in order, computed by `workers` processes; 1 means this process.

    `work`, the blocks and the results are pickled. The processes end with this iterator: close it
    (`contextlib.closing`) if it is not read to its end.
    """
    if workers == 1:
        yield from map(work, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent)
    in_progress: deque[Future] = deque()
    try:
        for block in blocks:
            in_progress.append(pool.submit(work, block))
            if len(in_progress) == BLOCKS_PER_WORKER * workers:
                yield in_progress.popleft().result()
        while in_progress:
            yield in_progress.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            f"one of the {workers} worker processes has died, perhaps because memory ran out; "
            "run the same command with fewer --workers to need less memory"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end this process when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
