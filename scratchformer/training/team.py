"""One optimizer step on several cores.

NumPy divides nothing among cores but large matrix products. A step has something better to divide: its micro-batches,
whose gradients are added up anyway. Each thread of a team computes some of them from beginning to end; inside NumPy,
Python lets the threads run side by side.
"""

from __future__ import annotations

import copy
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Callable, Sequence

import numpy as np

from scratchformer.config import TrainingConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import chunks, ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch


class Team:
    """Threads that share the weights of a model. Each member of the team is such a model with a gradient of its own, so
    that no thread waits for another.

    Micro-batch i belongs to member i modulo their number, and the gradients are added in the order of the members. So
    the result depends, in its last bits, on how many they are, and not on which thread is quicker.

    map  like Python's, but the threads share the calls
    """

    def __init__(self, model: Transformer, threads: int) -> None:
        self.models = [model, *(with_own_gradient(model) for _ in range(threads - 1))]
        self.map: Callable = map
        if threads > 1:
            quiet = partial(np.seterr, over="ignore", invalid="ignore")            # Trainer.step tells of an overflow
            self.map = ThreadPoolExecutor(threads, "team", quiet).map

    def loss_backward(self, batches: Sequence[Batch], settings: TrainingConfig, step: int) -> tuple[Array, int]:
        """Loss and gradients of the micro-batches of a step -> loss_sum in nats, n_tokens.

        step  of the optimizer, from 1: dropout depends on it
        """
        def work(member: int) -> tuple[Array, int]:
            loss_sum, n_tokens = 0.0, 0
            for shard in range(member, len(batches), len(self.models)):
                source_ids, target_in_ids, target_out_ids, _ = batches[shard]
                loss, n = self.models[member].loss_backward(source_ids, target_in_ids, target_out_ids, settings.eps_ls,
                                                            DropoutKey(settings.seed, step, shard), settings.smoothing)
                loss_sum = loss_sum + loss
                n_tokens += n
            return loss_sum, n_tokens

        sums = list(self.map(work, range(len(self.models))))
        return sum(loss_sum for loss_sum, _ in sums), sum(n_tokens for _, n_tokens in sums)

    def gather_inplace(self, n_tokens: int) -> Array:
        """Sum the gradients into the first model's and divide by n_tokens; clear the others. -> norm of the result"""
        total, *others = (model.store.grad for model in self.models)
        ops = ops_of(total)

        def work(part: slice) -> Array:
            for other in others:
                total[part] += other[part]
                other[part] = 0
            return ops.mean_inplace(total[part], n_tokens)

        return ops.xp.sqrt(sum(self.map(work, chunks(total.size, ops.part))))


def with_own_gradient(model: Transformer) -> Transformer:
    """A model with the very weights of this one, and a gradient that is not the same."""
    twin = copy.deepcopy(model)
    twin.store.hold(model.store.data, np.zeros_like(model.store.grad))
    return twin


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
