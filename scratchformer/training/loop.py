"""The training loop (paper §5), from the first step to the last, and from any checkpoint on."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
import zlib
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from scratchformer import config as configs
from scratchformer.backends.cuda.device import Device, dtype_named, open_device
from scratchformer.config import Config
from scratchformer.decoding.translator import SENTENCES_AT_ONCE, Translator
from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace, noam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.agreement import code_checksum, require_agreement
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.launcher import stop_signals
from scratchformer.text.batches import Batch, BatchPlan, EncodedPairs, batches_in_order, steps
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.data import (
    TrainingData,
    encode_corpus,
    open_prepared,
    prepared_directory,
    read_corpus,
    train_tokenizer,
)
from scratchformer.training.run import RunDirectory
from scratchformer.training.team import Team, share_of_cores

INTERRUPTED = "interrupted"
"""The reason to stop that is not an end."""


def begin(run: RunDirectory, config: Config, ranks: Communicator = Communicator()) -> Trainer:
    """Make everything a new run needs; its directory is written once nothing can be wrong any more.

    ranks  the processes that train together; all of them call this
    Raises UserError for whatever is wrong with the configuration, the text or the directory.
    """
    leads, device = ranks.rank == 0, opened_by_all(ranks, config, "a new run")
    with run.reserved() if leads else nullcontext():
        directory = prepared_directory(config.data)
        if directory:
            tokenizer, data = open_prepared(directory, config)
        else:
            corpus = read_corpus(config.data)
            tokenizer = Tokenizer(ranks.share(train_tokenizer(corpus, config).serialized if leads else b""))
            data = encode_corpus(corpus, tokenizer, config)
        trainer = Trainer(run, config, data, tokenizer, device, ranks)
        if leads:
            tokenizer.save(run.tokenizer_file)
            run.write_config(config)
    return trainer


def resume(run: RunDirectory, config: Config, ranks: Communicator = Communicator()) -> tuple[Trainer, list[str]]:
    """Take a run up where its newest sound checkpoint left it -> trainer, complaints about damaged checkpoints.

    `config` may differ from the run's in the settings of `config.MAY_CHANGE`, and there may be more or fewer `ranks`.
    Raises UserError if it differs in others, or if the text is not the same any more.
    """
    leads, device = ranks.rank == 0, opened_by_all(ranks, config, "a run resumed")
    if leads:
        run.lock()
        configs.require_same(configs.load(run.config_file), config, run.config_file)
    tokenizer = Tokenizer(ranks.share(Tokenizer.load(run.tokenizer_file).serialized if leads else b""))
    directory = prepared_directory(config.data)
    if directory:
        own, data = open_prepared(directory, config)
        if not own.same_pieces(tokenizer):
            raise UserError(f"{directory}: its vocabulary is not the one this run began with")
    else:
        data = encode_corpus(read_corpus(config.data), tokenizer, config)
    trainer = Trainer(run, config, data, tokenizer, device, ranks)
    complaints = trainer.restore()
    if leads:
        run.write_config(config)
    return trainer, complaints


def opened_by_all(ranks: Communicator, config: Config, what: str) -> Device:
    """The device of this rank. Raises UserError if it cannot be had, or if not all ranks were started for the same."""
    device = open_device(config.training.device, config.training.precision, ranks.local_rank)
    settings = {key: value for key, value in configs.flat(config).items() if not key.startswith("data.")}
    require_agreement(
        ranks,
        settings
        | {
            "the job": what,
            "the code's checksum": code_checksum(),
            "NumPy's version": np.__version__,
            "the device": device.describe(),
        },
    )
    return device


class Trainer:
    """A model, its optimizer and their place in the batch plan: what one step changes and a checkpoint holds.

    Of the processes that train together (ranks) each has a trainer. All of these do the same, each with its share of
    the micro-batches and of the validation text. Rank 0 alone writes files, and speaks to the user.

    device  where it is done; None is the CPU, whatever the configuration says
    ranks   connects the processes; all call the same methods in the same order
    """

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        data: TrainingData,
        tokenizer: Tokenizer,
        device: Device | None = None,
        ranks: Communicator = Communicator(),
    ) -> None:
        self.run, self.config, self.data, self.tokenizer = run, config, data, tokenizer
        self.ranks, self.leads = ranks, ranks.rank == 0
        settings = config.training
        configs.require_work_for(config, ranks.size)
        self.plan = BatchPlan(
            data.train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness
        )
        self.device = device or Device()
        require_agreement(ranks, {"the training text's checksum": data.checksum})
        self.model = Transformer(config.model, settings.seed)
        self.device.take_over(self.model)
        cores = share_of_cores(ranks)
        threads = 1 if self.device.runs_ahead else settings.threads or cores
        self.between_devices = self.device.communicator(ranks)
        wire = dtype_named("bfloat16") if settings.wire and ranks.size > 1 else None
        members = min(threads, -(-settings.accumulation // ranks.size))  # results depend on their number
        self.team = Team(self.model, members, self.between_devices, wire)
        self.cores = min(threads, cores)
        self.optimizer = Adam(self.model, (settings.beta1, settings.beta2), settings.eps, self.team.map)
        self.progress = Progress(data_checksum=data.checksum)
        self.under_way = 0  # steps begun and not finished
        self.busy_since = 0.0

    def summary(self) -> str:
        """One line on what is about to be trained on what."""
        train = self.data.train
        dropped = train.n_dropped + (self.data.val.n_dropped if self.data.val else 0)
        together = f"{self.ranks.size} processes, " if self.ranks.size > 1 else ""
        return (
            f"{together}{self.model.store.data.size:,} parameters, {len(train):,} sentence pairs, "
            f"{train.target.ids.size:,} target tokens an epoch (left out: {dropped} pairs longer than "
            f"{train.max_length} tokens, {self.data.n_empty} with an empty side)"
        )

    # Stop and go on

    def checkpoint(self) -> Checkpoint:
        self.progress = replace(self.progress, device_state=self.device.state())
        return Checkpoint(on_host(self._weights()), on_host(self._moments()), self.progress, self.config)

    def _weights(self) -> dict[str, Array]:
        return self.model.store.named_views(self.model.store.data)

    def _moments(self) -> dict[str, Array]:
        views = self.model.store.named_views
        return {f"m.{name}": view for name, view in views(self.optimizer.m).items()} | {
            f"v.{name}": view for name, view in views(self.optimizer.v).items()
        }

    def save(self) -> Path:
        """Raises UserError if the weights are not finite, or not the same on all ranks: no good one is pushed out."""
        directory = self.run.checkpoints
        path = directory.of_step(self.progress.step)
        if not np.isfinite(self.model.store.data).all():
            raise UserError(f"step {self.progress.step}: the weights are not finite any more; {self._last_good()}")
        weights = ops_of(self.model.store.data).on_host(self.model.store.data)
        require_agreement(
            self.ranks, {f"the weights' checksum after step {self.progress.step}": zlib.crc32(weights.data)}
        )
        if self.leads:
            checkpoints.save(path, self.checkpoint())
            directory.keep_last(self.config.training.keep)
        return path

    def restore(self) -> list[str]:
        """Take up the newest sound checkpoint, or begin anew if there is none. -> complaints about damaged ones

        Rank 0 reads it and tells the others. Raises UserError if it was made with other settings or other data.
        """
        complaints = self._read_newest() if self.leads else []
        self.progress = Progress(**json.loads(self.ranks.share(json.dumps(asdict(self.progress)).encode())))
        for array in (self.model.store.data, self.optimizer.m, self.optimizer.v):
            self.between_devices.broadcast_(array)
        self.model.store.refresh()
        self.optimizer.t = self.progress.step
        self.device.restore(self.progress.device_state)
        if self.leads:
            self.run.remove_unfinished()
            self.run.checkpoints.set_aside_after(self.progress.step)
            self.run.drop_log_after(self.progress.step)
        return complaints

    def _read_newest(self) -> list[str]:
        path, found, complaints = self.run.checkpoints.newest_sound()
        if path is None or found is None:
            if complaints:
                raise UserError(f"no sound checkpoint to resume from: {'; '.join(complaints)}")
            if not self.run.log_file.exists() and self.run.checkpoints.best.exists():
                raise UserError(
                    f"{self.run.path}: imported weights, without the optimizer's state: "
                    "they translate, but training cannot go on from them"
                )
            if self.run.log_file.exists() and self.run.read_log("step"):
                print(f"{self.run.path}: there is no checkpoint, so it begins anew", file=sys.stderr)
        else:
            self._require_same_run(found, path)
            checkpoints.copy_into(found.weights, self._weights(), path)
            checkpoints.copy_into(found.moments, self._moments(), path)
            self.progress = found.progress
        return complaints

    def _require_same_run(self, found: Checkpoint, path: Path) -> None:
        configs.require_same(found.config, self.config, path)
        if found.progress.data_checksum != self.data.checksum:
            raise UserError(f"{path}: the training text is not the one this run began with")

    # Learn

    @np.errstate(over="ignore", invalid="ignore")  # told in one line, below
    def step(self, epoch: int, index: int, indices: np.ndarray) -> dict[str, Any]:
        """Begin an optimizer step on the pairs `indices`. -> what the log will say about it, for `finish`

        The gradient is that of the sum over all micro-batches, divided once by the number of their target tokens.
        Loss and gradient norm are asked for, not waited for: a GPU may be at it while the next step begins.
        Raises UserError if there is not enough memory.
        """
        settings, model, began = self.config.training, self.model, time.perf_counter()
        step = self.progress.step + 1
        batches = self.plan.micro_batches(indices)
        fits = False
        with suppress(MemoryError):
            loss_sum, n_tokens = self.team.loss_backward(batches, settings, step)
            fits = True
        if not fits:  # what was computed is freed by now
            raise UserError(self._too_large(step, batches))
        grad_norm = self.team.mean_inplace(n_tokens)
        if settings.clip_norm:
            clip_by_global_norm_inplace(model.store.grad, grad_norm, settings.clip_norm)
        learning_rate = noam(step, self.config.model.d_model, settings.warmup, settings.lr_factor)
        self.optimizer.step(learning_rate, grad_norm)
        self.device.adapt_loss_scale(grad_norm)
        model.zero_grad()

        if not self.under_way:
            self.busy_since = began
        self.under_way += 1
        self.progress = replace(
            self.progress, step=step, epoch=epoch, index=index + 1, target_tokens=self.progress.target_tokens + n_tokens
        )
        asked = partial(self.device.asked, check=self.between_devices.check)
        return {
            "step": step,
            "epoch": epoch,
            "index": index,
            "loss": asked(loss_sum / n_tokens),
            "learning_rate": learning_rate,
            "grad_norm": asked(grad_norm),
            "target_tokens": n_tokens,
            "source_tokens": sum(batch.n_source_tokens for batch in batches),
            "positions": sum(batch.n_positions for batch in batches),
            "all_target_tokens": self.progress.target_tokens,
        }

    def finish(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Wait for a step -> what the log says about it, its seconds included.

        Raises UserError if the loss or the gradient is not finite. A gradient that is not has changed no weights, and
        checkpoints are those of earlier steps. With fp16 a gradient may overflow now and then: the step is passed over.
        """
        loss, norm = entry["loss"](), entry["grad_norm"]()
        now = time.perf_counter()
        seconds, self.busy_since = now - self.busy_since, now
        self.under_way -= 1
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)
        overflow = math.isfinite(loss) and not math.isfinite(norm) and self.device.overflow_is_normal()
        if not overflow and not (math.isfinite(loss) and math.isfinite(norm)):
            raise UserError(self._not_finite(entry["step"], entry["epoch"], entry["index"], loss, norm))
        return entry | {"loss": loss, "grad_norm": None if overflow else norm, "seconds": seconds}

    def _not_finite(self, step: int, epoch: int, index: int, loss: float, norm: float) -> str:
        indices = self.plan.epoch(epoch)[index]
        lines = ", ".join(str(line) for line in sorted(self.data.train.line_numbers[indices])[:5])
        return (
            f"step {step}: the loss is {loss}, the gradient's norm {norm}; batch {index} of epoch {epoch}, lines "
            f"{lines}{', ...' if len(indices) > 5 else ''} of the training text; {self._last_good()}"
        )

    def _too_large(self, step: int, batches: Sequence[Batch]) -> str:
        """Say so, and how large a batch of these sentences would fit: half of them, a quarter, ... are tried."""
        settings, (source_ids, target_in_ids, target_out_ids, _) = self.config.training, max(batches, key=n_positions)
        (n, S), T = source_ids.shape, target_out_ids.shape[1]
        text = (
            f"step {step}: not enough memory for {n} pairs of {S} source and {T} target tokens "
            f"(training.tokens_per_batch={settings.tokens_per_batch})"
        )
        while n := n // 2:
            with suppress(MemoryError):
                self.model.loss_backward(
                    source_ids[:n],
                    target_in_ids[:n],
                    target_out_ids[:n],
                    settings.eps_ls,
                    DropoutKey(settings.seed, step),
                    settings.smoothing,
                )
                return f"{text}; {n * max(S, T)} would fit"
        return f"{text}; not one pair fits"

    def _last_good(self) -> str:
        saved = self.run.checkpoints.steps()
        return f"the last good checkpoint is {saved[-1]}" if saved else "there is no checkpoint yet"

    # Look

    def log(self, event: str, values: dict[str, Any]) -> None:
        if self.leads:
            self.run.log(event, values)

    def validate(self) -> dict[str, Any]:
        """Loss on the validation text, without smoothing and dropout; remembers the best and saves it."""
        assert self.data.val is not None
        with threadpool_limits(self.cores, "blas"):  # the team rests
            loss = validation_loss(self.model, self.data.val, self.config.training.tokens_per_batch, self.ranks)
        improved = loss < self.progress.best_loss
        self.progress = replace(
            self.progress,
            best_loss=min(loss, self.progress.best_loss),
            unimproved=0 if improved else self.progress.unimproved + 1,
        )
        if improved and self.leads:
            checkpoints.save(self.run.checkpoints.best, replace(self.checkpoint(), moments={}))
        return {
            "step": self.progress.step,
            "loss": loss,
            "perplexity": math.exp(min(loss, 700)),
            "all_target_tokens": self.progress.target_tokens,
            "train_seconds": self.progress.seconds,
        }

    def validation_bleu(self) -> dict[str, Any]:
        """sacreBLEU of greedy translations of the validation text; each rank translates its share."""
        assert self.data.val_text is not None
        source, target, size = self.data.val_text.source, self.data.val_text.target, self.ranks.size
        translator = Translator(
            self.model,
            self.tokenizer,
            self.config.decoding.extra_length,
            self.cores,
            SENTENCES_AT_ONCE * self.device.breadth,
        )
        share = translator.translate(source[self.ranks.rank :: size], beam=1)
        translations = [""] * len(source)
        for rank, message in enumerate(self.ranks.gather(json.dumps(share).encode())):
            translations[rank::size] = json.loads(message)
        scores = corpus_scores(translations, target)
        return {
            "step": self.progress.step,
            "bleu": scores.bleu,
            "signature": scores.bleu_signature,
            "all_target_tokens": self.progress.target_tokens,
            "train_seconds": self.progress.seconds,
        }


