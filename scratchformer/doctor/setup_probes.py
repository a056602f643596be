"""Probes of the configuration, the run and this machine for `scratchformer doctor`: the new model before its first
step, the learning rate, the log and the weights of a run, and whether memory, disk and time suffice."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import numpy as np

from scratchformer.config import Config, ModelConfig
from scratchformer.doctor.findings import Finding, Verdict, verdict
from scratchformer.errors import UserError
from scratchformer.experiments.sizes import checkpoint_bytes, format_duration, kept_bytes
from scratchformer.limits import machine_memory_bytes
from scratchformer.nn.loss import batch_loss, batch_loss_backward
from scratchformer.nn.models import new_model
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.optim import noam
from scratchformer.nn.parameter import Array
from scratchformer.nn.sizes import FLOAT_BYTES, parameter_counts
from scratchformer.tasks.digits import positions_of
from scratchformer.text.batches import Batch
from scratchformer.training.run import RunDirectory, load_model

GIB = 2**30


# The model before its first step --------------------------------------------------------------------------------------


class FirstPass(NamedTuple):
    """Measurements of one forward and backward pass of the new model.

    loss                  nats per target token, for random words; None for a classifier
    loss_without_input    the same if the token just read is excluded from the possible answers
    gradient_norms        "encoder" and "decoder" -> the gradient norm of each layer, from the bottom up
    dead                  the fraction of hidden units that no position activates, in the worst layer; None without ReLU
    seconds_per_position  for forward and backward, per position, or per pair of one source and one target position
    bytes_per_position    that forward keeps for backward, likewise
    """

    loss: float | None
    loss_without_input: float | None
    gradient_norms: dict[str, list[float]]
    dead: float | None
    seconds_per_position: float
    bytes_per_position: float


SENTENCE_LENGTH = 16
MIN_POSITIONS = 128
MAX_MULTIPLICATIONS = 5e10
"""The pass takes as many positions as cost about this many multiplications: a second or two on one core."""


@np.errstate(all="ignore")  # in broken code; the result shows it
def first_pass(config: Config) -> FirstPass:
    """Run a new model of this configuration forward and backward on random inputs: a second or two on one core."""
    model = new_model(config.model, config.training.seed)
    longest = config.model.max_positions if config.model.positions == "learned" else SENTENCE_LENGTH
    length = min(SENTENCE_LENGTH, longest) if config.model.reads_text else positions_of(config.model)
    n_positions = int(min(config.training.tokens_per_batch, MAX_MULTIPLICATIONS / (6 * model.store.data.size)))
    n = max(1, max(MIN_POSITIONS, n_positions) // length)
    inputs, targets = random_batch(config.model, n, length, np.random.default_rng(config.training.seed))

    loss = loss_without_input = None
    if not config.model.n_classes:
        few = slice(None, MIN_POSITIONS // length)  # the logits of all positions would take too much memory
        logits, _ = model.forward(*(each[few] for each in inputs))
        just_read = inputs[1] if config.model.architecture == "encoder-decoder" else inputs[0]
        loss, loss_without_input = losses(logits, just_read[few], targets[few])
    recorder = ReluRecorder()
    with using(recorder):
        start = time.perf_counter()
        batch_loss_backward(model, inputs, targets)
        seconds = time.perf_counter() - start
    model.store.grad /= targets.size
    length_kept = usual_length(config)
    inputs, _ = random_batch(config.model, 2, length_kept, np.random.default_rng(config.training.seed))
    kept = kept_bytes(model, inputs) / (2 * length_kept)
    stacks = {name: getattr(model, name).layers for name in ("encoder", "decoder") if hasattr(model, name)}
    norms = {name: [gradient_norm(layer) for layer in layers] for name, layers in stacks.items()}
    return FirstPass(loss, loss_without_input, norms, max(recorder.dead, default=None), seconds / (n * length), kept)


MEAN_LENGTH = 30
"""Of sentences, in tokens."""


def usual_length(config: Config) -> int:
    """Positions of a usual example: the windows of a language model are all full."""
    if not config.model.reads_text:
        return positions_of(config.model)
    longest = config.data.max_length
    return longest if config.data.task == "language-model" else min(longest, MEAN_LENGTH)


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


def losses(logits: Array, target_in: Array, target_out: Array) -> tuple[float, float]:
    """Mean cross-entropy of logits (B, T, V) in nats: over all words, and over all except the one just read. Positions
    where the answer is the word just read are left out."""
    means = []
    for _ in range(2):
        log_p = logits - logits.max(axis=-1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=-1, keepdims=True))
        of_target = np.take_along_axis(log_p, target_out[..., None], axis=-1)[..., 0]
        means.append(-float(of_target[target_out != target_in].mean()))
        np.put_along_axis(logits, target_in[..., None], -np.inf, axis=-1)
    return means[0], means[1]


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


def model_too_large(config: ModelConfig) -> Finding | None:
    """A Finding if there is too little memory for the weights, the gradients and what initializing them takes."""
    needed, limit = 4 * FLOAT_BYTES * sum(parameter_counts(config).values()), machine_memory_bytes()
    if limit is None or needed <= 0.8 * limit:
        return None
    return Finding(
        "before the first step",
        "loss, gradients and hidden units of the new model have sensible sizes",
        f"not checked: the model needs {needed / GIB:.1f} GiB of {limit / GIB:.1f} GiB of memory",
        "skipped",
    )


def probe_new_model(first: FirstPass, config: ModelConfig) -> Iterator[Finding]:
    """Judge the loss, the gradients and the hidden units before the first step. `first` is from `first_pass`."""
    yield first_loss(first, config)
    ratio = float(np.max([np.max(norms) / max(np.min(norms), 1e-30) for norms in first.gradient_norms.values()]))
    yield Finding(
        "gradient norm by layer",
        "before the first step, at most a factor of 30 between the layers of a stack. With post-norm it is about 4 for "
        "6 layers, 13 for 12, and hundreds for 24, which are known to be hard to train",
        "; ".join(
            f"{name} {' '.join(f'{norm:.2g}' for norm in norms)}" for name, norms in first.gradient_norms.items()
        ),
        verdict(ratio, 30, 1000),
        "vanishing: many layers with model.norm = post (use pre), or a broken residual connection; exploding: initial "
        "weights that are too large, or a missing normalization",
    )
    yield dead_units("hidden units before the first step", first.dead)


def first_loss(first: FirstPass, config: ModelConfig) -> Finding:
    probe, expected = "loss before the first step", math.log(config.n_outputs) + 0.5
    if first.loss is None or first.loss_without_input is None:
        seen = f"left out: with {config.n_classes} classes it depends too much on the initial weights"
        return Finding(probe, "the cost of guessing", seen, "skipped")
    seen = f"{first.loss_without_input:.2f}"
    if first.loss - first.loss_without_input > 0.5:
        seen += (
            f", or {first.loss:.2f} if the word just read counts as a possible answer: with tied embeddings and few "
            "layers, a new model repeats what it reads"
        )
    return Finding(
        probe,
        f"about ln V + 1/2 = {expected:.2f} nats per token for random words: guessing among V words costs ln V, and "
        "random logits of variance 1 add 1/2",
        seen,
        verdict(abs(first.loss_without_input - expected), 0.5, 0.5),  # logits twice as large would add 3/2
        "logits of the wrong size, because of the initial output matrix or the last normalization; a loss that is not "
        "the mean over tokens",
    )


def dead_units(probe: str, dead: float | None) -> Finding:
    """In correct models of up to 24 layers, at most 40 % of the units are inactive for a few hundred words."""
    expected = "a batch activates most of them at some position: a unit whose ReLU is never active learns nothing"
    if dead is None:
        return Finding(probe, expected, "left out: the model has no ReLU", "skipped")
    return Finding(
        probe,
        expected,
        f"in the worst layer, {dead:.0%} are not active anywhere in a batch",
        verdict(dead, 0.5, 0.9),
        "a learning rate that was too high for some time; biases far below 0; a feed-forward network whose input is "
        "the same at all positions",
    )


# The learning rate ----------------------------------------------------------------------------------------------------


def contradictions(config: Config, n_steps: int) -> str:
    """The probes of `probe_schedule` that fail, in one line; "" if none does."""
    failed = [finding for finding in probe_schedule(config, n_steps) if finding.verdict == "FAIL"]
    seen = "; ".join(f"{finding.probe}, {finding.seen}" for finding in failed)
    return f"`scratchformer doctor` would fail this configuration: {seen}" if seen else ""


def probe_schedule(config: Config, n_steps: int) -> Iterator[Finding]:
    """n_steps: the length of the training."""
    training, d_model = config.training, config.model.d_model
    peak = noam(training.warmup, d_model, training.warmup, training.lr_factor)
    fraction = training.warmup / n_steps
    yield Finding(
        "warm-up",
        "a small part of training, at most half of it",
        f"{training.warmup:,} of {n_steps:,} steps ({fraction:.0%})",
        verdict(fraction, 0.5, 1.0),
        "training.steps was lowered but training.warmup was not, so the learning rate reaches its peak late or never",
    )

    # Weights are of size d_model^-0.5 (embeddings; Glorot's are similar), and a step of Adam moves each by up to lr.
    relative = peak * math.sqrt(d_model)
    yield Finding(
        "peak learning rate",
        "between 0.001 and 0.1 of the typical size of a weight, d_model^-0.5, because Adam moves each weight by up to "
        "the learning rate; the paper's base model has 7.0e-4, which is 0.016 of that size",
        f"{peak:.1e} at step {training.warmup}, which is {relative:.2g} of the typical size of a weight",
        verdict(relative, 0.1, 0.3) if relative >= 0.001 else "note",
        "training.lr_factor is too large or too small, or the warm-up too short: the peak is lr_factor / sqrt(d_model "
        "warmup)",
    )

    # The sum of all learning rates, in units of d_model^-0.5: a triangle, then the integral of step^-0.5.
    rising = min(training.warmup, n_steps)
    total = training.lr_factor * (rising**2 / 2 * training.warmup**-1.5 + 2 * (math.sqrt(n_steps) - math.sqrt(rising)))
    yield Finding(
        "sum of learning rates",
        "in the whole training, each weight can move by many times its typical size (base model: about 540); below 10 "
        "the model learns little, below 1 nothing",
        f"{total:.3g} times the typical size of a weight",
        "note" if training.pretrained and total < 10 else verdict(1 / total, 1 / 10, 1),
        "too few steps; training.lr_factor is too small; a warm-up longer than the training",
    )


# A run ----------------------------------------------------------------------------------------------------------------


def probe_run(run: RunDirectory, batch: Batch | None) -> Iterator[Finding]:
    """Look at the log and the weights of a run and, given a batch of its text, at the hidden units."""
    yield probe_log(run)
    try:
        model = load_model(run.path).model
    except UserError as error:
        has_checkpoints = any(run.checkpoints.directory.glob("*.safetensors"))
        yield Finding(
            "weights",
            "an undamaged checkpoint that fits the configuration",
            str(error),
            "FAIL" if has_checkpoints else "skipped",
            "a damaged file; settings other than those of the run; a training that diverged",
        )
        return
    if not np.isfinite(model.store.data).all():
        broken = [name for name, weight in model.parameters().items() if not np.isfinite(weight.data).all()]
        seen = f"not finite: {', '.join(broken)}"
        yield Finding("weights", "finite numbers", seen, "FAIL", "a training that diverged")
        return
    yield Finding("weights", "finite numbers", "all are finite", "ok")
    if batch is not None:
        recorder = ReluRecorder()
        with using(recorder):
            batch_loss(model, batch.inputs, batch.targets)
        yield dead_units("hidden units after training", max(recorder.dead, default=None))


MIN_STEPS = 20
WINDOW = 0.05
"""Losses are averaged over this fraction of the steps, because those of single batches vary by a nat or two."""


def probe_log(run: RunDirectory) -> Finding:
    probe, expected = "log of the run", "the loss falls and stays low; all numbers are finite"
    try:
        entries = run.read_log("step") if run.log_file.exists() else []
        entries = [entry for entry in entries if entry.get("grad_norm", 0) is not None]  # fp16 skips some steps
        losses, norms = (np.array([float(entry[key]) for entry in entries]) for key in ("loss", "grad_norm"))
        validations = [float(entry["loss"]) for entry in run.read_log("validation")] if entries else []
    except (UserError, KeyError, TypeError, ValueError) as error:
        seen = f"{run.log_file}: an entry without a valid number ({error})"
        return Finding(probe, expected, seen, "FAIL", "a damaged file")
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


def probe_machine(config: Config, run: RunDirectory | None, first: FirstPass | None) -> Iterator[Finding]:
    """Look at the disk for the checkpoints, and the memory for a step."""
    path = run.path if run else Path()
    needed = checkpoint_bytes(config)
    used = sum(file.stat().st_size for file in path.glob("checkpoints/*")) if run else 0
    free = shutil.disk_usage(path).free
    yield Finding(
        "disk",
        f"space for {config.training.keep} checkpoints, the best, an average, and one that is being written",
        f"{needed / GIB:.2f} GiB needed, {used / GIB:.2f} used so far; {free / GIB:.1f} GiB free in {path.resolve()}",
        verdict((needed - used) / max(free, 1), 0.8, 1.0),
        "lower training.keep, or choose another --out",
    )
    yield probe_memory(config, first.bytes_per_position if first else 0.0)


def probe_memory(config: Config, bytes_per_position: float) -> Finding:
    probe, limit = "memory", machine_memory_bytes()
    needed = 4 * FLOAT_BYTES * sum(parameter_counts(config.model).values())
    needed += int(bytes_per_position * config.training.tokens_per_batch)
    expected = "weights, gradients, moments and the activations of a micro-batch fit into memory"
    if limit is None:
        seen = f"{needed / GIB:.2f} GiB needed; this system does not report how much it has"
        return Finding(probe, expected, seen, "skipped")
    return Finding(
        probe,
        expected,
        f"about {needed / GIB:.2f} GiB needed; this machine has {limit / GIB:.1f} GiB",
        verdict(needed / limit, 0.8, 1.0),
        "lower training.tokens_per_batch and raise training.accumulation by the same factor: each step then has the "
        "same size, but is computed in smaller pieces",
    )


def probe_duration(
    seconds_per_position: float, positions: float, n_steps: int, steps_per_epoch: float | None
) -> Finding:
    """positions: of a step, with padding; steps_per_epoch: None if there is no text."""
    seconds = seconds_per_position * positions
    epoch = f", an epoch {format_duration(seconds * steps_per_epoch)}" if steps_per_epoch else ""
    return Finding(
        "time on this machine",
        "at most a week, estimated from one batch",
        f"a step about {format_duration(seconds)}{epoch}, all {n_steps:,} steps {format_duration(seconds * n_steps)}",
        verdict(seconds * n_steps, 7 * 86400, math.inf),
        "this size is meant for GPUs; on a CPU, take a smaller preset or stop earlier (--minutes)",
    )
