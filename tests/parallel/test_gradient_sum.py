"""The buckets of a gradient: the same on all ranks, in the same order, and every number in one."""

import numpy as np
import pytest

from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum

N, BEGINS = 100, [0, 5, 30, 33, 50, 90]
BUCKETS = [(50, 100), (30, 50), (5, 30), (0, 5)]  # of whole layers, 20 numbers or more


class Recorder(Communicator):
    """Two ranks, the other having the same gradient."""

    def __init__(self, grad):
        self.grad, self.sent, self.waited = grad, [], 0

    def all_reduce_(self, x):
        begin = (x.ctypes.data - self.grad.ctypes.data) // x.itemsize if np.shares_memory(x, self.grad) else None
        self.sent.append((begin, len(x), x.dtype.name))
        x *= 2

    def wait(self):
        self.waited += 1


@pytest.fixture
def summed(monkeypatch):
    monkeypatch.setattr(gradient, "BUCKET", 20)

    def build(wire=None, begins=BEGINS):
        grad = np.arange(N, dtype=np.float32) + 1 / 3
        ranks = Recorder(grad)
        return GradientSum(ranks, grad, begins, wire), ranks

    return build


@pytest.mark.parametrize("filled", [[], [0], [90, 50, 33, 30, 5, 0], [30, 30, 90], [1], [99], BEGINS])
def test_buckets_go_in_one_order_however_backward_fills_them(filled, summed):
    total, ranks = summed()
    for _ in range(2):  # steps
        before = total.grad.copy()
        for begin in filled:
            total.filled(begin)
        total.finish()
        assert np.array_equal(total.grad, 2 * before)  # every number once
    assert ranks.sent == [(begin, end - begin, "float32") for begin, end in BUCKETS] * 2 and ranks.waited == 2


def test_a_bucket_goes_as_soon_as_it_is_full_and_not_before(summed):
    total, ranks = summed()
    n_sent = []
    for begin in (90, 51, 50, 33, 30, 6, 5, 1):
        total.filled(begin)
        n_sent.append(len(ranks.sent))
    assert n_sent == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("begins", [[0], [], [0, 99], list(range(N))])
def test_however_the_layers_lie_every_number_is_sent_once(begins, summed):
    total, ranks = summed(begins=begins)
    total.finish()
    places = [range(begin, begin + length) for begin, length, _ in ranks.sent]
    assert sorted(place for places in places for place in places) == list(range(N))


def test_what_is_rounded_on_the_wire_comes_back_into_its_place(summed):
    total, ranks = summed(np.float16)
    before = total.grad.copy()
    total.finish()
    assert np.array_equal(total.grad, 2 * before.astype(np.float16).astype(np.float32))
    assert ranks.sent == [(None, end - begin, "float16") for begin, end in BUCKETS] and not total.rounded


def test_nothing_is_nothing():
    GradientSum(Communicator(), np.zeros(0, np.float32), []).finish()
