"""Probes of a configuration, a run and this machine, for `scratchformer doctor`.

What the configuration's own model does before its first step, whether its learning rate suits it, what the log of a run
says, and whether memory, disk and patience suffice.
"""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import numpy as np

from scratchformer.config import Config, ModelConfig
from scratchformer.doctor.findings import Finding, Verdict, verdict
from scratchformer.doctor.specimens import watched
from scratchformer.errors import UserError
from scratchformer.experiments.sizes import (
    FLOAT_BYTES,
    checkpoint_bytes,
    format_duration,
    machine_memory_bytes,
    parameter_counts,
    training_bytes,
)
from scratchformer.nn.ops import Ops
from scratchformer.nn.optim import noam
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
from scratchformer.training.run import RunDirectory, load_run

GIB = 2**30


# The model before its first step --------------------------------------------------------------------------------------


class FirstLook(NamedTuple):
    """What one forward and backward of the new model shows.

    loss             nats per target token, for random words
    loss_of_others   the same, if the word that was just read is no possible answer
    gradient_norms   "encoder" and "decoder" -> the norm of each layer's gradient, from the bottom up
    dead             share of hidden units that no position activates, in the worst layer
    seconds_per_position  of forward and backward together, for one source and one target position
    """

    loss: float
    loss_of_others: float
    gradient_norms: dict[str, list[float]]
    dead: float
    seconds_per_position: float


SENTENCE = 16
FEWEST_POSITIONS = 128
OPERATIONS_AT_MOST = 5e10
"""The first look takes as many positions as cost about this many multiplications: a second or two on one core."""


