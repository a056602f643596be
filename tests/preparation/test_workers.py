"""Work that is shared among processes."""

import os
import time

import pytest

from scratchformer.errors import UserError
from scratchformer.preparation.workers import BLOCKS_PER_WORKER, map_in_order


def squared_slowly(number):
    time.sleep(0.02 * (number % 3))
    return number**2


def die_at_three(number):
    if number == 3:
        os._exit(1)
    return number


def fail_at_three(number):
    return 1 / (number - 3)


def test_results_come_in_order_and_blocks_are_not_read_far_ahead():
    read = []

    def blocks():
        for number in range(20):
            read.append(number)
            yield number

    results = map_in_order(squared_slowly, blocks(), 2)
    assert next(results) == 0 and len(read) == 2 * BLOCKS_PER_WORKER
    assert list(results) == [number**2 for number in range(1, 20)]
    assert list(map_in_order(squared_slowly, range(5), 1)) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_of_the_work_passes_through(workers):
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(fail_at_three, range(10), workers))


def test_a_worker_that_dies_ends_the_work():
    with pytest.raises(UserError, match="one of the 2 worker processes has died"):
        list(map_in_order(die_at_three, range(10), 2))
