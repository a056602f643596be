"""Share the work on a long text among several processes, so that the result does not depend on their number.

The text is cut into blocks, each process takes the next one, and the results come back in the order of the blocks.
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
"""Blocks in progress for each process: enough that none has to wait, few enough to fit into memory."""

A = TypeVar("A")
B = TypeVar("B")


def map_in_order(work: Callable[[A], B], blocks: Iterable[A], workers: int) -> Generator[B, None, None]:
    """Yield work(block) for each block, in order, computed by `workers` processes.

    This process computes everything itself if `workers` is 1 or if there is only one block. `work` is sent to each
    process once; it, the blocks and the results are pickled. The processes end with this iterator: close it
    (`contextlib.closing`) if it is not read to its end.

    Raises UserError if a process dies, and everything that `work` raises.
    """
    blocks = iter(blocks)
    first = list(islice(blocks, 2))
    blocks = chain(first, blocks)
    if workers == 1 or len(first) < 2:
        yield from map(work, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(work,))
    in_progress: deque[Future] = deque()
    try:
        for block in blocks:
            with _without_ctrl_c():  # submitting may start a process
                in_progress.append(pool.submit(_do_work, block))
            if len(in_progress) == BLOCKS_PER_WORKER * workers:
                yield in_progress.popleft().result()
        while in_progress:
            yield in_progress.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            f"one of the {workers} worker processes has died, perhaps because memory ran out; "
            "run the same command to resume, with fewer --workers to need less memory"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def in_another_process(work: Callable[[], A]) -> A:
    """Return work(), computed by another process, so that Ctrl-C has an effect even if `work` ignores it.

    `work` and its result are pickled. Raises UserError if the process dies, and everything that `work` raises.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(work, sender), daemon=True)
    try:
        with _without_ctrl_c():
            process.start()
        sender.close()  # now only the other process has it open
        result, error = receiver.recv()
    except EOFError:
        raise UserError(
            "the worker process has died, perhaps because memory ran out; run the same command to resume"
        ) from None
    finally:
        if process.pid is not None:  # the process was started
            process.terminate()
            process.join()
        receiver.close()
    if error is not None:
        raise error
    return result


# In the worker process ------------------------------------------------------------------------------------------------


def _send_result(work: Callable[[], Any], sender: Connection) -> None:
    _end_with_parent()
    answer: tuple[Any, Exception | None]
    try:
        answer = work(), None
    except Exception as error:
        answer = None, error
    sender.send(answer)


_work: Callable[[Any], Any] | None = None
"""What this worker process does with each block."""


def _start_worker(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    _end_with_parent()


def _do_work(block: Any) -> Any:
    assert _work is not None
    return _work(block)


def _end_with_parent() -> None:
    """Start a thread that ends this process when its parent ends."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# In the parent --------------------------------------------------------------------------------------------------------


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Let a process that is started in this block ignore Ctrl-C; the parent handles it and ends the process.

    The parent handles it when the block ends, because in the middle the process would be only half started.
    """
    resource_tracker.ensure_running()  # starting it unblocks SIGINT, so it must not start inside the block
    received: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number)) if in_main_thread else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a new process inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
    if received:
        signal.raise_signal(signal.SIGINT)
