"""What will a run cost? Parameters, FLOPs, memory, disk and hours, before it begins.

Most of that is arithmetic. How long a step takes is not: so training steps of this very model are taken on this device,
with random words, and

    seconds of a step = once + micro-batches (each + per_pair pairs)

is fitted to them, with no part below 0: `once` for Adam, the gradient's norm and what else a step does once; `each` for
what a micro-batch costs however small it is; `per_pair` for its sentence pairs. Steps of three kinds determine the
three: with one small micro-batch, with one that is larger, and with two small ones. Where a real step takes longer than
the time allowed for measuring, it is extrapolated from smaller ones.
"""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Callable, cast

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.cuda.device import Accelerator, Device, open_device
from scratchformer.backends.cuda.fused_ops import FusedOps
from scratchformer.config import BASE, Config
from scratchformer.errors import UserError
from scratchformer.experiments import sizes
from scratchformer.experiments.flops import training_flops
from scratchformer.experiments.paper import (
    ASSUMED_LENGTH,
    GPUS,
    PAPER_TRAINING,
    TOKENS_PER_STEP,
    PaperTraining,
    paper_model,
)
from scratchformer.text.batches import BatchPlan, EncodedPairs, Sequences
from scratchformer.text.tokenizer import EOS, N_SPECIALS, Tokenizer
from scratchformer.training.data import (
    TrainingData,
    encode_corpus,
    open_prepared,
    prepared_directory,
    read_corpus,
    train_tokenizer,
)
from scratchformer.training.loop import Trainer
from scratchformer.training.run import RunDirectory
from scratchformer.training.team import available_cores

GIB = 2**30
NOT_COUNTED = "Not counted: validation, translating for BLEU, writing checkpoints, and an early stop."

# How much text a step has ---------------------------------------------------------------------------------------------

ASSUMED_PADDING = 0.1
"""Of all positions: what the batches of a plan have if sentences of that mean length scatter as in text."""

ASSUMED_FILL = TOKENS_PER_STEP / (BASE.training.tokens_per_batch * BASE.training.accumulation)
"""Real tokens of a step for each position that a side may have at most: for the paper's presets, its 25,000 tokens."""

COUNTED_STEPS = 200


@dataclass(frozen=True)
class Load:
    """The mean step of a run.

    pairs                         of sentences
    source_length, target_length  of a sentence in tokens, EOS counted
    padding_share                 of the positions of both sides
    steps_per_epoch               None if that is unknown
    ..._basis                     how these are known
    """

    pairs: float
    source_length: float
    target_length: float
    padding_share: float
    steps_per_epoch: float | None
    tokens_basis: str
    length_basis: str
    padding_basis: str

    @property
    def source_tokens(self) -> float:
        return self.pairs * self.source_length

    @property
    def target_tokens(self) -> float:
        return self.pairs * self.target_length

    @property
    def padded_pairs(self) -> float:
        """How many pairs of the mean length, without padding, take as many positions."""
        return self.pairs / (1 - self.padding_share)


def assumed_load(config: Config) -> Load:
    """25,000 tokens a side for the paper's models (§5.1), for others in proportion to what a step may have at most."""
    settings = config.training
    length = min(ASSUMED_LENGTH, config.data.max_length, settings.tokens_per_batch)
    pairs = settings.tokens_per_batch * settings.accumulation * ASSUMED_FILL / length
    return Load(
        pairs,
        length,
        length,
        ASSUMED_PADDING,
        None,
        f"assumed: {ASSUMED_FILL:.0%} of training.tokens_per_batch x accumulation, as in base",
        "assumed",
        "assumed",
    )


def counted_load(config: Config) -> Load:
    """What `train` would make of the text: prepared, or else read and tokenized, and cut into steps as there. All steps
    of an epoch are counted, the padding that of the first of them."""
    train, settings = training_pairs(config), config.training
    plan = BatchPlan(train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness)
    steps = plan.epoch(0)
    batches = list(chain.from_iterable(map(plan.micro_batches, steps[:COUNTED_STEPS])))
    real = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    padding = 1 - real / sum(batch.n_positions for batch in batches)
    return Load(
        len(train) / len(steps),
        float(train.source.lengths.mean()),
        float(train.target.lengths.mean()),
        padding,
        len(steps),
        "counted",
        "counted",
        f"counted in {min(len(steps), COUNTED_STEPS)} steps",
    )


def training_pairs(config: Config) -> EncodedPairs:
    directory = prepared_directory(config.data)
    if directory:
        return open_prepared(directory, config)[1].train
    corpus = read_corpus(config.data)
    return encode_corpus(corpus, train_tokenizer(corpus, config), config).train


# How long a step takes ------------------------------------------------------------------------------------------------

