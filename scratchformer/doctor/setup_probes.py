"""Probes of the configuration, the run and this machine for `scratchformer doctor`: the new model before its first
step, the learning rate, the log and the weights of a run, and whether memory and disk suffice."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from scratchformer.config import Config, ModelConfig
from scratchformer.doctor.findings import Finding, Verdict, verdict
from scratchformer.errors import UserError
from scratchformer.experiments.sizes import checkpoint_bytes
from scratchformer.limits import machine_memory_bytes
from scratchformer.nn.loss import batch_loss, batch_loss_backward, cross_entropy
from scratchformer.nn.model import Model
from scratchformer.nn.models import new_model
from scratchformer.nn.ops import PAD, Ops, using
from scratchformer.nn.optim import scheduled
from scratchformer.nn.parameter import Array
from scratchformer.nn.sizes import FLOAT_BYTES, parameter_counts
from scratchformer.tasks.digits import positions_of
from scratchformer.text.batches import Batch
from scratchformer.training.run import RunDirectory, load_model
from scratchformer.training.schedule import LIMITS, rates

GIB = 2**30


def training_bytes(config: ModelConfig) -> int:
    """Memory for weights, gradients and Adam's two moments."""
    return 4 * FLOAT_BYTES * sum(parameter_counts(config).values())


# The model before its first step --------------------------------------------------------------------------------------

SENTENCE_LENGTH = 16
MIN_POSITIONS = 128
MAX_MULTIPLICATIONS = 5e10
"""The pass takes as many positions as cost about this many multiplications: a second or two on one core."""


