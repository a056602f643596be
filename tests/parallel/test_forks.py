"""Work that several processes share."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys

import pytest

from scratchformer.errors import UserError
from scratchformer.parallel.forks import map_in_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux only")
MINE = os.getpid()


def after_meeting(n, work):
    """The work, which begins when n processes have an item each."""
    meeting = multiprocessing.get_context("fork").Barrier(n, timeout=60)
    return lambda item: (meeting.wait(), work(item))[1]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_results_come_in_the_order_of_the_items(n):
    results = map_in_processes(after_meeting(n, lambda item: (item * item, os.getpid())), range(2 * n), n)
    assert [square for square, _ in results] == [item * item for item in range(2 * n)]
    processes = {process for _, process in results}
    assert len(processes) == n and MINE in processes
    assert not multiprocessing.active_children()


def test_more_processes_than_items_and_no_items():
    assert map_in_processes(str, [3, 4], 5) == ["3", "4"]
    assert map_in_processes(str, [], 2) == []


@pytest.mark.parametrize("in_fork", [False, True])
def test_an_error_is_raised_here_and_ends_all(in_fork):
    def fails(item):
        if (os.getpid() != MINE) == in_fork:
            raise UserError("this item is bad")

    with pytest.raises(UserError, match="^this item is bad$") as caught:
        map_in_processes(after_meeting(2, fails), range(2), 2)
    assert not in_fork or "in fails" in str(caught.value.__cause__)
    assert not multiprocessing.active_children()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "end, why",
    [(killed, "(exit code -9): is there enough memory? --threads 1 needs less"), (sys.exit, "(exit code 0)")],
)
def test_a_fork_that_ends(end, why):
    with pytest.raises(UserError, match=re.escape(f"a worker process has ended {why}") + "$"):
        map_in_processes(after_meeting(2, lambda item: os.getpid() == MINE or end()), range(2), 2)


SLEEPER = """
import os, time
from scratchformer.parallel.forks import map_in_processes

def work(item):
    os.write(1, b"begun ")
    time.sleep(60)

try:
    map_in_processes(work, range(4), 2)
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