def n_positions(batch: Batch) -> int:
    return batch.n_positions


def on_host(arrays: dict[str, Array]) -> dict[str, np.ndarray]:
    return {name: ops_of(array).on_host(array) for name, array in arrays.items()}


def validation_loss(
    model: Transformer, pairs: EncodedPairs, tokens_per_batch: int, ranks: Communicator = Communicator()
) -> float:
    """Mean negative log likelihood per target token, in nats; exp of it is the perplexity of Table 3.

    The batches are dealt to the ranks, and their losses added in order: the number of ranks changes no bit.
    """
    batches = list(batches_in_order(pairs, tokens_per_batch))
    losses, n_tokens = np.zeros(len(batches)), np.zeros(len(batches))
    for index in range(ranks.rank, len(batches), ranks.size):
        source_ids, target_in_ids, target_out_ids, _ = batches[index]
        loss, n_tokens[index] = model.loss(source_ids, target_in_ids, target_out_ids)
        losses[index] = float(loss)
    ranks.all_reduce_(losses)
    ranks.all_reduce_(n_tokens)
    return sum(losses.tolist()) / sum(n_tokens.tolist())


@dataclass
class Stop:
    """Set by Ctrl-C, SIGTERM or SIGHUP: finish the step, save, leave. A second Ctrl-C waits for the threads only."""

    requested: bool = False

    def __call__(self, signal_number: int, frame: Any) -> None:
        if self.requested and signal_number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train(trainer: Trainer) -> str:
    """Train until there is a reason to stop, save, and return the reason.

    What happens at a step depends on its number only, never on where an earlier stop fell. Raises UserError, without
    saving, if the loss is not finite any more.
    """
    settings, began = trainer.config.training, time.perf_counter()
    reason = reason_to_stop(trainer, Stop(), began)
    average = trainer.run.checkpoints.average
    if not reason and trainer.leads and average.exists():
        print(f"{average}: removed, being of an older state", file=sys.stderr)
        average.unlink()
    bar = tqdm(
        total=settings.steps,
        initial=trainer.progress.step,
        unit="step",
        file=sys.stderr,
        disable=None if trainer.leads else True,
    )  # None: if there is no terminal
    blas_threads = max(1, trainer.cores // len(trainer.team.models))
    with threadpool_limits(blas_threads, "blas"), stop_on_signals() as stop, bar:
        under_way: list[dict[str, Any]] = []  # steps whose loss is not known yet

        def tell(line: str) -> None:
            if trainer.leads:
                with bar.external_write_mode(file=sys.stderr):  # above the progress bar
                    print(line, file=sys.stderr, flush=True)

        def report(all_but: int = 0) -> None:
            while len(under_way) > all_but:
                entry = trainer.finish(under_way.pop(0))
                trainer.log("step", entry)
                bar.update()
                bar.set_postfix_str(
                    f"loss {entry['loss']:.3f}, lr {entry['learning_rate']:.1e}, "
                    f"{entry['target_tokens'] / entry['seconds']:.0f} tok/s",
                    refresh=False,
                )

        for epoch, index, indices in steps(trainer.plan, trainer.progress.epoch, trainer.progress.index):
            if reason:
                break
            try:
                under_way.append(trainer.step(epoch, index, indices))
            except (UserError, MemoryError):
                report()  # the last step may have failed, too
                raise
            step = trainer.progress.step
            report(all_but=1 if trainer.device.runs_ahead else 0)  # a GPU is never left without work
            if trainer.data.val is not None and step % settings.validate_every == 0:
                report()
                seen = trainer.validate()
                trainer.log("validation", seen)
                tell(
                    f"step {step}: validation loss {seen['loss']:.3f}, perplexity {seen['perplexity']:.2f} after "
                    f"{seen['all_target_tokens'] / 1e6:.2f}M target tokens, {seen['train_seconds'] / 60:.1f} min"
                )
            if trainer.data.val is not None and settings.bleu_every and step % settings.bleu_every == 0:
                report()
                scored = trainer.validation_bleu()
                trainer.log("bleu", scored)
                tell(f"step {step}: validation BLEU {scored['bleu']:.1f}")
            reason = reason_to_stop(trainer, stop, began)
            if step % settings.save_every == 0 or reason:
                report()
                trainer.save()
    return reason


def reason_to_stop(trainer: Trainer, stop: Stop, began: float) -> str:
    """Empty while there is none. All ranks get the same answer: what one of them has noticed holds for all."""
    settings, progress = trainer.config.training, trainer.progress
    late = bool(settings.minutes) and time.perf_counter() - began >= 60 * settings.minutes
    votes = np.array([stop.requested, late], np.int64)
    trainer.ranks.all_reduce_(votes)
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
