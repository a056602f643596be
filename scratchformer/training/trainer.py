"""One optimizer step after another (paper §5): what a step changes, and what the log says about it."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable

import numpy as np

from scratchformer import config as configs
from scratchformer.backends.device import Device, dtype_named
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.nn.models import new_model
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace, noam
from scratchformer.parallel.agreement import require_agreement
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.cores import share_of_cores
from scratchformer.text.batches import BatchPlan
from scratchformer.text.tokenizer import Tokenizer, unlearned_remark
from scratchformer.training import messages
from scratchformer.training.checkpoints import Progress
from scratchformer.training.data_parallel import DataParallel
from scratchformer.training.run import RunDirectory
from scratchformer.training.task import TrainingData
from scratchformer.training.tasks import task_of


@dataclass(frozen=True)
class PendingStep:
    """A step that has begun. A GPU may still be computing it: `loss` and `grad_norm` wait for their numbers."""

    step: int
    epoch: int
    index: int
    loss: Callable[[], float]
    learning_rate: float
    grad_norm: Callable[[], float]
    target_tokens: int
    source_tokens: int
    positions: int
    all_target_tokens: int


class Trainer:
    """A model, its optimizer and its place in the batch plan: what a step changes and a checkpoint holds.

    Each of the processes (ranks) that train together has a trainer. All do the same, each with its share of the
    micro-batches and of the validation text. Only rank 0, the main one, writes files and prints messages.

    device  where to compute (default: the CPU; `config.training.device` is not read here)
    ranks   connects the processes; all of them call the same methods in the same order
    before  what a run that is resumed has reached. It keeps its number of threads, unless the configuration gives one:
            the last bits of a sum depend on how many threads divide it. `remarks` are lines for the user if that
            matters
    """

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        data: TrainingData,
        tokenizer: Tokenizer | None,
        device: Device | None = None,
        ranks: Communicator = Communicator(),
        before: Progress = Progress(),
    ) -> None:
        self.run, self.config, self.data, self.tokenizer = run, config, data, tokenizer
        self.task, self.ranks, self.is_main = task_of(config), ranks, ranks.rank == 0
        self.device = device or Device()
        settings = config.training
        configs.require_work_for(config, ranks.size)
        self.plan = BatchPlan(
            data.train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness
        )
        require_agreement(ranks, {"the training text's checksum": data.checksum})
        self.model: Any = new_model(config.model, settings.seed)
        self.device.to_device(self.model)

        cores = share_of_cores(ranks)
        self.threads = 1 if self.device.is_async else settings.threads or before.threads // ranks.size or cores
        self.between_devices = self.device.communicator(ranks)  # on a CPU these are the ranks themselves
        gradient_dtype = dtype_named("bfloat16") if settings.gradient_dtype and ranks.size > 1 else None
        n_replicas = min(self.threads, -(-settings.accumulation // ranks.size))
        with using(*self.device.ops):
            self.parallel = DataParallel(self.model, n_replicas, self.between_devices, gradient_dtype, self.device.ops)
            self.optimizer = Adam(self.model, (settings.beta1, settings.beta2), settings.eps, self.parallel.map)
        self.blas_threads = self.threads // n_replicas
        n_threads = 0 if self.device.is_async else self.threads * ranks.size
        self.progress = replace(before, data_checksum=data.checksum, threads=n_threads)
        remarks = (
            messages.other_threads(n_threads, before.threads, cores * ranks.size) if before.threads else "",
            unlearned_remark(tokenizer) if self.is_main and tokenizer else "",
            *messages.same_text(data.train, data.val),
        )
        self.remarks = [remark for remark in remarks if remark]
        self.n_pending = 0  # steps that have begun and not ended
        self.busy_since = 0.0

    def summary(self) -> str:
        """One line that says what is about to be trained on what."""
        train = self.data.train
        dropped = train.n_dropped + (self.data.val.n_dropped if self.data.val else 0)
        processes = f"{self.ranks.size} processes, " if self.ranks.size > 1 else ""
        unit = self.task.unit
        device = "" if type(self.device) is Device else f"; {self.device.describe()}"
        left_out = f"{dropped} {unit} longer than {train.max_length} tokens, {self.data.n_empty} with an empty side"
        return (
            f"{processes}{self.model.store.data.size:,} parameters, {len(train):,} {unit}, "
            f"{train.n_targets:,} target tokens an epoch"
            + (f" (left out: {left_out})" if dropped or self.data.n_empty else "")
            + device
        )

    @np.errstate(over="ignore", invalid="ignore")  # `finish` reports it in one line
    def step(self, epoch: int, index: int, indices: np.ndarray) -> PendingStep:
        """Begin an optimizer step on the pairs `indices`, which are batch `index` of the epoch.

        Micro-batches add up their gradients; the sum is divided once, by the number of all their target tokens. The
        loss and the gradient's norm are not waited for: a GPU may compute while the next step begins.
        Raises UserError if there is not enough memory.
        """
        settings, began = self.config.training, time.perf_counter()
        step = self.progress.step + 1
        batches = self.plan.micro_batches(indices, epoch)
        fits = False
        with using(*self.device.ops):
            with suppress(MemoryError):
                loss_sum, n_tokens = self.parallel.step_gradient(batches, settings, step)
                fits = True
            if not fits:  # here, outside the block above, its arrays are freed
                raise UserError(messages.too_large(self, step, batches))
            grad_norm = self.parallel.average_inplace(n_tokens)
            if settings.clip_norm:
                clip_by_global_norm_inplace(self.model.store.grad, grad_norm, settings.clip_norm)
            learning_rate = noam(step, self.config.model.d_model, settings.warmup, settings.lr_factor)
            self.optimizer.step(learning_rate, grad_norm)
            self.device.adapt_loss_scale(grad_norm)
            self.model.store.grad[...] = 0
            read_back = partial(self.device.read_back, check=self.between_devices.check)
            loss, norm = read_back(loss_sum / n_tokens), read_back(grad_norm)

        if not self.n_pending:
            self.busy_since = began
        self.n_pending += 1
        n_seen = self.progress.target_tokens + n_tokens
        self.progress = replace(self.progress, step=step, epoch=epoch, index=index + 1, target_tokens=n_seen)
        return PendingStep(
            step=step,
            epoch=epoch,
            index=index,
            loss=loss,
            learning_rate=learning_rate,
            grad_norm=norm,
            target_tokens=n_tokens,
            source_tokens=sum(batch.n_source_tokens for batch in batches),
            positions=sum(batch.n_positions for batch in batches),
            all_target_tokens=n_seen,
        )

    def finish(self, pending: PendingStep) -> dict[str, Any]:
        """Wait for a step -> its entry in the log, with the seconds it took.

        Raises UserError if the loss or the gradient is not finite. Such a gradient has changed no weights, and the
        checkpoints are from earlier steps. With fp16 a gradient may overflow now and then, and its step is skipped.
        """
        loss, norm = pending.loss(), pending.grad_norm()
        now = time.perf_counter()
        seconds, self.busy_since = now - self.busy_since, now
        self.n_pending -= 1
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)
        skipped = math.isfinite(loss) and not math.isfinite(norm) and self.device.overflow_is_normal()
        if not skipped and not (math.isfinite(loss) and math.isfinite(norm)):
            raise UserError(messages.not_finite(self, pending, loss, norm))
        return vars(pending) | {"loss": loss, "grad_norm": None if skipped else norm, "seconds": seconds}
