"""What to tell the user when a training step fails: where it happened, and what would help."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Sequence

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.text.batches import Batch, EncodedPairs, Examples, Sequences

if TYPE_CHECKING:
    from scratchformer.training.trainer import PendingStep, Trainer


def same_text(train: Examples, val: Examples | None) -> list[str]:
    """Remarks about text that somebody may have named by mistake: copies of one text where there should be two."""
    remarks = []
    if isinstance(train, EncodedPairs) and are_equal(train.source, train.target):
        remarks.append("source and target of the training text are the same: the model learns to copy")
    if isinstance(train, EncodedPairs) and isinstance(val, EncodedPairs) and are_equal(train.source, val.source):
        remarks.append("the validation text is the training text: its loss says nothing about new sentences")
    return remarks


def are_equal(some: Sequences, others: Sequences) -> bool:
    """Whether they are the same sequences. Of long ones that differ, little is read: they may be on disk."""
    same_lengths = np.array_equal(some.offsets[:1000], others.offsets[:1000])
    return same_lengths and np.array_equal(some.ids, others.ids) and np.array_equal(some.offsets, others.offsets)


def not_finite(trainer: Trainer, pending: PendingStep, loss: float, norm: float) -> str:
    """The loss or the gradient of a step is not finite: name the step and the lines of its sentences."""
    indices = trainer.plan.epoch(pending.epoch)[pending.index]
    first = ", ".join(trainer.data.train.describe(index) for index in sorted(indices)[:5])
    return (
        f"step {pending.step}: the loss is {loss}, the gradient's norm {norm}; batch {pending.index} of epoch "
        f"{pending.epoch}, {first}{', ...' if len(indices) > 5 else ''} of the training data; "
        f"{last_good_checkpoint(trainer)}"
    )


def too_large(trainer: Trainer, step: int, batches: Sequence[Batch]) -> str:
    """A step needs too much memory: tell how large a batch would fit, by trying half of it, a quarter, and so on."""
    settings = trainer.config.training
    batch = max(batches, key=lambda batch: batch.n_positions)
    n, length = len(batch.targets), trainer.data.train.lengths[batch.indices].max()
    text = (
        f"step {step}: not enough memory for {n} {trainer.task.unit} of up to {length} tokens "
        f"(training.tokens_per_batch={settings.tokens_per_batch})"
    )
    while n := n // 2:
        with suppress(MemoryError):
            first, key = tuple(part[:n] for part in batch.inputs), DropoutKey(settings.seed, step)
            batch_loss_backward(trainer.model, first, batch.targets[:n], settings.eps_ls, key, settings.spread)
            return f"{text}; {n * length} would fit"
    return f"{text}; not one would fit"


def other_threads(n_threads: int, n_before: int, n_cores: int) -> str:
    """What to say if a run is resumed with other threads than before, or with other threads than there are cores."""
    if n_threads not in (0, n_before):
        return f"{n_threads} instead of {n_before} threads: the last bits may differ from those of an uninterrupted run"
    if n_threads not in (0, n_cores):
        return f"uses {n_threads} threads, as before, so that no bit differs; --threads sets another number"
    return ""


def last_good_checkpoint(trainer: Trainer) -> str:
    """Which checkpoint training can go on from, as the end of a message."""
    saved = trainer.run.checkpoints.steps()
    return f"the last good checkpoint is {saved[-1]}" if saved else "there is no checkpoint yet"
