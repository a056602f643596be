"""Processes that share the work on a text, and how they react to Ctrl-C."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from scratchformer.errors import UserError
from scratchformer.preparation.workers import BLOCKS_PER_WORKER, in_another_process, map_in_order


def square(number):
    time.sleep(0.02 if number == 0 else 0)  # the first one finishes last
    return number, os.getpid()


def fail_at_three(number):
    if number == 3:
        raise UserError("line 3 is wrong")
    return number


def die_at_three(number):
    if number == 3:
        os._exit(9)
    return number


def test_results_come_in_order_and_few_blocks_are_in_progress():
    taken = []

    def blocks():
        for number in range(40):
            taken.append(number)
            yield number

    results = map_in_order(square, blocks(), 2)
    first = next(results)
    assert len(taken) == 2 * BLOCKS_PER_WORKER
    rest = list(results)
    assert [number for number, _ in [first, *rest]] == list(range(40))
    assert os.getpid() not in {process for _, process in rest}


def test_one_worker_is_this_process():
    assert list(map_in_order(square, range(3), 1)) == [(number, os.getpid()) for number in range(3)]


def test_an_exception_of_a_worker_is_raised_here():
    results = map_in_order(fail_at_three, range(10), 2)
    with pytest.raises(UserError, match="line 3 is wrong"):
        list(results)


def test_work_in_another_process():
    assert in_another_process(partial(square, 3))[1] != os.getpid()
    with pytest.raises(UserError, match="line 3 is wrong"):
        in_another_process(partial(fail_at_three, 3))
    with pytest.raises(UserError, match="the worker process has died"):
        in_another_process(partial(die_at_three, 3))


def interrupt_and_sleep(pid):
    os.kill(pid, signal.SIGINT)
    time.sleep(600)


def test_ctrl_c_ends_the_other_process():
    """It arrives while the other process works and this one waits."""
    with pytest.raises(KeyboardInterrupt):
        in_another_process(partial(interrupt_and_sleep, os.getpid()))
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_ends_the_work():
    with pytest.raises(UserError, match="one of the 2 worker processes has died"):
        list(map_in_order(die_at_three, range(10), 2))


def test_ctrl_c_during_the_start_of_a_process_is_handled_after_it(monkeypatch):
    """Otherwise the process would be only half started."""
    started = []

    def start(process, original=multiprocessing.process.BaseProcess.start):
        os.kill(os.getpid(), signal.SIGINT)
        original(process)
        started.append(process)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start)
    with pytest.raises(KeyboardInterrupt):
        in_another_process(os.getpid)
    assert len(started) == 1 and not started[0].is_alive()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    "call", ["next(map_in_order(change_mask, [signal.SIG_BLOCK] * 2, 2))", "in_another_process(mask)"]
)
def test_not_even_the_first_process_receives_ctrl_c(call):
    """Python starts its resource tracker before it, which changes the signal mask of this process."""
    program = f"""
import signal
from functools import partial
from scratchformer.preparation.workers import in_another_process, map_in_order
change_mask = partial(signal.pthread_sigmask, mask=())
mask = partial(change_mask, signal.SIG_BLOCK)
print(signal.SIGINT in {call}, signal.SIGINT in mask())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "True False\n", run.stderr
