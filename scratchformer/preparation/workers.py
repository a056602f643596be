"""How do several processes share the work on a long text, and leave no trace of their number?

The text is cut into blocks, each process takes the next one, and the results come back in the order of the blocks. So
what is written does not depend on how many there are, nor on which was faster.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
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


def in_another_process(work: Callable[[], A]) -> A:
    """work(), computed by a process of its own: Ctrl-C ends it at once, where this process would be deaf in `work`.

    `work` and its result are pickled. Raises: UserError if the process dies, and whatever `work` raises.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(work, sender), daemon=True)
    try:
        with _without_ctrl_c():
            process.start()
        sender.close()  # now only the process has it open
        result, error = receiver.recv()
    except EOFError:
        raise UserError(
            "the worker process has died, killed perhaps for want of memory; "
            "the same command goes on where this one was"
        ) from None
    finally:
        if process.pid is not None:  # it has been started
            process.terminate()
            process.join()
        receiver.close()
    if error is not None:
        raise error
    return result


def _answer(work: Callable[[], Any], sender: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer: tuple[Any, Exception | None]
    try:
        answer = work(), None
    except Exception as error:
        answer = None, error
    sender.send(answer)


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
    """Hand a block over; this may start a process."""
    with _without_ctrl_c():
        return pool.submit(_carry_out, block)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A process that is started here does not hear Ctrl-C: its parent does, and ends it.

    The parent hears it at the end of the block: in the middle it would be left with half a process.
    """
    resource_tracker.ensure_running()  # it unblocks when it is started
    heard: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()  # only there handlers can be set
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number)) if in_main_thread else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a new process inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
    if heard:
        signal.raise_signal(signal.SIGINT)
