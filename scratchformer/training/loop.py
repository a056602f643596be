"""The training loop (paper §5): train until there is a reason to stop."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from scratchformer.errors import UserError
from scratchformer.parallel.job import stop_signals
from scratchformer.text.batches import steps
from scratchformer.training.saving import require_loadable, save
from scratchformer.training.trainer import PendingStep, Trainer
from scratchformer.training.validation import score, validate

INTERRUPTED = "interrupted"
"""What `train` returns when the user stopped it."""


def train(trainer: Trainer) -> str:
    """Train until there is a reason to stop, save, and return the reason.

    A resumed run does at each step what an uninterrupted one does.
    """
    require_loadable(trainer)
    trainer.parallel.copy_model()
    settings, began = trainer.config.training, time.perf_counter()
    reason = reason_to_stop(trainer, Stop(), began)
    if reason:
        return reason
    pending: list[PendingStep] = []  # steps that have begun; a GPU computes them while the host goes on
    n_in_background = 1 if trainer.device.is_async else 0
    with threadpool_limits(trainer.blas_threads, "blas"), stop_on_signals() as stop, show_progress(trainer) as progress:
        for epoch, index, indices in steps(trainer.plan, trainer.progress.epoch, trainer.progress.index):
            try:
                pending.append(trainer.step(epoch, index, indices))
            except (UserError, MemoryError):
                progress.log_steps(pending)  # if an earlier step failed too, this raises the earlier error
                raise
            progress.log_steps(pending, keep=n_in_background)

            step = trainer.progress.step
            has_text = trainer.data.val is not None
            if has_text and step % settings.validate_every == 0:
                progress.log_steps(pending)
                progress.log_validation(validate(trainer))
            if has_text and trainer.goal and settings.score_every and step % settings.score_every == 0:
                progress.log_steps(pending)
                progress.log_score(trainer.goal.score_name, score(trainer))
            reason = reason_to_stop(trainer, stop, began)
            if step % settings.save_every == 0 or reason:
                progress.log_steps(pending)
                save(trainer)
            if reason:
                break
    return reason


# When to stop ---------------------------------------------------------------------------------------------------------


@dataclass
class Stop:
    """A signal handler for Ctrl-C, SIGTERM and SIGHUP: finish the step, save and leave. A second Ctrl-C leaves now."""

    requested: bool = False

    def __call__(self, signal_number: int, frame: Any) -> None:
        if self.requested and signal_number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Within the block, a signal that asks to stop sets `Stop.requested`. Then the old handlers are back."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def reason_to_stop(trainer: Trainer, stop: Stop, began: float) -> str:
    """Why to stop now; empty to go on. All ranks get the same answer: what one of them has noticed holds for all."""
    settings, progress = trainer.config.training, trainer.progress
    late = bool(settings.minutes) and time.perf_counter() - began >= 60 * settings.minutes
    votes = np.array([stop.requested, late], np.int64)
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


@contextmanager
def show_progress(trainer: Trainer) -> Iterator[ProgressLog]:
    """The log of a training, with a progress bar if there is a terminal. Only the main rank writes."""
    with tqdm(
        total=trainer.config.training.steps,
        initial=trainer.progress.step,
        unit="step",
        file=sys.stderr,
        disable=None if trainer.is_main else True,  # None: if there is no terminal
    ) as bar:
        yield ProgressLog(trainer, bar)


class ProgressLog:
    """Writes what happens to log.jsonl, to the progress bar and, for validations, to a line above it."""

    def __init__(self, trainer: Trainer, bar: tqdm) -> None:
        self.trainer, self.bar, self.remark = trainer, bar, ""

    def log_steps(self, pending: list[PendingStep], keep: int = 0) -> None:
        """Wait for the oldest pending steps, until `keep` are left, and log them."""
        while len(pending) > keep:
            entry = self.trainer.finish(pending.pop(0))
            self._log("step", entry)
            self.bar.update()
            speed = f"{entry['target_tokens'] / entry['seconds']:.0f} tok/s"
            state = f"loss {entry['loss']:.3f}, lr {entry['learning_rate']:.1e}, {speed}"
            self.bar.set_postfix_str(state, refresh=False)

    def log_validation(self, entry: dict[str, Any]) -> None:
        """Log the loss, and print a line."""
        self._log("validation", entry)
        self._print(
            f"step {entry['step']}: validation loss {entry['loss']:.3f}, perplexity {entry['perplexity']:.2f} after "
            f"{entry['all_target_tokens'] / 1e6:.2f}M target tokens, {entry['train_seconds'] / 60:.1f} min"
        )

    def log_score(self, name: str, entry: dict[str, Any]) -> None:
        """Log the score, and print a line; a remark on it is printed once."""
        self._log(name.lower(), entry)
        signature = f"  ({entry['signature']})" if "signature" in entry else ""
        self._print(f"step {entry['step']}: validation {name} {entry[name.lower()]:.2f}{signature}")
        if entry.get("remark", self.remark) != self.remark:
            self.remark = entry["remark"]
            self._print(self.remark)

    def _log(self, event: str, entry: dict[str, Any]) -> None:
        if self.trainer.is_main:
            self.trainer.run.log(event, entry)

    def _print(self, line: str) -> None:
        if self.trainer.is_main:
            with self.bar.external_write_mode(file=sys.stderr):  # above the progress bar
                print(line, file=sys.stderr, flush=True)