ROUNDS = 3, 30  # at least, at most
FIRST_SIZE = 4  # pairs of a micro-batch: less would say little about the paper's
MUST_FIT = 8  # steps of one size, before steps of twice that size are tried

Step = Callable[[int, int], None]
"""step(n, pairs) takes a training step of n micro-batches for each thread, each of so many sentence pairs."""


@dataclass(frozen=True)
class StepTime:
    """In seconds: once + n (each + per_pair pairs), for n micro-batches, one after another, of so many pairs.

    small, large  the micro-batches that were measured, in pairs
    rounds        how often; what counts is the minimum: what lies above it is, mostly, somebody else's work
    """

    once: float
    each: float
    per_pair: float
    small: int
    large: int
    rounds: int

    def seconds(self, n: int, pairs: float) -> float:
        return self.once + n * (self.each + self.per_pair * pairs)


def measure(step: Step, largest: int, seconds: float, clock: Callable[[], float] = time.perf_counter) -> StepTime:
    """Take steps of three kinds in turn for so many seconds (three of each kind at least).

    largest  micro-batch that there is in a real step, in pairs: nothing larger is measured
    """
    began = clock()

    def timed(n: int, pairs: int) -> float:
        at = clock()
        step(n, pairs)
        return clock() - at

    largest = max(2, largest)  # a line needs two sizes
    timed(1, 1)  # memory is asked for, caches warm up
    large = min(FIRST_SIZE, largest)
    while large < largest and timed(1, large) * MUST_FIT <= seconds:
        large = min(2 * large, largest)
    small = max(1, large // 4)
    rounds: list[tuple[float, float, float]] = []
    while len(rounds) < ROUNDS[0] or clock() - began < seconds and len(rounds) < ROUNDS[1]:
        rounds.append((timed(1, small), timed(1, large), timed(2, small)))
    return fitted(small, large, rounds)


def fitted(small: int, large: int, rounds: list[tuple[float, float, float]]) -> StepTime:
    """From the seconds of steps with one small micro-batch, with a large one, with two small ones."""
    counts = np.array([[1, 1, small], [1, 1, large], [1, 2, 2 * small]])  # of once, each, per_pair
    once, each, per_pair = least_squares_above_zero(counts, np.min(rounds, axis=0)).tolist()
    return StepTime(once, each, per_pair, small, large, len(rounds))


def least_squares_above_zero(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x >= 0 for which |A x - b| is least; A (m, n), b (m,) -> x (n,)

    Some entries of x are 0, and the others are an ordinary least-squares solution: few enough here to try all choices.
    """
    n, found = A.shape[1], []
    for free in chain.from_iterable(combinations(range(n), size) for size in range(n + 1)):
        x = np.zeros(n)
        x[list(free)] = np.linalg.lstsq(A[:, free], b, rcond=None)[0]
        if x.min() >= 0:
            found.append(x)
    return min(found, key=lambda x: float(np.linalg.norm(A @ x - b)))


def training_step(config: Config, device: Device, load: Load) -> tuple[Step, Trainer]:
    """What takes steps as `train` does, on pairs of random words of the mean lengths; and the trainer that does."""
    S, T = (max(1, round(length)) for length in (load.source_length, load.target_length))
    settings = config.training

    def random_pairs(n: int) -> EncodedPairs:
        return EncodedPairs(random_words(n, S, config), random_words(n, T, config), np.arange(n), max(S, T), 0)

    nobody = cast(Tokenizer, None)  # no text is read, none is written
    trainer = Trainer(
        RunDirectory(Path("nowhere")), config, TrainingData(random_pairs(1), None, None, 0), nobody, device
    )

    def step(n: int, pairs: int) -> None:
        n *= len(trainer.team.models)
        trainer.plan = BatchPlan(random_pairs(n * pairs), pairs * max(S, T), n, settings.seed)
        trainer.finish(trainer.step(0, 0, np.arange(n * pairs)))

    return step, trainer


def random_words(n: int, length: int, config: Config) -> Sequences:
    ids = np.random.default_rng(config.training.seed).integers(N_SPECIALS, config.model.vocab_size, (n, length))
    ids[:, -1] = EOS
    return Sequences(ids.astype(np.int32).reshape(-1), np.arange(n + 1) * length)


# The plan -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is known before the first step.

    parameters    by part of the model
    load          the mean step
    steps         at most
    micro_batches of a step, and how many of them one thread computes, one after another (`turns`)
    flops         of a step's matrix products, for real tokens, forward and backward
    memory        in bytes, by what it is for, of all processes that share it; `memory_there`: None if unknown
    checkpoints   in bytes, on disk
    timed         None if the model does not fit into memory
    paper         what the paper says about a model of these sizes, if it does
    """

    name: str
    device: str
    processes: int
    threads: int
    parameters: dict[str, int]
    load: Load
    steps: int
    micro_batches: int
    turns: int
    flops: float
    memory: dict[str, int]
    memory_there: int | None
    checkpoints: int
    disk_free: int
    timed: StepTime | None
    paper: PaperTraining | None

    @property
    def fits(self) -> bool:
        return self.memory_there is None or sum(self.memory.values()) <= self.memory_there

    @property
    def pairs_at_once(self) -> float:
        """Of a micro-batch, padding counted: however many processes share the step."""
        return self.load.padded_pairs / self.micro_batches

    @property
    def step_seconds(self) -> float | None:
        return None if self.timed is None else self.timed.seconds(self.turns, self.pairs_at_once)

    @property
    def hours(self) -> float | None:
        return None if self.step_seconds is None else self.step_seconds * self.steps / 3600


def make(name: str, config: Config, has_text: bool, processes: int = 1, seconds: float = 20.0) -> Plan:
    """Plan a run: count, and take training steps for about so many seconds, unless the model does not fit into memory.

    has_text   whether the configuration names text to count
    processes  that would share a step; one is measured, with its share of the micro-batches and of the cores

    Raises UserError for seconds that are none, and if the device or the text cannot be had.
    """
    if not 0 < seconds < math.inf:
        raise UserError(f"--seconds {seconds:g} must be above 0, and finite")
    settings = config.training
    device = open_device(settings.device, settings.precision)
    threads = 1 if device.runs_ahead else settings.threads or max(1, available_cores() // processes)
    share = -(-settings.accumulation // processes)
    own = configs.with_settings(config, {"training.accumulation": share, "training.threads": threads})
    members, load = min(threads, share), counted_load(config) if has_text else assumed_load(config)
    plan = Plan(
        name,
        device.describe(),
        processes,
        threads,
        sizes.parameter_counts(config.model),
        load,
        planned_steps(config, load),
        settings.accumulation,
        -(-share // members),
        training_flops(config.model, load.pairs, load.source_length, load.target_length),
        memory_needed(own, device, load, members, processes),
        memory_there(device),
        sizes.checkpoint_bytes(config),
        shutil.disk_usage(".").free,
        None,
        PAPER_TRAINING.get(paper_model(config) or ""),
    )
    return replace(plan, timed=measured(own, device, plan, seconds)) if plan.fits else plan


def planned_steps(config: Config, load: Load) -> int:
    settings = config.training
    enough = math.ceil(settings.max_tokens / load.target_tokens) if settings.max_tokens else settings.steps
    return min(settings.steps, enough)


def memory_needed(own: Config, device: Device, load: Load, members: int, processes: int) -> dict[str, int]:
    """own: the configuration of one process;  members: threads with a gradient and a micro-batch of their own"""
    length = math.ceil(max(load.source_length, load.target_length))
    if isinstance(device, Accelerator):  # each process has one to itself
        return sizes.accelerator_bytes(own, device.precision, FusedOps.logits_at_once, length)
    needed = sizes.training_bytes(own, length)
    further = needed["activations of a micro-batch"] + sizes.FLOAT_BYTES * sum(
        sizes.parameter_counts(own.model).values()
    )
    if members > 1:
        needed["gradients and activations of further threads"] = (members - 1) * further
    return {part: processes * size for part, size in needed.items()}


def memory_there(device: Device) -> int | None:
    """The device's own, though none of it be free; that of the machine if it has none of its own."""
    of_device = device.memory_bytes()
    return sizes.machine_memory_bytes() if of_device is None else of_device


def measured(own: Config, device: Device, plan: Plan, seconds: float) -> StepTime:
    """own: the configuration of one process"""
    step, trainer = training_step(own, device, plan.load)
    with threadpool_limits(max(1, trainer.cores // len(trainer.team.models)), "blas"):  # as `loop.train`
        return measure(step, math.ceil(plan.pairs_at_once), seconds)


# In words -------------------------------------------------------------------------------------------------------------


def as_text(plan: Plan) -> str:
    """A table: what, how much, and how that is known."""
    rows = [*rows_of_model(plan), *rows_of_step(plan), *rows_of_memory(plan), *rows_of_time(plan)]
    of_names, of_values = (max(len(row[column]) for row in rows) for column in (0, 1))
    together = f"{plan.processes} processes, each with " if plan.processes > 1 else ""
    title = f"{plan.name} on {together}{plan.device}, {plan.threads} thread{'s' if plan.threads > 1 else ''}"
    return "\n".join(
        [
            title,
            "",
            *(f"{name:{of_names}}  {value:>{of_values}}  {basis}".rstrip() for name, value, basis in rows),
            "",
            NOT_COUNTED,
        ]
    )


Row = tuple[str, str, str]


def rows_of_model(plan: Plan) -> list[Row]:
    total = sum(plan.parameters.values())
    return [
        ("parameters", f"{total:,}", "arithmetic"),
        *((f"  {part}", f"{count:,}", f"{count / total:7.1%}") for part, count in plan.parameters.items() if count),
    ]


def rows_of_step(plan: Plan) -> list[Row]:
    load = plan.load
    rows = [
        ("source tokens of a step", f"{load.source_tokens:,.0f}", load.tokens_basis),
        ("target tokens of a step", f"{load.target_tokens:,.0f}", load.tokens_basis),
        ("  mean lengths of sentences", f"{load.source_length:.1f}, {load.target_length:.1f}", load.length_basis),
        ("  padding", f"{load.padding_share:.0%}", load.padding_basis),
        ("steps", f"{plan.steps:,}", "as configured, at most"),
    ]
    if load.steps_per_epoch:
        rows.append(("  epochs", f"{plan.steps / load.steps_per_epoch:,.1f}", load.tokens_basis))
    return [
        *rows,
        ("FLOPs of a step", f"{plan.flops:.2e}", "arithmetic: matrix products, real tokens"),
        ("FLOPs of the run", f"{plan.flops * plan.steps:.2e}", "arithmetic"),
    ]


def rows_of_memory(plan: Plan) -> list[Row]:
    there = "unknown" if plan.memory_there is None else f"{plan.memory_there / GIB:,.2f} GiB"
    return [
        ("memory needed", f"{sum(plan.memory.values()) / GIB:,.2f} GiB", "arithmetic, an estimate"),
        *((f"  {part}", f"{size / GIB:,.2f} GiB", "") for part, size in plan.memory.items()),
        ("memory there is", there, "" if plan.fits else "NOT ENOUGH"),
        ("disk for checkpoints", f"{plan.checkpoints / GIB:,.2f} GiB", "arithmetic"),
        (
            "disk that is free here",
            f"{plan.disk_free / GIB:,.2f} GiB",
            "" if plan.checkpoints <= plan.disk_free else "NOT ENOUGH",
        ),
    ]


def rows_of_time(plan: Plan) -> list[Row]:
    rows = []
    if plan.timed is None or plan.step_seconds is None or plan.hours is None:
        rows.append(
            (
                "time of a step",
                "unknown",
                "not measured: there is not enough memory; lower "
                "training.tokens_per_batch and raise training.accumulation, or take a smaller model",
            )
        )
    else:
        timed, pairs = plan.timed, plan.pairs_at_once
        how = f"extrapolated from measured micro-batches of {timed.small} and {timed.large} pairs to {pairs:.1f}"
        if plan.processes > 1:
            how += f"; one process, not measured with {plan.processes}: what they tell each other is left out"
        rows += [
            ("time of a step", f"{plan.step_seconds:,.3g} s", how),
            ("  once a step", f"{timed.once:,.3g} s", f"measured, minimum of {timed.rounds}"),
            ("  for each micro-batch", f"{timed.each:,.3g} s", f"measured; a thread has {plan.turns}"),
            ("  for each pair in it", f"{1000 * timed.per_pair:,.3g} ms", "measured"),
            (
                "time of the run",
                f"{plan.hours:,.2f} hours",
                f"{sizes.format_duration(3600 * plan.hours)}, if it takes all steps",
            ),
        ]
    if plan.paper:
        rows += [
            ("time of a step, in the paper", f"{plan.paper.step_seconds:g} s", f"{GPUS} P100 (paper §5.2)"),
            ("time of the run, in the paper", f"{plan.paper.hours:,.2f} hours", f"{plan.paper.steps:,} steps"),
        ]
    return rows


def as_record(plan: Plan) -> dict[str, Any]:
    """All numbers, for JSON; seconds, hours and bytes. What is unknown is None."""
    load = plan.load
    return asdict(plan) | {
        "load": asdict(load) | {"source_tokens": load.source_tokens, "target_tokens": load.target_tokens},
        "n_parameters": sum(plan.parameters.values()),
        "flops_of_the_run": plan.flops * plan.steps,
        "memory_needed": sum(plan.memory.values()),
        "fits": plan.fits,
        "step_seconds": plan.step_seconds,
        "hours": plan.hours,
        "basis": {
            "parameters": "arithmetic",
            "flops": "arithmetic",
            "memory": "arithmetic, an estimate",
            "checkpoints": "arithmetic",
            "tokens": load.tokens_basis,
            "lengths": load.length_basis,
            "padding_share": load.padding_basis,
            "timed": "measured",
            "step_seconds": "extrapolated",
            "hours": "extrapolated",
            "paper": "the paper, §5.2 and Table 2",
        },
    }