def probe_new_model(config: Config) -> Iterator[Finding]:
    """Judge the loss, the gradients and the hidden units of a new model in one pass on random inputs."""
    needed, limit = training_bytes(config.model), machine_memory_bytes()
    if limit is not None and needed > 0.8 * limit:
        expected = "loss, gradients and hidden units of the new model have sensible sizes"
        seen = f"not checked: the model needs {needed / GIB:.1f} GiB of {limit / GIB:.1f} GiB of memory"
        yield Finding("before the first step", expected, seen, "skipped")
        return
    with np.errstate(all="ignore"):  # in broken code; the result shows it
        model = new_model(config.model, config.training.seed)
        of_text = min(SENTENCE_LENGTH, config.data.max_length)
        length = of_text if config.model.reads_text else positions_of(config.model)
        affordable = int(min(config.training.tokens_per_batch, MAX_MULTIPLICATIONS / (6 * model.store.data.size)))
        random, n = np.random.default_rng(config.training.seed), max(1, max(MIN_POSITIONS, affordable) // length)
        inputs, targets = random_batch(config.model, n, length, random)
        yield first_loss(model, config.model, *(each[: MIN_POSITIONS // length] for each in (*inputs, targets)))
        recorder = ReluRecorder()
        with using(recorder):
            batch_loss_backward(model, inputs, targets)
        stacks = {name: getattr(model, name).layers for name in ("encoder", "decoder") if hasattr(model, name)}
        norms = {name: np.array([gradient_norm(layer) for layer in layers]) for name, layers in stacks.items()}
        ratio = float(np.max([np.max(each) / max(np.min(each), 1e-30) for each in norms.values()]))
    yield Finding(
        "gradient norm by layer",
        "before the first step, at most a factor of 30 between the layers of a stack. With post-norm it is about 4 for "
        "6 layers, 13 for 12, and hundreds for 24, which are known to be hard to train",
        "; ".join(f"{name} {' '.join(f'{norm / targets.size:.2g}' for norm in each)}" for name, each in norms.items()),
        verdict(ratio, 30, 1000),
        "vanishing: many layers with model.norm = post (use pre), or a broken residual connection; exploding: initial "
        "weights that are too large, or a missing normalization",
    )
    yield dead_units("hidden units before the first step", recorder)


def random_batch(
    config: ModelConfig, n: int, length: int, random: np.random.Generator
) -> tuple[tuple[Array, ...], Array]:
    """n examples of random words, all equally long, or of random pixels -> the model's inputs, and random targets"""
    targets = random.integers(1, config.n_outputs, (n, 1 if config.n_classes else length))
    if not config.reads_text:
        return (random.random((n, config.image_size, config.image_size), np.float32),), targets
    ids = random.integers(1, config.vocab_size, (n, length))
    if config.architecture == "encoder-decoder":
        return (ids, random.integers(1, config.n_outputs, (n, length))), targets
    return (ids, np.zeros_like(ids)) if config.architecture == "encoder" else (ids,), targets


def first_loss(model: Model, config: ModelConfig, *inputs_and_targets: Array) -> Finding:
    """Compare with the cost of guessing, over all words, and over all but the one that a position has just read.

    Positions where the answer is the word just read are left out.
    """
    probe, expected = "loss before the first step", math.log(config.n_outputs) + 0.5
    if config.n_classes:
        seen = f"left out: with {config.n_classes} classes it depends too much on the initial weights"
        return Finding(probe, "the cost of guessing", seen, "skipped")
    *inputs, targets = inputs_and_targets
    logits = model.forward(*inputs)[0].astype(np.float64)
    read = inputs[1] if config.architecture == "encoder-decoder" else inputs[0]
    others = (targets != read).reshape(-1)
    means = []
    for _ in range(2):
        means.append(float(cross_entropy(logits, np.where(targets != read, targets, PAD))[0] / others.sum()))
        np.put_along_axis(logits, read[..., None], -1e9, axis=-1)
    loss, without_input = means
    seen = f"{without_input:.2f}"
    if loss - without_input > 0.5:
        seen += f", or {loss:.2f} with the word just read as a possible answer: a tied model repeats what it reads"
    return Finding(
        probe,
        f"about ln V + 1/2 = {expected:.2f} nats per token for random words: guessing among V words costs ln V, and "
        "random logits of variance 1 add 1/2",
        seen,
        verdict(abs(without_input - expected), 0.5, 0.5),  # logits twice as large would add 3/2
        "logits of the wrong size, because of the initial output matrix or the last normalization; a loss that is not "
        "the mean over tokens",
    )


def gradient_norm(layer: Any) -> float:
    """The length of the gradient of all parameters of a layer, taken as one vector."""
    return math.sqrt(sum(float((parameter.grad**2).sum()) for parameter in layer.parameters().values()))


class ReluRecorder(Ops):
    """The NumPy operations. They record what fraction of each layer's hidden units is never active."""

    def __init__(self) -> None:
        super().__init__(np)
        self.dead: list[float] = []

    def relu(self, x: Array) -> Array:
        active = super().relu(x)
        self.dead.append(1 - float((active > 0).reshape(-1, active.shape[-1]).any(axis=0).mean()))
        return active


def dead_units(probe: str, recorder: ReluRecorder) -> Finding:
    """In correct models of up to 24 layers, at most 40 % of the units are inactive for a few hundred words."""
    expected = "a batch activates most of them at some position: a unit whose ReLU is never active learns nothing"
    if not recorder.dead:
        return Finding(probe, expected, "left out: the model has no ReLU", "skipped")
    dead = max(recorder.dead)
    return Finding(
        probe,
        expected,
        f"in the worst layer, {dead:.0%} are not active anywhere in a batch",
        verdict(dead, 0.5, 0.9),
        "a learning rate that was too high for some time; biases far below 0; a feed-forward network whose input is "
        "the same at all positions",
    )


# The learning rate ----------------------------------------------------------------------------------------------------


def probe_schedule(config: Config, n_steps: int) -> Iterator[Finding]:
    """n_steps: the length of the training."""
    training, (share, peak, total) = config.training, rates(config, n_steps)
    yield Finding(
        "warm-up",
        "a small part of training, at most half of it",
        f"{training.warmup:,} of {n_steps:,} steps ({share:.0%})",
        verdict(share, 0.5, LIMITS["warm-up"]),
        "training.steps was lowered but training.warmup was not, so the learning rate reaches its peak late or never",
    )
    yield Finding(
        "peak learning rate",
        "between 0.001 and 0.1 of the typical size of a weight, d_model^-0.5, because Adam moves each weight by up to "
        "the learning rate; the paper's base model has 7.0e-4, which is 0.016 of that size",
        f"{scheduled(config, training.warmup):.1e} at step {training.warmup}, which is {peak:.2g} of the typical size "
        "of a weight",
        verdict(peak, 0.1, LIMITS["peak learning rate"]) if peak >= 0.001 else "note",
        (
            "training.learning_rate is too large or too small"
            if training.schedule == "cosine"
            else "training.lr_factor is too large or too small, or the warm-up too short: the peak is lr_factor / "
            "sqrt(d_model warmup)"
        ),
    )
    yield Finding(
        "sum of learning rates",
        "in the whole training, each weight can move by many times its typical size (base model: about 540); below 10 "
        "the model learns little, below 1 nothing",
        f"{total:.3g} times the typical size of a weight",
        "note" if training.pretrained and total < 10 else verdict(1 / total, 1 / 10, 1),
        f"too few steps; training.{'learning_rate' if training.schedule == 'cosine' else 'lr_factor'} is too small; a "
        "warm-up longer than the training",
    )


# A run ----------------------------------------------------------------------------------------------------------------


def probe_run(run: RunDirectory, batch: Batch | None) -> Iterator[Finding]:
    """Look at the log and the weights of a run and, given a batch of its text, at the hidden units."""
    yield probe_log(run)
    probe, diverged = "weights", "a training that diverged"
    try:
        model = load_model(run.path).model
    except UserError as error:
        damaged = any(run.checkpoints.directory.glob("*.safetensors"))
        expected, causes = (
            "an undamaged checkpoint that fits the configuration",
            "a damaged file; settings of another run",
        )
        yield Finding(probe, expected, str(error), "FAIL" if damaged else "skipped", f"{causes}; {diverged}")
        return
    broken = [name for name, weight in model.parameters().items() if not np.isfinite(weight.data).all()]
    seen = f"not finite: {', '.join(broken)}" if broken else "all are finite"
    yield Finding(probe, "finite numbers", seen, "FAIL" if broken else "ok", diverged)
    if batch is not None and not broken:
        recorder = ReluRecorder()
        with using(recorder):
            batch_loss(model, batch.inputs, batch.targets)
        yield dead_units("hidden units after training", recorder)


MIN_STEPS = 20
WINDOW = 0.05
"""Losses are averaged over this fraction of the steps, because those of single batches vary by a nat or two."""


def probe_log(run: RunDirectory) -> Finding:
    probe, expected = "log of the run", "the loss falls and stays low; all numbers are finite"
    entries = [entry for entry in run.read_log("step") if entry["grad_norm"] is not None]  # fp16 skips some steps
    losses, norms = (np.array([entry[key] for entry in entries]) for key in ("loss", "grad_norm"))
    validations = [entry["loss"] for entry in run.read_log("validation")]
    if len(entries) < MIN_STEPS:
        return Finding(probe, expected, f"{len(entries)} steps are logged, which is too few to judge", "skipped")
    finite = np.isfinite(losses) & np.isfinite(norms)
    if not finite.all():
        seen = f"not finite at step {entries[int(finite.argmin())]['step']}"
        causes = "a learning rate that is too high; overflow of float32 in code that was changed"
        return Finding(probe, expected, seen, "FAIL", causes)
    return Finding(
        probe,
        expected,
        *judge_losses(losses, norms, validations),
        "spikes or divergence: a learning rate that is too high or a warm-up that is too short; a loss that never "
        "falls: a fault in the code; a rising validation loss: too much training for so little text (take the best "
        "checkpoint, or a larger P_drop)",
    )


def judge_losses(losses: np.ndarray, norms: np.ndarray, validations: list[float]) -> tuple[str, Verdict]:
    """Returns what was seen, and the verdict.

    In good runs of tiny and multi30k, no loss is 2 nats above those before, no gradient norm is 10 times the median,
    and the final mean loss is within 0.03 nats of the lowest. The limits leave a margin.
    """
    n = max(1, int(len(losses) * WINDOW))
    running = np.convolve(losses, np.ones(n) / n, "valid")
    seen = [f"loss {running[0]:.2f} at the start, {running[-1]:.2f} at the end ({len(losses)} steps)"]
    rise, spikes = running[-1] - running.min(), count_spikes(losses, 3.0)
    judged: Verdict = "ok"
    if running[-1] >= running[0] or rise > 1:
        judged = "FAIL"
        seen.append(f"it rose by {rise:.2f} nats from its minimum" if rise > 0 else "it did not fall")
    elif spikes or norms.max() > 100 * np.median(norms):
        judged = "note"
        largest, median = norms.max(), np.median(norms)
        seen.append(f"spikes of more than 3 nats: {spikes}; largest gradient norm {largest:.3g}, median {median:.3g}")
    if validations:
        seen.append(f"validation loss {min(validations):.2f} at best, {validations[-1]:.2f} at the end")
        if judged == "ok" and validations[-1] > min(validations) + 0.1:
            judged = "note"
    return "; ".join(seen), judged


def count_spikes(losses: np.ndarray, nats: float, window: int = 50) -> int:
    """Count the losses that are more than `nats` above the median of the `window` losses before them."""
    medians = [np.median(losses[max(0, step - window) : step]) for step in range(1, len(losses))]
    return int((losses[1:] - medians > nats).sum())


# The machine ----------------------------------------------------------------------------------------------------------


def probe_machine(config: Config, run: RunDirectory | None) -> Iterator[Finding]:
    """Look at the disk for the checkpoints, and at the memory for the weights."""
    training, path, limit = config.training, run.path if run else Path(), machine_memory_bytes()
    needed = checkpoint_bytes(config)
    used = sum(file.stat().st_size for file in path.glob("checkpoints/*")) if run else 0
    free = shutil.disk_usage(path).free
    yield Finding(
        "disk",
        f"space for {training.keep} checkpoints, the best, an average, and one that is being written",
        f"{needed / GIB:.2f} GiB needed, {used / GIB:.2f} used so far; {free / GIB:.1f} GiB free in {path.resolve()}",
        verdict((needed - used) / max(free, 1), 0.8, 1.0),
        "lower training.keep, or choose another --out",
    )
    needed = training_bytes(config.model)
    has = f"this machine has {limit / GIB:.1f} GiB" if limit else "this system does not report how much it has"
    yield Finding(
        "memory",
        "weights, gradients and moments take less than all memory; `train --dry-run` measures the rest, and the time",
        f"{needed / GIB:.2f} GiB needed; {has}",
        verdict(needed / limit, 0.8, 1.0) if limit else "skipped",
        "this size is meant for another machine: take a smaller preset",
    )
