"""Work that several processes share."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from scratchformer.errors import UserError
from scratchformer.parallel.forks import ITEMS_AHEAD, map_in_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux only")
MINE = os.getpid()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_results_come_in_the_order_of_the_items(n):
    meeting = multiprocessing.get_context("fork").Barrier(n, timeout=60)  # until n processes have an item each
    results = list(map_in_processes(lambda item: (meeting.wait(), item * item, os.getpid()), range(2 * n), n))
    assert [square for _, square, _ in results] == [item * item for item in range(2 * n)]
    processes = {process for *_, process in results}
    assert len(processes) == n and (MINE in processes) == (n == 1)
    assert not multiprocessing.active_children()


def test_items_are_read_as_they_are_needed():
    read = []
    results = map_in_processes(abs, (read.append(item) or item for item in range(100)), 2)
    assert next(results) == 0 and len(read) == 2 * ITEMS_AHEAD
    assert list(results) == list(range(1, 100))


def fails(item):
    if item == 3:
        raise UserError("this item is bad")
    return item


@pytest.mark.parametrize("n", [1, 2])
def test_an_error_is_raised_here_and_ends_all(n):
    results = map_in_processes(fails, range(100), n)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match="^this item is bad$") as caught:
        next(results)
    assert n == 1 or "in fails" in str(caught.value.__cause__)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3)])
def test_a_fork_that_ends(end):
    with pytest.raises(UserError, match="^a worker process has ended: is there enough memory"):
        list(map_in_processes(lambda item: end(), range(2), 2))


SLEEPER = """
import os, time
from scratchformer.parallel.forks import map_in_processes

def work(item):
    os.write(1, b"begun ")
    time.sleep(60)

try:
    list(map_in_processes(work, range(4), 2))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("blow, all_of_them", [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_all_end_at_once_with_the_first(blow, all_of_them):
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout.read(12) == b"begun begun "
    (os.killpg if all_of_them else os.kill)(process.pid, blow)
    said = process.communicate(timeout=30)[0]  # until no process is left that could write
    assert said == (b"interrupted\n" if blow == signal.SIGINT else b"")
