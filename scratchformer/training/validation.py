"""Measure the model so far: its loss on the validation data, and the score of its task."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Callable

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.nn.loss import batch_loss
from scratchformer.nn.model import Model
from scratchformer.nn.ops import PAD, Ops, ops_of, using
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.batches import Batch, Examples, batches_in_order
from scratchformer.training import checkpoints
from scratchformer.training.saving import checkpoint
from scratchformer.training.trainer import Trainer


def validate(trainer: Trainer) -> dict[str, Any]:
    """The loss on the validation text -> the entry for the log. Saves the weights if they are the best so far."""
    loss, progress = loss_of_validation(trainer), trainer.progress
    improved = loss < progress.best_loss
    unimproved = 0 if improved else progress.unimproved + 1
    trainer.progress = replace(progress, best_loss=min(loss, progress.best_loss), unimproved=unimproved)
    if improved and trainer.is_main:
        checkpoints.save(trainer.run.checkpoints.best, replace(checkpoint(trainer), moments={}))
    return {"step": progress.step, "loss": loss, "perplexity": math.exp(min(loss, 700))} | reached(trainer)


def loss_of_validation(trainer: Trainer) -> float:
    """`validation_loss` of the trainer's model on its validation data."""
    data, n = trainer.data.val, trainer.config.training.tokens_per_batch
    assert data is not None
    with threadpool_limits(trainer.blas_threads, "blas"):
        return validation_loss(trainer.model, data, n, trainer.ranks, trainer.parallel.map, trainer.device.ops)


def validation_loss(
    model: Model,
    examples: Examples,
    tokens_per_batch: int,
    ranks: Communicator = Communicator(),
    map: Callable = map,
    ops: tuple[Ops, ...] = (),
) -> float:
    """Mean negative log likelihood per target token, in nats, without label smoothing and dropout.

    exp of it is the perplexity of Table 3. map, ops: see `sums_over_batches`
    """

    def loss(batch: Batch) -> tuple[float, int]:
        return batch_loss(model, batch.inputs, batch.targets)

    loss_sum, n_tokens = sums_over_batches(loss, examples, tokens_per_batch, ranks, map, ops)
    return loss_sum / n_tokens


def validation_accuracy(trainer: Trainer) -> float:
    """The share of the targets of the validation data that the model finds most likely, in percent."""
    data, n = trainer.data.val, trainer.config.training.tokens_per_batch
    assert data is not None

    def count(batch: Batch) -> tuple[int, int]:
        right = predictions(trainer.model, batch) == batch.targets[batch.targets != PAD]
        return int(np.count_nonzero(right)), right.size

    with threadpool_limits(trainer.blas_threads, "blas"):
        n_right, n_all = sums_over_batches(count, data, n, trainer.ranks, trainer.parallel.map, trainer.device.ops)
    return 100 * n_right / n_all


def sums_over_batches(
    work: Callable[[Batch], tuple[float, float]],
    examples: Examples,
    tokens_per_batch: int,
    ranks: Communicator = Communicator(),
    map: Callable = map,
    ops: tuple[Ops, ...] = (),
) -> list[float]:
    """The sum over all batches of the two numbers that `work` finds for each.

    The batches are divided among the ranks, and among the threads of `map`, and the numbers are added in order: so the
    sums have the same bits for any number of ranks and threads.

    map  like Python's map, but threads may share the calls; ops: the operations that they use
    """
    batches = list(batches_in_order(examples, tokens_per_batch))
    found, share = np.zeros((2, len(batches))), range(ranks.rank, len(batches), ranks.size)

    def one(index: int) -> tuple[float, float]:
        with using(*ops):  # also in a thread of its own
            first, second = work(batches[index])
            return float(first), float(second)

    for index, numbers in zip(share, map(one, share)):
        found[:, index] = numbers
    for row in found:
        ranks.all_reduce_inplace(row)
    return [sum(row) for row in found.tolist()]


def predictions(model: Model, batch: Batch) -> np.ndarray:
    """The most likely word or class wherever the batch has a target: ids in the order of its targets, never PAD."""
    states, _ = model.states(*batch.inputs)  # (B, T, D)
    ops = ops_of(states)
    logits, _ = model.unembedding.forward(ops.gather_rows(states, np.flatnonzero(batch.targets != PAD)))
    logits[:, PAD] = -np.inf
    return ops.on_host(logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)).argmax(axis=-1)


def score(trainer: Trainer) -> dict[str, Any]:
    """The score of the task on the validation data -> the entry for the log"""
    assert trainer.goal is not None
    return {"step": trainer.progress.step} | trainer.goal.score(trainer) | reached(trainer)


def reached(trainer: Trainer) -> dict[str, Any]:
    """Target tokens and seconds of training so far, for a log entry."""
    return {"all_target_tokens": trainer.progress.target_tokens, "train_seconds": trainer.progress.seconds}
