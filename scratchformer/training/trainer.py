"""One optimizer step after another (paper §5), and its entry in the log."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Iterator, Sequence

import numpy as np

from scratchformer import config as configs
from scratchformer.backends.device import Device, dtype_named
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.models import new_model
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace, scheduled
from scratchformer.nn.sizes import require_memory
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.cores import share_of_cores
from scratchformer.text.batches import Batch, BatchPlan, EncodedPairs, Examples, Sequences
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.checkpoints import Progress
from scratchformer.training.data_parallel import DataParallel
from scratchformer.training.model_code import code_of
from scratchformer.training.run import RunDirectory


@dataclass(frozen=True)
class TrainingData:
    """Encoded examples, and what the score of the validation data needs.

    val_text  the text that the task's `score` compares with
    n_empty   pairs left out because a side is blank
    remark    a line for the user
    """

    train: Examples
    val: Examples | None
    val_text: Any = None
    n_empty: int = 0
    remark: str = ""

    @cached_property
    def checksum(self) -> int:
        """CRC-32 of all examples: a run cannot go on with other text."""
        return self.val.checksum(self.train.checksum()) if self.val else self.train.checksum()

    def require_fit(self, tokens_per_batch: int) -> None:
        """Refuse an example that does not fit into a batch."""
        for examples in filter(None, (self.train, self.val)):
            examples.require_fit(tokens_per_batch)


class Trainer:
    """A model, its optimizer and its place in the batch plan: what a step changes and a checkpoint holds.

    Each of the processes (ranks) that train together has a trainer. All do the same, each with its share of the
    micro-batches and of the validation text. Only rank 0, the main one, writes files and prints messages.

    device    where to compute (default: the CPU; `config.training.device` is not read here)
    ranks     connects the processes; all of them call the same methods in the same order
    progress  state of a resumed run. It keeps its number of threads, unless the configuration gives one: the last bits
              of a sum depend on how many threads divide it
    goal      the task (`tasks.task.Task`): its word for examples and its score; without one, nothing is scored
    remarks   lines for the user
    """

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        data: TrainingData,
        tokenizer: Tokenizer | None,
        device: Device | None = None,
        ranks: Communicator = Communicator(),
        progress: Progress = Progress(),
        goal: Any = None,
    ) -> None:
        self.run, self.config, self.data, self.tokenizer = run, config, data, tokenizer
        self.goal, self.ranks, self.is_main = goal, ranks, ranks.rank == 0
        self.unit = goal.unit if goal else "examples"
        self.device = device or Device()
        settings = config.training
        if ranks.size > 1:
            configs.require_work_for(config, ranks.size)
            ranks.require_agreement({"the training text's checksum": data.checksum})
        data.require_fit(settings.tokens_per_batch)
        self.plan = BatchPlan(
            data.train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness
        )
        self.model: Any = new_model(config.model, settings.seed)
        if not self.device.is_async:  # a GPU has the gradients and the moments
            require_memory(3 * self.model.store.data.nbytes, "gradients and moments")
        self.device.to_device(self.model)
        self.between_devices = self.device.communicator(ranks) if ranks.size > 1 else ranks
        self.threads = 1
        if not self.device.is_async:
            self.threads = settings.threads or progress.threads // ranks.size or share_of_cores(ranks)
        n_replicas = min(self.threads, -(-settings.accumulation // ranks.size))
        self.blas_threads = self.threads // n_replicas
        gradient_dtype = dtype_named("bfloat16") if settings.gradient_dtype and ranks.size > 1 else None
        with using(*self.device.ops):
            self.parallel = DataParallel(self.model, n_replicas, self.between_devices, gradient_dtype, self.device.ops)
            self.optimizer = Adam(
                self.model, (settings.beta1, settings.beta2), settings.eps, self.parallel.map, settings.weight_decay
            )
        n_threads = 0 if self.device.is_async else self.threads * ranks.size
        self.progress = replace(
            progress,
            data_checksum=data.checksum,
            tokenizer_checksum=tokenizer.checksum if tokenizer else 0,
            threads=n_threads,
            code=code_of(self.model),
        )
        self.remarks = list(self._remarks(n_threads, progress.threads))
        self.n_pending = 0  # steps that have begun and not ended
        self.busy_since = 0.0

    @np.errstate(over="ignore", invalid="ignore")  # `finish` reports it in one line
    def step(self, epoch: int, index: int, indices: np.ndarray) -> dict[str, Any]:
        """Begin an optimizer step on the examples `indices`, batch `index` of the epoch -> what `finish` takes

        Micro-batches add up their gradients; the sum is divided once, by the number of all their target tokens. The
        loss and the gradient's norm are not waited for: a GPU may compute while the next step begins.
        """
        settings, began = self.config.training, time.perf_counter()
        step = self.progress.step + 1
        batches = self.plan.micro_batches(indices, epoch)
        with using(*self.device.ops):
            found = None
            with suppress(MemoryError):
                found = self.parallel.step_gradient(batches, settings, step)  # forward, loss and backward
            if found is None:  # here, outside the block above, its arrays are freed
                raise UserError(self._too_large(step, batches))
            loss_sum, n_tokens = found
            grad_norm = self.parallel.average_inplace(n_tokens)
            if settings.clip_norm:
                clip_by_global_norm_inplace(self.model.store.grad, grad_norm, settings.clip_norm)
            learning_rate = scheduled(self.config, step)
            self.optimizer.step(learning_rate, grad_norm)
            self.model.store.grad[...] = 0
            self.device.adapt_loss_scale(grad_norm)
            loss, norm = (
                self.device.read_back(number, self.between_devices.check) for number in (loss_sum / n_tokens, grad_norm)
            )

        if not self.n_pending:
            self.busy_since = began
        self.n_pending += 1
        n_seen = self.progress.target_tokens + n_tokens
        self.progress = replace(self.progress, step=step, epoch=epoch, index=index + 1, target_tokens=n_seen)
        return {
            "step": step,
            "epoch": epoch,
            "index": index,
            "loss": loss,
            "learning_rate": learning_rate,
            "grad_norm": norm,
            "target_tokens": n_tokens,
            "source_tokens": sum(batch.n_source_tokens for batch in batches),
            "positions": sum(batch.n_positions for batch in batches),
            "all_target_tokens": n_seen,
        }

    def finish(self, pending: dict[str, Any]) -> dict[str, Any]:
        """Wait for a step that `step` has begun -> its entry in the log, with the seconds it took

        A gradient that is not finite has changed no weights, and the checkpoints are from earlier steps. With fp16 a
        gradient may overflow now and then, and its step is skipped.
        """
        loss, norm = pending["loss"](), pending["grad_norm"]()
        now = time.perf_counter()
        seconds, self.busy_since = now - self.busy_since, now
        self.n_pending -= 1
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)
        skipped = math.isfinite(loss) and not math.isfinite(norm) and self.device.overflow_is_normal()
        if not skipped and not (math.isfinite(loss) and math.isfinite(norm)):
            raise UserError(self._not_finite(pending, loss, norm))
        return pending | {"loss": loss, "grad_norm": None if skipped else norm, "seconds": seconds}

    def log(self, event: str, entry: dict[str, Any]) -> None:
        """Write an entry into the run's log; only the main rank does."""
        if self.is_main:
            self.run.log(event, entry)

    # Messages

    def _remarks(self, n_threads: int, n_before: int) -> Iterator[str]:
        if n_threads and n_before and n_threads != n_before:
            bits = "the last bits may differ from those of an uninterrupted run"
            yield f"{n_threads} instead of {n_before} threads: {bits}"
        elif n_threads and n_before and n_threads != share_of_cores(self.ranks) * self.ranks.size:
            threads = f"{n_threads} thread{'s' * (n_threads > 1)}"
            yield f"uses {threads}, as before, so that no bit differs; --threads sets another number"
        if self.data.remark:
            yield self.data.remark
        train, val = self.data.train, self.data.val
        if isinstance(train, EncodedPairs) and are_equal(train.source, train.target):
            yield "source and target of the training text are the same: the model learns to copy"
        if isinstance(train, EncodedPairs) and isinstance(val, EncodedPairs) and are_equal(train.source, val.source):
            yield "the validation text is the training text: its loss says nothing about new sentences"

    def summary(self) -> str:
        """One line that says what is about to be trained on what."""
        train = self.data.train
        dropped = train.n_dropped + (self.data.val.n_dropped if self.data.val else 0)
        processes = f"{self.ranks.size} processes, " if self.ranks.size > 1 else ""
        unit = self.unit
        device = "" if type(self.device) is Device else f"; {self.device.describe()}"
        left_out = f"{dropped} {unit} longer than {train.max_length} tokens, {self.data.n_empty} with an empty side"
        return (
            f"{processes}{self.model.store.data.size:,} parameters, {len(train):,} {unit}, "
            f"{train.n_targets:,} target tokens an epoch"
            + (f" (left out: {left_out})" if dropped or self.data.n_empty else "")
            + device
        )

    def _not_finite(self, pending: dict[str, Any], loss: float, norm: float) -> str:
        epoch, index = pending["epoch"], pending["index"]
        indices = self.plan.epoch(epoch)[index]
        first = ", ".join(self.data.train.describe(index) for index in sorted(indices)[:5])
        return (
            f"step {pending['step']}: the loss is {loss}, the gradient's norm {norm}; batch {index} of epoch "
            f"{epoch}, {first}{', ...' if len(indices) > 5 else ''} of the training data; "
            f"{self.run.last_good_checkpoint()}"
        )

    def _too_large(self, step: int, batches: Sequence[Batch]) -> str:
        """Say how large a batch would fit, by trying half of the largest one, a quarter, and so on."""
        settings = self.config.training
        batch = max(batches, key=lambda batch: batch.n_positions)
        n, length = len(batch.targets), self.data.train.lengths[batch.indices].max()
        text = (
            f"step {step}: not enough memory for {n} {self.unit} of up to {length} tokens "
            f"(training.tokens_per_batch={settings.tokens_per_batch})"
        )
        while n := n // 2:
            with suppress(MemoryError):
                first, key = tuple(part[:n] for part in batch.inputs), DropoutKey(settings.seed, step)
                batch_loss_backward(self.model, first, batch.targets[:n], settings.eps_ls, key, settings.spread)
                return f"{text}; {n * length} would fit"
        return f"{text}; not one would fit"


def are_equal(some: Sequences, others: Sequences) -> bool:
    """Compare two sets of sequences. Of long ones that differ, little is read: they may be on disk."""
    same_lengths = np.array_equal(some.offsets[:1000], others.offsets[:1000])
    return same_lengths and np.array_equal(some.ids, others.ids) and np.array_equal(some.offsets, others.offsets)
