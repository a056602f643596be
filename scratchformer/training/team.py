"""One optimizer step on several cores, and on several devices.

NumPy divides nothing among cores but large matrix products. A step has something better to divide: its micro-batches,
whose gradients are added up anyway. Each thread of a team computes some of them from beginning to end; inside NumPy,
Python lets the threads run side by side. The ranks of a job, processes with a device or some cores each, do the same,
each with a team: what a team finds is the share of its rank.
"""

from __future__ import annotations

import copy
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Sequence

import numpy as np

from scratchformer.config import TrainingConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import chunks, ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum
from scratchformer.text.batches import Batch


class Team:
    """Threads that share the weights of a model. Each member of the team is such a model with a gradient of its own, so
    that no thread waits for another.

    The micro-batches of a step are dealt to the ranks in turn, and those of a rank to its members. The gradients are
    added in the order of the members, then of the ranks. So the result depends, in its last bits, on how many they are,
    and not on who is quicker; and N ranks of one thread find the very bits that N threads of one rank find.

    between_devices  carries gradients between the ranks, all of which hold the same weights
    wire             the dtype of gradients on their way, see `GradientSum`
    map              like Python's, but the threads share the calls
    """

    def __init__(
        self, model: Transformer, threads: int, between_devices: Communicator = Communicator(), wire: Any = None
    ) -> None:
        self.between_devices = between_devices
        self.gradient = GradientSum(between_devices, model.store.grad, model.layer_begins(), wire)
        self.models = [model, *(with_own_gradient(model) for _ in range(threads - 1))]
        self.map: Callable = map
        if threads > 1:
            quiet = partial(np.seterr, over="ignore", invalid="ignore")  # Trainer.step tells of an overflow
            self.map = ThreadPoolExecutor(threads, "team", quiet).map

    def loss_backward(self, batches: Sequence[Batch], settings: TrainingConfig, step: int) -> tuple[Array, int]:
        """Loss and gradient of the micro-batches of a step -> loss_sum in nats, n_tokens; both are of all ranks.

        The gradients of all members and ranks are summed into the first model's, those of the other members cleared.
        Each rank knows the micro-batches of all, so none has to ask how many tokens there are.

        step  of the optimizer, from 1: dropout depends on it
        """
        rank, size, members = self.between_devices.rank, self.between_devices.size, len(self.models)
        shares = [range(rank + size * member, len(batches), size * members) for member in range(members)]

        def work(member: int) -> Array:
            loss_sum = 0.0
            for shard in shares[member]:
                source_ids, target_in_ids, target_out_ids, _ = batches[shard]
                completes = members == 1 and shard == shares[member][-1]  # what this rank has to send
                loss, _ = self.models[member].loss_backward(
                    source_ids,
                    target_in_ids,
                    target_out_ids,
                    settings.eps_ls,
                    DropoutKey(settings.seed, step, shard),
                    settings.smoothing,
                    self.gradient.filled if completes else None,
                )
                loss_sum = loss_sum + loss
            return loss_sum

        loss_sum = sum(self.map(work, range(members)))
        self._gather_inplace()
        total = ops_of(self.gradient.grad).xp.zeros(1, np.float64)
        total += loss_sum
        self.between_devices.all_reduce_(total)
        self.between_devices.wait()
        return total[0], sum(batch.n_target_tokens for batch in batches)

    def _gather_inplace(self) -> None:
        total, *others = (model.store.grad for model in self.models)

        def work(part: slice) -> None:
            for other in others:
                total[part] += other[part]
                other[part] = 0

        list(self.map(work, chunks(total.size, ops_of(total).part)))
        self.gradient.finish()

    def mean_inplace(self, n_tokens: int) -> Array:
        """Divide the gradient by n_tokens -> its norm then"""
        grad = self.gradient.grad
        ops = ops_of(grad)
        squares = self.map(lambda part: ops.mean_inplace(grad[part], n_tokens), chunks(grad.size, ops.part))
        return ops.xp.sqrt(sum(squares))


def with_own_gradient(model: Transformer) -> Transformer:
    """A model with the very weights of this one, and a gradient that is not the same."""
    twin = copy.deepcopy(model)
    twin.store.hold(model.store.data, np.zeros_like(model.store.grad))
    return twin


def available_cores() -> int:
    """How many cores this process may use."""
    return len(which_cores()) or os.cpu_count() or 1


def which_cores() -> list[int]:
    """Their numbers; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_of_cores(ranks: Communicator) -> int:
    """How many cores each of the ranks that may use the same ones should take. All ranks call it."""
    mine = f"{platform.node()} {which_cores()}".encode()
    return max(1, available_cores() // ranks.gather(mine).count(mine))