@np.errstate(all="ignore")  # of broken code, the numbers tell
def first_look(config: Config) -> FirstLook:
    model, random = Transformer(config.model, config.training.seed), np.random.default_rng(config.training.seed)
    length = min(SENTENCE, config.model.max_positions) if config.model.positions == "learned" else SENTENCE
    affordable = int(min(config.training.tokens_per_batch, OPERATIONS_AT_MOST / (6 * model.store.data.size)))
    shape = max(FEWEST_POSITIONS, affordable) // length, length
    source, target_in, target_out = random.integers(1, config.model.vocab_size, (3, *shape))

    some = slice(None, FEWEST_POSITIONS // length)  # the logits of all would be too many
    logits, _ = model.forward(source[some], target_in[some])
    loss, loss_of_others = losses(logits, target_in[some], target_out[some])
    with watched(ActivityWatch()) as watch:
        began = time.perf_counter()
        model.loss_backward(source, target_in, target_out)
        seconds = time.perf_counter() - began
    model.store.grad /= target_out.size
    norms = {
        name: [norm_of_gradient(layer) for layer in stack.layers]
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
    }
    return FirstLook(loss, loss_of_others, norms, max(watch.dead), seconds / target_out.size)


def losses(logits: Array, read: Array, target: Array) -> tuple[float, float]:
    """Mean cross-entropy of logits (B, T, V) in nats: among all words, and among those other than the one just read."""
    means = []
    for _ in range(2):
        scores = logits - logits.max(axis=-1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        of_target = np.take_along_axis(scores, target[..., None], axis=-1)[..., 0]
        means.append(-float(of_target[target != read].mean()))
        np.put_along_axis(logits, read[..., None], -np.inf, axis=-1)
    return means[0], means[1]


def norm_of_gradient(layer: Any) -> float:
    return math.sqrt(sum(float((parameter.grad**2).sum()) for parameter in layer.parameters().values()))


class ActivityWatch(Ops):
    """The NumPy operations, which remember what share of each layer's hidden units was never active."""

    def __init__(self) -> None:
        super().__init__(np)
        self.dead: list[float] = []

    def relu(self, x: Array) -> Array:
        active = super().relu(x)
        self.dead.append(1 - float((active > 0).reshape(-1, active.shape[-1]).any(axis=0).mean()))
        return active


def fits(config: ModelConfig) -> Finding | None:
    """None if there is memory for weights, gradients and what initialising them takes; else says so."""
    needed, limit = 4 * FLOAT_BYTES * sum(parameter_counts(config).values()), machine_memory_bytes()
    if limit is None or needed <= 0.8 * limit:
        return None
    return Finding(
        "before the first step",
        "loss, gradients and hidden units of the new model are sensible",
        f"not examined: the model takes {needed / GIB:.1f} GiB, and there are {limit / GIB:.1f}",
        "skipped",
    )


def of_new_model(look: FirstLook, config: ModelConfig) -> Iterator[Finding]:
    expected = math.log(config.vocab_size) + 0.5
    off = abs(look.loss_of_others - expected)
    repeats = look.loss - look.loss_of_others
    yield Finding(
        "loss before the first step",
        f"about ln V + 1/2 = {expected:.2f} nats per token for random words: knowing nothing costs ln V, and logits of "
        "variance 1 another half",
        f"{look.loss_of_others:.2f}"
        + (
            f" and, counting the word just read as an answer, {look.loss:.2f}: with tied embeddings and few layers, a "
            "new model repeats what it reads"
            if repeats > 0.5
            else ""
        ),
        verdict(off, 0.5, 0.5),  # logits twice as large add 3/2
        "logits of the wrong size: the first weights of the output matrix, or the last normalisation; a loss that is "
        "not the mean over tokens",
    )

    ratio = float(np.max([np.max(norms) / max(np.min(norms), 1e-30) for norms in look.gradient_norms.values()]))
    yield Finding(
        "gradient norm by layer",
        "before the first step, the largest at most 30 times the smallest of the same stack: 6 layers post-norm have "
        "about 4, 12 have 13, and 24, which are known to be hard to train, hundreds",
        "; ".join(f"{name} {' '.join(f'{norm:.2g}' for norm in norms)}" for name, norms in look.gradient_norms.items()),
        verdict(ratio, 30, 1000),
        "vanishing: many layers with model.norm = post (pre is the remedy), a residual path that is cut; exploding: "
        "first weights that are too large, a normalisation that is missing",
    )
    yield dead_units("hidden units before the first step", look.dead)


def dead_units(probe: str, dead: float) -> Finding:
    """Of a few hundred words, a sound model of up to 24 layers leaves at most 4 units in 10 alone."""
    return Finding(
        probe,
        "some position of a batch activates most of them; a unit whose ReLU is never active learns nothing",
        f"in the worst layer, {dead:.0%} are not active anywhere in a batch",
        verdict(dead, 0.5, 0.9),
        "a learning rate that was too high for a while; biases far below 0; a feed-forward network that gets the same "
        "input everywhere",
    )


# The learning rate ----------------------------------------------------------------------------------------------------


def schedule(config: Config, n_steps: int) -> Iterator[Finding]:
    """`n_steps` until training ends."""
    training, d_model = config.training, config.model.d_model
    peak = noam(training.warmup, d_model, training.warmup, training.lr_factor)
    share = training.warmup / n_steps
    yield Finding(
        "warm-up",
        "a small part of training; at most half of it",
        f"{training.warmup:,} of {n_steps:,} steps ({share:.0%})",
        verdict(share, 0.5, 1.0),
        "training.steps was lowered without training.warmup: the learning rate does not reach its peak, or hardly",
    )

    # Weights have the size d_model^-0.5 (embeddings; Glorot's are similar), and a step of Adam moves each by up to lr.
    step_share = peak * math.sqrt(d_model)
    yield Finding(
        "peak learning rate",
        "Adam moves each weight by up to that much; in units of a weight's size, d_model^-0.5, between 0.001 and 0.1: "
        "the paper's base model has 7.0e-4, which is 0.016 of a weight",
        f"{peak:.1e} at step {training.warmup}, {step_share:.2g} of a weight",
        verdict(step_share, 0.1, 0.3) if step_share >= 0.001 else "note",
        "training.lr_factor; a warm-up that is too short, since the peak is lr_factor / sqrt(d_model warmup)",
    )

    # The sum of the learning rates, in units of d_model^-0.5: a triangle, then the integral of step^-0.5.
    rising = min(training.warmup, n_steps)
    way = training.lr_factor * (rising**2 / 2 * training.warmup**-1.5 + 2 * (math.sqrt(n_steps) - math.sqrt(rising)))
    yield Finding(
        "how far weights can go",
        "over the whole training, each weight can move by many times its size (base: about 540); below 10 it hardly "
        "learns, below 1 it cannot",
        f"{way:.3g} times its size",
        verdict(1 / way, 1 / 10, 1),
        "too few steps; training.lr_factor is too small; a warm-up longer than the training",
    )


# A run ----------------------------------------------------------------------------------------------------------------


def of_run(run: RunDirectory, batch: Batch | None) -> Iterator[Finding]:
    """Its log, its weights and, if there is a batch of its text, what they make of it."""
    yield log_of(run)
    try:
        model = load_run(run.path).model
    except UserError as error:
        begun = any(run.checkpoints.directory.glob("*.safetensors"))
        yield Finding(
            "weights",
            "a sound checkpoint that fits the configuration",
            str(error),
            "FAIL" if begun else "skipped",
            "a damaged file; settings that are not those of the run",
        )
        return
    finite = bool(np.isfinite(model.store.data).all())
    yield Finding(
        "weights",
        "finite numbers",
        "so they are" if finite else "NaN or infinity among them",
        "ok" if finite else "FAIL",
        "training diverged: go back to an earlier checkpoint, and lower the " "learning rate or set training.clip_norm",
    )
    if finite and batch is not None:
        with watched(ActivityWatch()) as watch:
            model.loss(batch.source_ids, batch.target_in_ids, batch.target_out_ids)
        yield dead_units("hidden units after training", max(watch.dead))


FEWEST_STEPS = 20
WINDOW = 0.05
"""Losses are compared as means over this share of the steps: single batches differ by a nat or two."""


def log_of(run: RunDirectory) -> Finding:
    probe, expected = "log of the run", "the loss falls, and stays down; no number is infinite or NaN"
    try:
        entries = run.read_log("step") if run.log_file.exists() else []
        entries = [entry for entry in entries if entry.get("grad_norm", 0) is not None]  # fp16 passes over some steps
        losses, norms = (np.array([float(entry[key]) for entry in entries]) for key in ("loss", "grad_norm"))
        validations = [float(entry["loss"]) for entry in run.read_log("validation")] if entries else []
    except UserError as error:
        return Finding(probe, expected, str(error), "FAIL", "a damaged file")
    except (KeyError, TypeError, ValueError) as error:
        return Finding(
            probe, expected, f"{run.log_file}: an entry without a sound number ({error})", "FAIL", "a damaged file"
        )
    if len(entries) < FEWEST_STEPS:
        return Finding(probe, expected, f"{len(entries)} steps are logged, too few to judge", "skipped")
    finite = np.isfinite(losses) & np.isfinite(norms)
    if not finite.all():
        return Finding(
            probe,
            expected,
            f"not finite at step {entries[int(finite.argmin())]['step']}",
            "FAIL",
            "a learning rate that is too high; overflow of float32 in a part that was changed",
        )
    judged, seen = course(losses, norms, validations)
    return Finding(
        probe,
        expected,
        seen,
        judged,
        "a learning rate that is too high or a warm-up that is too short (spikes, divergence); a fault in "
        "the code (it never falls); too much training for so little text (validation rises: take the best "
        "checkpoint, or a larger P_drop)",
    )


def course(losses: np.ndarray, norms: np.ndarray, validations: list[float]) -> tuple[Verdict, str]:
    """How training went -> verdict, what was seen.

    Healthy runs of tiny and multi30k have no step 2 nats above those before, no gradient 10 times the median, and end
    within 0.03 nats of their lowest mean loss; the limits are well above that.
    """
    n = max(1, int(len(losses) * WINDOW))
    running = np.convolve(losses, np.ones(n) / n, "valid")
    seen = [f"loss {running[0]:.2f} at first, {running[-1]:.2f} at last ({len(losses)} steps)"]
    rise, spikes = running[-1] - running.min(), steps_above(losses, 3.0)
    judged: Verdict = "ok"
    if running[-1] >= running[0] or rise > 1:
        judged = "FAIL"
        seen.append(f"it rose by {rise:.2f} nats from its lowest" if rise > 0 else "it did not fall")
    elif spikes or norms.max() > 100 * np.median(norms):
        judged = "note"
        seen.append(
            f"{spikes} steps 3 nats above those before; largest gradient {norms.max():.3g}, "
            f"median {np.median(norms):.3g}"
        )
    if validations:
        seen.append(f"validation {min(validations):.2f} at best, {validations[-1]:.2f} at last")
        if judged == "ok" and validations[-1] > min(validations) + 0.1:
            judged = "note"
    return judged, "; ".join(seen)


def steps_above(losses: np.ndarray, nats: float, window: int = 50) -> int:
    """How many losses exceed the median of the `window` before them by so much."""
    medians = [np.median(losses[max(0, step - window) : step]) for step in range(1, len(losses))]
    return int((losses[1:] - medians > nats).sum())


# The machine ----------------------------------------------------------------------------------------------------------


def of_machine(config: Config, run: RunDirectory | None) -> Iterator[Finding]:
    path = run.path if run else Path()
    needed = checkpoint_bytes(config)
    there = sum(file.stat().st_size for file in path.glob("checkpoints/*")) if run else 0
    used = f", {there / GIB:.2f} used so far" if there else ""
    free = shutil.disk_usage(path).free
    yield Finding(
        "disk",
        f"room for {config.training.keep} checkpoints, the best, an average, and one that is being written",
        f"{needed / GIB:.2f} GiB needed{used}; {free / GIB:.1f} GiB free in {path.resolve()}",
        verdict((needed - there) / max(free, 1), 0.8, 1.0),
        "lower training.keep, or another --out",
    )
    yield memory(config)


def memory(config: Config) -> Finding:
    probe, needed, limit = "memory", sum(training_bytes(config).values()), machine_memory_bytes()
    expected = "weights, gradients, moments and the activations of a micro-batch fit into memory"
    if limit is None:
        return Finding(
            probe, expected, f"{needed / GIB:.2f} GiB needed; this system does not tell how much there is", "skipped"
        )
    return Finding(
        probe,
        expected,
        f"{needed / GIB:.2f} GiB needed, estimated; this machine has {limit / GIB:.1f} GiB",
        verdict(needed / limit, 0.8, 1.0),
        "lower training.tokens_per_batch and raise training.accumulation: the same steps, in smaller parts",
    )


def duration(look: FirstLook, target_positions: float, n_steps: int, steps_per_epoch: float | None) -> Finding:
    """target_positions: of a step, padding included; steps_per_epoch: None if there is no text."""
    seconds = look.seconds_per_position * target_positions
    epoch = f", an epoch {format_duration(seconds * steps_per_epoch)}" if steps_per_epoch else ""
    return Finding(
        "time on this machine",
        "at most a week, estimated from one batch",
        f"a step about {format_duration(seconds)}{epoch}, all {n_steps:,} steps {format_duration(seconds * n_steps)}",
        verdict(seconds * n_steps, 7 * 86400, math.inf),
        "this size is meant for GPUs; on a CPU take a smaller preset, or stop earlier (--minutes)",
    )
