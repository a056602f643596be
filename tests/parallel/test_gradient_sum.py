"""The buckets of a gradient: the same on all ranks, sent in the same order, each number in exactly one."""

import numpy as np
import pytest

from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum

N, OFFSETS = 100, [0, 5, 30, 33, 50, 90]
BUCKETS = [(50, 50), (30, 20), (5, 25), (0, 5)]  # begin and length: whole layers, at least 20 numbers


class Recorder(Communicator):
    """Two ranks with the same gradient; records what is sent."""

    def __init__(self, grad):
        self.grad, self.sent = grad, []

    def all_reduce_inplace(self, x):
        begin = (x.ctypes.data - self.grad.ctypes.data) // x.itemsize if np.shares_memory(x, self.grad) else None
        self.sent.append((begin, len(x)))
        x *= 2


@pytest.fixture
def summed(monkeypatch):
    monkeypatch.setattr(gradient, "BUCKET_SIZE", 20)

    def build(dtype=None, offsets=OFFSETS):
        grad = np.arange(N, dtype=np.float32) + 1 / 3
        ranks = Recorder(grad)
        return GradientSum(ranks, grad, offsets, dtype), ranks

    return build


@pytest.mark.parametrize("offsets", [[], [0], [90, 50, 33, 30, 5, 0], [30, 30, 90], [1], [99], OFFSETS])
def test_buckets_are_sent_in_one_order_however_backward_proceeds(offsets, summed):
    total, ranks = summed()
    for _ in range(2):  # steps
        before = total.grad.copy()
        for offset in offsets:
            total.complete_from(offset)
        total.finish()
        assert np.array_equal(total.grad, 2 * before)  # every number once
    assert ranks.sent == BUCKETS * 2


def test_a_bucket_is_sent_as_soon_as_it_is_complete(summed):
    total, ranks = summed()
    n_sent = []
    for offset in (90, 51, 50, 33, 30, 6, 5, 1):
        total.complete_from(offset)
        n_sent.append(len(ranks.sent))
    assert n_sent == [0, 0, 1, 1, 2, 2, 3, 3]
