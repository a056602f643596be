"""How do several processes share the work on a long text, and leave no trace of their number?

The text is cut into blocks, each process takes the next one, and the results come back in the order of the blocks. So
what is written does not depend on how many there are, nor on which was faster.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

from scratchformer.errors import UserError

BLOCKS_PER_WORKER = 3
"""So many blocks are under way for each process: enough that none waits, and few enough to fit into memory."""

A = TypeVar("A")
B = TypeVar("B")


def map_in_order(work: Callable[[A], B], blocks: Iterable[A], workers: int) -> Generator[B, None, None]:
    """work(block) for each block, in their order, computed by so many processes; by this one if `workers` is 1, or if
    there is but one block.

    `work` is sent to each process once; it, the blocks and the results are pickled. The processes end with this
    iterator: close it (`contextlib.closing`) if it is not read to its end.

    Raises: UserError if a process dies, and whatever `work` raises, in this process.
    """
    blocks = iter(blocks)
    first = list(islice(blocks, 2))
    blocks = chain(first, blocks)
    if workers == 1 or len(first) < 2:
        yield from map(work, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy threads in any state
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_take_up, initargs=(work,))
    under_way: deque[Future] = deque()
    try:
        for block in blocks:
            under_way.append(_submit(pool, block))
            if len(under_way) == BLOCKS_PER_WORKER * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            f"one of the {workers} worker processes has died, killed perhaps for want of memory; "
            "the same command goes on where this one was, and needs less memory with fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_work: Callable[[Any], Any] | None = None
"""In a worker process: what it does with each block."""


def _take_up(work: Callable[[Any], Any]) -> None:
    """Begin as a worker process, which lives no longer than the one that has started it."""
    global _work
    _work = work
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _carry_out(block: Any) -> Any:
    assert _work is not None
    return _work(block)


def _submit(pool: ProcessPoolExecutor, block: Any) -> Future:
    """Hand a block over. A process that this starts does not hear Ctrl-C: its parent does, and ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a new process inherits what is blocked
    try:
        return pool.submit(_carry_out, block)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
