"""Several ranks with a device each: all of a job on GPUs except NCCL."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import strict_array

from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.nccl import HostStaged
from scratchformer.training.data_parallel import DataParallel
from scratchformer.training.trainer import Trainer


@pytest.fixture
def open_shared(open_strict, monkeypatch):
    """open_shared(precision) -> a device for all ranks. Only one rank at a time runs a kernel on the CPU."""

    def open_(precision):
        device, turn = open_strict(precision), threading.Lock()
        run = device.kernels.run

        def run_alone(*arguments):
            with turn:
                run(*arguments)

        monkeypatch.setattr(device.kernels, "run", run_alone)
        return device

    return open_


def steps_of(trainer):
    """The log of three steps, the second with a single pair, and Adam's mean gradient afterwards."""
    largest = max(trainer.plan.epoch(0), key=len)
    begun = [trainer.step(0, 0, largest[:pairs]) for pairs in (len(largest), 1, len(largest))]
    entries = [trainer.finish(entry) for entry in begun]
    return [(entry["loss"], entry["grad_norm"]) for entry in entries], trainer.optimizer.m.get()


@pytest.mark.parametrize(
    "precision, gradient_dtype, limit",
    [
        ("fp32", "", 1e-5),
        pytest.param("bf16", "", 1e-2, marks=pytest.mark.slow),
        pytest.param("fp32", "bf16", 1e-2, marks=pytest.mark.slow),
    ],
)
def test_two_ranks_equal_one_with_two_micro_batches(
    precision, gradient_dtype, limit, together, begin, open_shared, monkeypatch
):
    monkeypatch.setattr(gradient, "BUCKET_SIZE", 500)
    plain, device = begin(P_drop=0.2, accumulation=2), open_shared(precision)
    parts = (
        plain.run,
        replace(plain.config, training=replace(plain.config.training, gradient_dtype=gradient_dtype)),
        plain.data,
    )

    def work(ranks):
        trainer = Trainer(*parts, plain.tokenizer, device, ranks)
        assert isinstance(trainer.between_devices, HostStaged)
        return steps_of(trainer)

    entries, mean = steps_of(Trainer(*parts, plain.tokenizer, device))
    results = together(2, work)
    for found, found_mean in results:
        np.testing.assert_allclose(found, entries, rtol=limit)
        np.testing.assert_allclose(found_mean, mean, rtol=0, atol=2 * limit * np.abs(mean).max())
        assert np.array_equal(found_mean, results[0][1])


def test_a_step_of_one_rank_among_several_waits_for_nothing(begin, open_strict):
    """With a communicator that only queues sums, as NCCL does, nothing makes the host wait."""
    device = open_strict()

    class Queue(Communicator):
        size, sent = 2, []

        def all_reduce_inplace(self, x):
            self.sent.append(x)

    plain = begin(accumulation=2)
    trainer = Trainer(plain.run, plain.config, plain.data, plain.tokenizer, device)
    trainer.parallel = DataParallel(trainer.model, 1, Queue(), None, device.ops)
    trainer.step(0, 0, max(trainer.plan.epoch(0), key=len))
    assert strict_array.waits == [] and len(Queue.sent) == 2  # the gradient, the loss
    assert all(isinstance(each, strict_array.Array) for each in Queue.sent)


def test_arrays_are_sent_through_host_memory(together):
    def work(ranks):
        staged, xp = HostStaged(ranks, strict_array.xp), strict_array.xp
        total, other = xp.asarray(np.full(5, ranks.rank + 1.0)), xp.asarray(np.full((2, 3), ranks.rank, np.float32))
        staged.all_reduce_inplace(total)
        staged.all_reduce_inplace(total[1:3])
        staged.broadcast_inplace(other, root=1)
        staged.barrier()
        staged.check()
        return total.get().tolist(), other.get().tolist()

    assert together(2, work) == [([3, 6, 6, 3, 3], [[1, 1, 1], [1, 1, 1]])] * 2
