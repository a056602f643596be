"""The training loop (paper §5): train until there is a reason to stop."""

from __future__ import annotations

import math
import signal
import sys
import time
from contextlib import contextmanager
from typing import Any, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.errors import UserError
from scratchformer.parallel.job import stop_signals
from scratchformer.progress import tqdm
from scratchformer.text.batches import steps
from scratchformer.training.saving import require_loadable, save
from scratchformer.training.trainer import Trainer
from scratchformer.training.validation import score, validate

INTERRUPTED = "interrupted"
"""The reason that `train` returns when the user stopped it."""

LINE_EVERY = 30
"""Seconds after which there is a line where there is no progress bar."""


def train(trainer: Trainer) -> str:
    """Train until there is a reason to stop, save, and return the reason.

    A resumed run does at each step what an uninterrupted one does.
    """
    require_loadable(trainer)
    trainer.parallel.copy_model()
    settings, began = trainer.config.training, time.perf_counter()
    validates = trainer.data.val is not None
    scores = validates and trainer.goal and settings.score_every
    reason = reason_to_stop(trainer, False, began)
    with threadpool_limits(trainer.blas_threads, "blas"), stop_on_signals() as signals, ProgressLog(trainer) as log:
        plan = steps(trainer.plan, trainer.progress.epoch, trainer.progress.index)
        while not reason:
            try:
                begun = trainer.step(*next(plan))  # forward, loss, backward and Adam
            except (UserError, MemoryError):
                log.flush()  # if an earlier step failed, too, this raises the earlier error
                raise
            log.step(begun)
            step = trainer.progress.step
            if validates and step % settings.validate_every == 0:
                log.flush()
                log.validation(validate(trainer))
            if scores and step % settings.score_every == 0:
                log.flush()
                log.score(trainer.goal.score_name, score(trainer))
            reason = reason_to_stop(trainer, bool(signals), began)
            if reason or step % settings.save_every == 0:
                log.flush()
                save(trainer)
    return reason


# When to stop ---------------------------------------------------------------------------------------------------------


@contextmanager
def stop_on_signals() -> Iterator[list[int]]:
    """Within the block, collect Ctrl-C, SIGTERM and SIGHUP in a list: the loop finishes its step, saves and leaves.

    A second Ctrl-C leaves at once. After the block, the old handlers are back.
    """
    received: list[int] = []

    def collect(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, collect) for number in stop_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def reason_to_stop(trainer: Trainer, interrupted: bool, began: float) -> str:
    """Return a reason to stop now, or "" to go on. Stops if any rank votes to stop."""
    settings, progress = trainer.config.training, trainer.progress
    late = bool(settings.minutes) and time.perf_counter() - began >= 60 * settings.minutes
    if trainer.ranks.size > 1:
        votes = np.array([interrupted, late], np.int64)
        trainer.ranks.all_reduce_inplace(votes)
        interrupted, late = votes > 0
    if interrupted:
        return INTERRUPTED
    if progress.step >= settings.steps:
        return f"{settings.steps} steps done"
    if settings.max_tokens and progress.target_tokens >= settings.max_tokens:
        return f"{progress.target_tokens} target tokens seen"
    if late:
        return f"{settings.minutes:g} minutes are over"
    if settings.patience and progress.unimproved >= settings.patience:
        return f"{progress.unimproved} validations without a better loss"
    return ""


# What the user sees ---------------------------------------------------------------------------------------------------


class ProgressLog(tqdm):
    """A progress bar in a terminal or a notebook, elsewhere a line now and then. What happens goes to log.jsonl, too.

    Validations and scores have lines of their own. Only the main rank writes.
    """

    def __init__(self, trainer: Trainer) -> None:
        done, n_steps = trainer.progress.step, trainer.config.training.steps
        hidden = None if trainer.is_main else True  # None: if there is no terminal
        super().__init__(initial=done, total=n_steps, unit="step", file=sys.stderr, disable=hidden)
        self.trainer, self.remark, self.n_before = trainer, "", done
        self.loss_name = "smoothed loss" if trainer.config.training.eps_ls else "loss"
        self.began = self.last_line = time.perf_counter()
        self.pending: list[dict[str, Any]] = []  # steps that have begun: a GPU computes one while the host goes on

    def step(self, begun: dict[str, Any]) -> None:
        """Take a step that has begun, and log the step before it; on a CPU, the step itself."""
        self.pending.append(begun)
        self.flush(keep=1 if self.trainer.device.is_async else 0)

    def flush(self, keep: int = 0) -> None:
        """Wait for the oldest pending steps, until `keep` are left, and log them."""
        while len(self.pending) > keep:
            begun, *later = self.pending
            self.pending = []  # if a step fails, those begun after it say nothing
            entry = self.trainer.finish(begun)
            self.pending = later
            self.trainer.log("step", entry)
            self.progress(entry)

    def progress(self, entry: dict[str, Any]) -> None:
        """Show how far the training is. If minutes end it, the steps that they allow are estimated."""
        settings, n = self.trainer.config.training, entry["step"]
        elapsed, n_done = time.perf_counter() - self.began, n - self.n_before
        left = (settings.steps - n) * elapsed / n_done
        if settings.minutes:
            left = min(left, max(0.0, 60 * settings.minutes - elapsed))
        self.total = n + round(left * n_done / elapsed)
        speed = f"{entry['target_tokens'] / entry['seconds']:.0f} tok/s"
        state = f"{self.loss_name} {entry['loss']:.3f}, lr {entry['learning_rate']:.1e}, {speed}"
        if hasattr(self, "container"):  # a notebook's bar, which would keep the total that it began with
            self.container.children[1].max = self.total
        self.set_postfix_str(state, refresh=False)
        self.update()
        if self.disable and time.perf_counter() - self.last_line > LINE_EVERY:
            self.line(f"step {n} of about {self.total}: {state}, {math.ceil(left / 60)} min left")

    def validation(self, entry: dict[str, Any]) -> None:
        """Log the loss, and print a line."""
        self.trainer.log("validation", entry)
        self.line(
            f"step {entry['step']}: validation loss {entry['loss']:.3f}, perplexity {entry['perplexity']:.2f} after "
            f"{entry['all_target_tokens'] / 1e6:.2f}M target tokens, {entry['train_seconds'] / 60:.1f} min"
        )

    def score(self, name: str, entry: dict[str, Any]) -> None:
        """Log the score, and print a line; a remark on it is printed once."""
        self.trainer.log(name.lower(), entry)
        signature = f"  ({entry['signature']})" if "signature" in entry else ""
        self.line(f"step {entry['step']}: validation {name} {entry[name.lower()]:.2f}{signature}")
        if entry.get("remark", self.remark) != self.remark:
            self.remark = entry["remark"]
            self.line(self.remark)

    def line(self, text: str) -> None:
        """Print a line above the progress bar."""
        if self.trainer.is_main:
            self.last_line = time.perf_counter()
            with self.external_write_mode(file=sys.stderr):
                print(text, file=sys.stderr, flush=True)
