"""Communication over shared memory, agreement between ranks, and timeouts."""

import faulthandler
import threading
from functools import reduce

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.parallel import watchdog
from scratchformer.parallel.communicator import Communicator, PeerFailure
from scratchformer.parallel.shared_memory import SLOT_BYTES
from scratchformer.parallel.watchdog import MARGIN, Watchdog

SLOT = SLOT_BYTES // 4
SHAPES = [(0,), (), (3, 5), (SLOT - 1,), (SLOT,), (2 * SLOT + 3,)]


def drawn(shape, dtype, rank):
    """Numbers of very different size, so that adding them in another order would give other bits."""
    return (np.random.default_rng(rank).standard_normal(shape) * 1000 * 10**rank).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_sum_has_the_bits_of_adding_in_the_order_of_the_ranks(size, dtype, together):
    def work(ranks):
        arrays = [np.array(drawn(shape, dtype, ranks.rank)) for shape in SHAPES]
        for array in arrays:
            ranks.all_reduce_inplace(array)
        return arrays

    expected = [reduce(np.add, (drawn(shape, dtype, rank) for rank in range(size))) for shape in SHAPES]
    for sums in together(size, work):
        assert all(
            mine.dtype == dtype and mine.tobytes() == np.asarray(other).tobytes()
            for mine, other in zip(sums, expected, strict=True)
        )


@pytest.mark.parametrize("root", [0, 1, 2])
def test_all_get_what_the_root_has(root, together):
    messages = [b"", b"short", bytes(range(256)) * (SLOT_BYTES // 200)]

    def work(ranks):
        arrays = [np.array(drawn(shape, np.float32, ranks.rank)) for shape in SHAPES]
        for array in arrays:
            ranks.broadcast_inplace(array, root)
        return arrays, ranks.all_gather_bytes(messages[ranks.rank])

    for arrays, gathered in together(3, work):
        assert all(np.array_equal(mine, drawn(shape, np.float32, root)) for mine, shape in zip(arrays, SHAPES))
        assert gathered == messages


def test_a_single_rank_needs_no_communication():
    alone, numbers = Communicator(), np.arange(3.0)
    alone.all_reduce_inplace(numbers)
    alone.broadcast_inplace(numbers)
    alone.barrier()
    assert numbers.tolist() == [0, 1, 2] and alone.all_gather_bytes(b"x") == [b"x"]


@pytest.mark.parametrize("operation", ["all_reduce_inplace", "broadcast_inplace"])
def test_an_array_with_gaps_is_refused(operation, together):
    def work(ranks):
        with pytest.raises(ValueError, match=r"\(3, 2\) that is not contiguous"):
            getattr(ranks, operation)(np.zeros((3, 4))[:, ::2])

    together(2, work)


# Ranks that fail or do not arrive -------------------------------------------------------------------------------------


def test_a_rank_that_times_out_names_the_missing_ranks(together):
    gone, waiting = threading.Event(), threading.Barrier(2)

    def work(ranks):
        if ranks.rank in (1, 3):
            gone.wait(60)
            return ""
        ranks.watchdog.seconds = 0.5
        waiting.wait(60)  # start to wait at the same time
        with pytest.raises(PeerFailure) as caught:
            ranks.barrier()
        if ranks.rank == 0:
            gone.set()
        return str(caught.value)

    told, _, other, _ = together(4, work)
    assert told.startswith("rank 0 gave up after waiting ") and told.endswith(" s for ranks 1, 3")
    assert other.endswith(" s for ranks 1, 3")


def test_a_failure_ends_waiting_at_once(together, tmp_path):
    def work(ranks):
        ranks.barrier()
        assert not list(tmp_path.iterdir())  # the file is unlinked once all ranks have opened it
        if ranks.rank == 0:
            ranks.abort()  # rank 1 may still be in the barrier
            return ""
        with pytest.raises(PeerFailure) as caught:
            ranks.barrier()
        return str(caught.value)

    assert together(2, work) == ["", ""]  # the rank that failed reports why


def test_a_barrier_succeeds_if_a_rank_fails_after_arriving(together):
    class Failed:
        def __getitem__(self, _):
            arrivals[1] += 1  # rank 1 arrives just before its failure is seen
            return 1

    def work(ranks):
        nonlocal arrivals
        if ranks.rank == 0:
            arrivals, ranks.failure = ranks.arrivals, Failed()
            ranks.barrier()

    arrivals = None
    together(2, work)


# Agreement ------------------------------------------------------------------------------------------------------------


def test_all_ranks_report_what_they_do_not_agree_on(together):
    def work(ranks):
        ranks.require_agreement({"steps": 5, "P_drop": 0.1})
        with pytest.raises(UserError) as caught:
            ranks.require_agreement({"steps": 5, "seed": ranks.rank // 2, "device": f"cpu {ranks.rank == 1}"})
        return str(caught.value)

    message = (
        "the ranks do not agree: seed is 0 on ranks 0, 1 and 1 on rank 2; "
        "device is 'cpu False' on ranks 0, 2 and 'cpu True' on rank 1"
    )
    assert together(3, work) == [message] * 3


# The watchdog ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """clock.now in seconds, and clock.set: the timeouts given to faulthandler."""

    class Clock:
        now, set = 100.0, []

    clock = Clock()
    clock.set = []
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: clock.set.append(seconds))
    return clock


def test_feeding_restarts_the_watchdog_but_not_too_often(clock):
    dog = Watchdog(60)
    for clock.now in (100, 101, 102, 104, 105):
        dog.feed()
    assert clock.set == [60, 60]


def test_a_waiting_rank_gives_up_before_its_watchdog_fires(clock):
    dog = Watchdog(60)
    dog.feed()
    began = clock.now
    for clock.now in range(102, 160):
        assert dog.may_wait(clock.now - began - 1)
    clock.now = began + 61
    assert not dog.may_wait(60)
    assert clock.set == [60, 60 + MARGIN]
