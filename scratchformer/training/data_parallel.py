"""One optimizer step on several cores, and on several devices.

NumPy runs only large matrix products on several cores. But the micro-batches of a step are independent, because their
gradients are added up. So each thread computes some of the micro-batches from beginning to end; Python lets threads run
side by side while they are inside NumPy. The ranks of a job, which are processes with a device or some cores each,
divide the micro-batches in the same way.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Sequence

import numpy as np

from scratchformer.config import TrainingConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops, chunks, ops_of, using
from scratchformer.nn.parameter import Array, Layer
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.batches import Batch


class DataParallel:
    """A model with replicas, one for each thread: they share the model's weights, and each has its own gradient.

    The micro-batches of a step are assigned to the ranks in turn, and those of a rank to its replicas in turn. The
    gradients are added in the order of the replicas, then of the ranks. So the last bits of the result depend on the
    number of replicas and ranks, not on which thread is faster; and N ranks of one thread find the same bits as one
    rank of N threads.

    between_devices  sums arrays over the ranks, which all have the same weights
    gradient_dtype   the dtype in which gradients are sent, see `GradientSum`
    ops              the operations that the threads use
    map              like Python's map, but the threads share the calls
    """

    def __init__(
        self,
        model: Model,
        threads: int,
        between_devices: Communicator = Communicator(),
        gradient_dtype: Any = None,
        ops: tuple[Ops, ...] = (),
    ) -> None:
        self.between_devices, self.ops = between_devices, ops
        self.gradient: Any = None  # with one rank, nothing is sent
        if between_devices.size > 1:
            from scratchformer.parallel.gradient import GradientSum

            self.gradient = GradientSum(between_devices, model.store.grad, model.layer_offsets(), gradient_dtype)
        self.replicas = [model] * threads
        self.copy_model()
        self.map: Callable = map
        if threads > 1:
            self.map = ThreadPoolExecutor(threads, "replica", ignore_overflow).map

    def copy_model(self) -> None:
        """Make the other replicas anew, as the model is now: somebody may have changed it by hand."""
        model, *others = self.replicas
        self.replicas = [model, *(replica_of(model) for _ in others)]

    def step_gradient(self, batches: Sequence[Batch], settings: TrainingConfig, step: int) -> tuple[Array, int]:
        """Loss and gradient of the micro-batches of a step -> loss_sum in nats, n_tokens, both over all ranks.

        The first replica's gradient becomes the sum over all replicas and ranks; those of the others become zero.

        To follow it in a debugger, train with --threads 1.

        batches  of all ranks, so that each rank can count the tokens itself
        step     of the optimizer, from 1: dropout depends on it
        """
        rank, n_ranks, n_replicas = self.between_devices.rank, self.between_devices.size, len(self.replicas)
        shares = [range(rank + n_ranks * replica, len(batches), n_ranks * n_replicas) for replica in range(n_replicas)]

        def send(layer: Layer) -> None:
            """From this layer on, the gradient of this rank is complete: send it while backward goes on."""
            self.gradient.complete_from(self.replicas[0].store.offset_of(layer))

        def work(replica: int) -> Array:
            model, loss_sum = self.replicas[replica], 0.0
            with using(*self.ops):  # also in a thread of its own
                for shard in shares[replica]:
                    batch, key = batches[shard], DropoutKey(settings.seed, step, shard)
                    is_last = self.gradient and n_replicas == 1 and shard == shares[replica][-1]
                    after = send if is_last else None
                    loss, _ = batch_loss_backward(
                        model, batch.inputs, batch.targets, settings.eps_ls, key, settings.spread, after
                    )
                    loss_sum = loss_sum + loss
            return loss_sum

        loss_sum = sum(self.map(work, range(n_replicas)))
        if n_replicas > 1:
            self._add_replicas_inplace()
        total = ops_of(self.replicas[0].store.grad).xp.zeros(1, np.float64)
        total += loss_sum
        if self.gradient:
            self.gradient.finish()
            self.between_devices.all_reduce_inplace(total)
            self.between_devices.wait()
        return total[0], sum(batch.n_target_tokens for batch in batches)

    def _add_replicas_inplace(self) -> None:
        """Add the other replicas' gradients into the first one's, and zero them."""
        total, *others = (model.store.grad for model in self.replicas)

        def work(part: slice) -> None:
            for other in others:
                total[part] += other[part]
                other[part] = 0

        list(self.map(work, chunks(total.size, ops_of(total).elements_at_once)))

    def average_inplace(self, n_tokens: int) -> Array:
        """Divide the gradient by n_tokens -> its norm after that, 0-d"""
        grad = self.replicas[0].store.grad
        ops = ops_of(grad)
        parts = chunks(grad.size, ops.elements_at_once)
        squares = self.map(lambda part: ops.divide_inplace(grad[part], n_tokens), parts)
        return ops.xp.sqrt(sum(squares))


def ignore_overflow() -> None:
    """In a new thread: do not warn of an overflow, which the training reports itself."""
    np.seterr(over="ignore", invalid="ignore")


def replica_of(model: Model) -> Model:
    """A model that shares the weights of this one and has a gradient of its own."""
    replica = copy.deepcopy(model)
    replica.store.hold(model.store.data, np.zeros_like(model.store.grad))
    return replica
