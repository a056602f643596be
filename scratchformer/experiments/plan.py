"""Estimate what a run will cost before it begins: parameters, FLOPs, memory, disk and hours.

All but the time of a step is arithmetic. For the time, training steps of this model are taken on this device, on random
words, and

    seconds of a step = once + n (each + per_pair * pairs)

is fitted to them, for n micro-batches, one after another, of so many sentence pairs; no part may be negative. `once` is
what a step does once (Adam, the norm of the gradient), `each` the fixed cost of a micro-batch, `per_pair` that of a
sentence pair. Steps of three kinds determine the three: with one small micro-batch, with a larger one, and with two
small ones. If real steps are too slow for the time allowed, theirs is extrapolated from smaller ones.
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

from scratchformer import config as configs
from scratchformer.backends.cuda.device import Accelerator
from scratchformer.backends.cuda.fused_ops import FusedOps
from scratchformer.backends.device import Device, open_device
from scratchformer.backends.mkl import product_threads
from scratchformer.config import BASE, Config
from scratchformer.errors import UserError
from scratchformer.experiments import paper, sizes
from scratchformer.experiments.flops import training_flops
from scratchformer.nn.sizes import machine_memory_bytes, parameter_counts
from scratchformer.parallel.cores import available_cores
from scratchformer.tasks.translation import (
    encode_corpus,
    open_prepared,
    prepared_directory,
    read_corpus,
    train_tokenizer,
)
from scratchformer.text.batches import BatchPlan, EncodedPairs, Sequences
from scratchformer.text.tokenizer import EOS, N_SPECIALS, Tokenizer
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer, TrainingData

NOT_COUNTED = "Not counted: validation, translating for BLEU, writing checkpoints, and an early stop."

Tell = Callable[[str], None]
"""Is called with a line before each phase that takes time."""

# How much text a step has ---------------------------------------------------------------------------------------------

ASSUMED_PADDING = 0.1
"""Share of all positions, for sentences of `paper.ASSUMED_LENGTH` whose lengths vary as in ordinary text."""

ASSUMED_FILL = paper.TOKENS_PER_STEP / (BASE.training.tokens_per_batch * BASE.training.accumulation)
"""Real tokens per position that a step may have at most: it gives the paper's presets the paper's 25,000 tokens."""

COUNTED_STEPS = 200


@dataclass(frozen=True)
class Load:
    """The text of a run's mean step.

    pairs                         number of sentence pairs
    source_length, target_length  mean tokens of a sentence, EOS counted
    padding_share                 of the positions of both sides
    steps_per_epoch               None if unknown
    ..._basis                     how these numbers are known
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
        """Source tokens of a step, EOS counted, padding not."""
        return self.pairs * self.source_length

    @property
    def target_tokens(self) -> float:
        """Target tokens of a step, EOS counted, padding not."""
        return self.pairs * self.target_length

    @property
    def padded_pairs(self) -> float:
        """How many pairs of mean length fill the same number of positions without padding."""
        return self.pairs / (1 - self.padding_share)


def assumed_load(config: Config) -> Load:
    """25,000 tokens a side for the paper's models (§5.1); for others, in proportion to the positions of a step."""
    settings = config.training
    length = min(paper.ASSUMED_LENGTH, config.data.max_length, settings.tokens_per_batch)
    pairs = settings.tokens_per_batch * settings.accumulation * ASSUMED_FILL / length
    basis = f"assumed: {ASSUMED_FILL:.0%} of training.tokens_per_batch x accumulation, as in base"
    return Load(pairs, length, length, ASSUMED_PADDING, None, basis, "assumed", "assumed")


def counted_load(config: Config, tell: Tell) -> Load:
    """Count the configuration's text, split into steps as `train` does. Padding is counted in the first steps only."""
    train, settings = training_pairs(config, tell), config.training
    plan = BatchPlan(train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness)
    steps = plan.epoch(0)
    batches = list(chain.from_iterable(map(plan.micro_batches, steps[:COUNTED_STEPS])))
    real = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    padding = 1 - real / sum(batch.n_positions for batch in batches)
    source_length, target_length = (float(side.lengths.mean()) for side in (train.source, train.target))
    padding_basis = f"counted in {min(len(steps), COUNTED_STEPS)} steps"
    pairs = len(train) / len(steps)
    return Load(pairs, source_length, target_length, padding, len(steps), "counted", "counted", padding_basis)


def training_pairs(config: Config, tell: Tell) -> Any:
    """The encoded training text. Raises UserError if it cannot be read or encoded."""
    directory = prepared_directory(config.data)
    if directory:
        return open_prepared(directory, config)[1].train
    corpus = read_corpus(config.data)
    tell("tokenizing the training text, to count its tokens ...")
    return encode_corpus(corpus, train_tokenizer(corpus, config), config).train


# How long a step takes ------------------------------------------------------------------------------------------------

MIN_ROUNDS, MAX_ROUNDS = 3, 30
FIRST_SIZE = 4  # pairs in a micro-batch: fewer would say little about those of the paper
MUST_FIT = 8  # how many steps of one size the allowed time must hold before twice the size is tried

Step = Callable[[int, int], None]
"""step(n, pairs) takes a training step in which each thread has n micro-batches of so many sentence pairs."""


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step: once + n (each + per_pair * pairs), for n micro-batches, one after another, of `pairs`.

    small, large  pairs in the measured micro-batches
    rounds        number of measurements; the shortest counts, since other processes only make a step longer
    """

    once: float
    each: float
    per_pair: float
    small: int
    large: int
    rounds: int

    def seconds(self, n: int, pairs: float) -> float:
        """How long a step takes in which each thread has n micro-batches of so many pairs."""
        return self.once + n * (self.each + self.per_pair * pairs)


def measure(step: Step, largest: int, seconds: float, clock: Callable[[], float] = time.perf_counter) -> StepTime:
    """Take steps of the three kinds in turn for so many seconds, but at least three of each kind.

    largest  pairs in a micro-batch of a real step: nothing larger is measured
    """
    began = clock()

    def timed(n: int, pairs: int) -> float:
        start = clock()
        step(n, pairs)
        return clock() - start

    largest = max(2, largest)  # a line needs two sizes
    timed(1, 1)  # the first step allocates memory and fills caches
    large = min(FIRST_SIZE, largest)
    while large < largest and timed(1, large) * MUST_FIT <= seconds:
        large = min(2 * large, largest)
    small = max(1, large // 4)
    rounds: list[tuple[float, float, float]] = []
    while len(rounds) < MIN_ROUNDS or clock() - began < seconds and len(rounds) < MAX_ROUNDS:
        rounds.append((timed(1, small), timed(1, large), timed(2, small)))
    return fit_step_time(small, large, rounds)


def fit_step_time(small: int, large: int, rounds: list[tuple[float, float, float]]) -> StepTime:
    """rounds: seconds of steps with one small micro-batch, with a large one, and with two small ones."""
    counts = np.array([[1, 1, small], [1, 1, large], [1, 2, 2 * small]])  # of once, each, per_pair
    once, each, per_pair = nonnegative_least_squares(counts, np.min(rounds, axis=0)).tolist()
    return StepTime(once, each, per_pair, small, large, len(rounds))


def nonnegative_least_squares(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x >= 0 that minimises |A x - b|; A (m, n), b (m,) -> x (n,)

    Some entries of x are 0, and the others solve the ordinary least-squares problem: n is small enough to try all
    choices of the entries that are 0.
    """
    n, candidates = A.shape[1], []
    for free in chain.from_iterable(combinations(range(n), size) for size in range(n + 1)):
        x = np.zeros(n)
        x[list(free)] = np.linalg.lstsq(A[:, free], b, rcond=None)[0]
        if x.min() >= 0:
            candidates.append(x)
    return min(candidates, key=lambda x: float(np.linalg.norm(A @ x - b)))


def training_step(config: Config, device: Device, load: Load) -> tuple[Step, Trainer]:
    """A function that takes steps as `train` does, on random words in sentences of mean length; and its trainer."""
    S, T = (max(1, round(length)) for length in (load.source_length, load.target_length))

    def random_pairs(n: int) -> EncodedPairs:
        return EncodedPairs(random_words(n, S, config), random_words(n, T, config), np.arange(n), max(S, T), 0)

    data = TrainingData(random_pairs(1), None, None, 0)
    no_tokenizer = cast(Tokenizer, None)  # there is no text to encode or decode
    trainer = Trainer(RunDirectory(Path("nowhere")), config, data, no_tokenizer, device)

    def step(n: int, pairs: int) -> None:
        n *= len(trainer.parallel.replicas)
        trainer.plan = BatchPlan(random_pairs(n * pairs), pairs * max(S, T), n, config.training.seed)
        trainer.finish(trainer.step(0, 0, np.arange(n * pairs)))

    return step, trainer


def random_words(n: int, length: int, config: Config) -> Sequences:
    """n sentences of random ids, each of `length` tokens, of which EOS is the last."""
    ids = np.random.default_rng(config.training.seed).integers(N_SPECIALS, config.model.vocab_size, (n, length))
    ids[:, -1] = EOS
    return Sequences(ids.astype(np.int32).reshape(-1), np.arange(n + 1) * length)


# The plan -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is known about a run before its first step.

    threads        of one process
    parameters     by part of the model
    load           the text of the mean step
    steps          at most
    micro_batches  of a step; one thread computes `turns` of them, one after another
    flops          of a step's matrix products, forward and backward, for real tokens
    memory         bytes by purpose, of all processes that share it
    memory_there   bytes, free or not, of the device, or of the machine if the device has none of its own; None if
                   unknown
    checkpoints    bytes on disk;  disk_free: bytes
    timed          None if the model does not fit into memory
    paper          the paper's training of a model of these sizes, if there is one
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
    paper: paper.PaperTraining | None

    @property
    def fits(self) -> bool:
        """Whether there is enough memory; True if it is unknown how much there is."""
        return self.memory_there is None or sum(self.memory.values()) <= self.memory_there

    @property
    def pairs_at_once(self) -> float:
        """Pairs in a micro-batch, padding counted. The number of processes makes no difference to it."""
        return self.load.padded_pairs / self.micro_batches

    @property
    def step_seconds(self) -> float | None:
        """The time of a step; None if no step was timed."""
        return None if self.timed is None else self.timed.seconds(self.turns, self.pairs_at_once)

    @property
    def hours(self) -> float | None:
        """The time of all steps; None if no step was timed."""
        return None if self.step_seconds is None else self.step_seconds * self.steps / 3600


def make(name: str, config: Config, has_text: bool, processes: int, seconds: float, tell: Tell) -> Plan:
    """Plan a run: count, and take training steps for about so many seconds, unless the model does not fit into memory.

    has_text   whether the configuration names text to count
    processes  how many share a step; one is measured, with its share of the micro-batches and of the cores

    Raises UserError if `seconds` is not a positive number, or the device or the text cannot be used.
    """
    if not 0 < seconds < math.inf:
        raise UserError(f"--seconds {seconds:g} must be above 0, and finite")
    settings = config.training
    device = open_device(settings.device, settings.precision, products=settings.products)
    threads = 1 if device.is_async else settings.threads or max(1, available_cores() // processes)
    share = -(-settings.accumulation // processes)  # micro-batches of one process
    own_config = configs.with_settings(config, {"training.accumulation": share, "training.threads": threads})
    busy_threads = min(threads, share)
    load = counted_load(config, tell) if has_text else assumed_load(config)
    steps = settings.steps
    if settings.max_tokens:
        steps = min(steps, math.ceil(settings.max_tokens / load.target_tokens))
    own_memory = device.memory_bytes()
    plan = Plan(
        name=name,
        device=device.describe(),
        processes=processes,
        threads=threads,
        parameters=parameter_counts(config.model),
        load=load,
        steps=steps,
        micro_batches=settings.accumulation,
        turns=-(-share // busy_threads),
        flops=training_flops(config.model, load.pairs, load.source_length, load.target_length),
        memory=memory_needed(own_config, device, load, busy_threads, processes),
        memory_there=machine_memory_bytes() if own_memory is None else own_memory,
        checkpoints=sizes.checkpoint_bytes(config),
        disk_free=shutil.disk_usage(".").free,
        timed=None,
        paper=paper.PAPER_TRAINING.get(paper.paper_model(config) or ""),
    )
    if not plan.fits:
        return plan
    tell("building the model ...")
    step, trainer = training_step(own_config, device, load)
    tell(f"measuring training steps for about {seconds:g} seconds, or longer if a step is slow ...")
    with product_threads(trainer.blas_threads):  # as `loop.train`
        return replace(plan, timed=measure(step, math.ceil(plan.pairs_at_once), seconds))


def memory_needed(own_config: Config, device: Device, load: Load, threads: int, processes: int) -> dict[str, int]:
    """Bytes by purpose.

    own_config  the configuration of one process
    threads     of one process that compute micro-batches at the same time
    """
    length = math.ceil(max(load.source_length, load.target_length))
    if isinstance(device, Accelerator):  # each process has its own
        return sizes.accelerator_bytes(own_config, device.precision, FusedOps.logits_at_once, length)
    needed = sizes.training_bytes(own_config, length)
    if threads > 1:
        further = (threads - 1) * sizes.further_thread_bytes(own_config, length)
        needed["gradients and activations of further threads"] = further
    return {part: processes * size for part, size in needed.items()}


# As text --------------------------------------------------------------------------------------------------------------

Row = tuple[str, str, str]
"""What, how much, and how that is known."""


def as_text(plan: Plan) -> str:
    """The plan in aligned columns: what, how much, and how that is known."""
    rows = [*text_rows(plan), *memory_rows(plan), *time_rows(plan)]
    name_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    together = f"{plan.processes} processes, each with " if plan.processes > 1 else ""
    title = f"{plan.name} on {together}{plan.device}, {plan.threads} thread{'s' if plan.threads > 1 else ''}"
    lines = [f"{name:{name_width}}  {value:>{value_width}}  {basis}".rstrip() for name, value, basis in rows]
    return "\n".join([title, "", *lines, "", NOT_COUNTED])


def text_rows(plan: Plan) -> list[Row]:
    """The model, and the text and the FLOPs of its steps."""
    load, total = plan.load, sum(plan.parameters.values())
    rows = [
        ("parameters", f"{total:,}", "arithmetic"),
        *((f"  {part}", f"{count:,}", f"{count / total:7.1%}") for part, count in plan.parameters.items() if count),
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


def memory_rows(plan: Plan) -> list[Row]:
    disk = "" if plan.checkpoints <= plan.disk_free else "NOT ENOUGH"
    return [
        ("memory needed", gib(sum(plan.memory.values())), "arithmetic, an estimate"),
        *((f"  {part}", gib(size), "") for part, size in plan.memory.items()),
        ("memory there is", gib(plan.memory_there), "" if plan.fits else "NOT ENOUGH"),
        ("disk for checkpoints", gib(plan.checkpoints), "arithmetic"),
        ("disk that is free here", gib(plan.disk_free), disk),
    ]


def gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:,.2f} GiB"


def time_rows(plan: Plan) -> list[Row]:
    if plan.timed is None or plan.step_seconds is None or plan.hours is None:
        advice = "lower training.tokens_per_batch and raise training.accumulation, or take a smaller model"
        rows = [("time of a step", "unknown", f"not measured: there is not enough memory; {advice}")]
    else:
        timed, duration = plan.timed, sizes.format_duration(3600 * plan.hours)
        basis = f"extrapolated from measured micro-batches of {timed.small} and {timed.large} pairs"
        basis += f" to {plan.pairs_at_once:.1f}"
        if plan.processes > 1:
            basis += f"; one process, not measured with {plan.processes}: their communication is left out"
        rows = [
            ("time of a step", f"{plan.step_seconds:,.3g} s", basis),
            ("  once a step", f"{timed.once:,.3g} s", f"measured, minimum of {timed.rounds}"),
            ("  for each micro-batch", f"{timed.each:,.3g} s", f"measured; a thread has {plan.turns}"),
            ("  for each pair in it", f"{1000 * timed.per_pair:,.3g} ms", "measured"),
            ("time of the run", f"{plan.hours:,.2f} hours", f"{duration}, if it takes all steps"),
        ]
    if plan.paper:
        rows += [
            ("time of a step, in the paper", f"{plan.paper.step_seconds:g} s", f"{paper.GPUS} P100 (paper §5.2)"),
            ("time of the run, in the paper", f"{plan.paper.hours:,.2f} hours", f"{plan.paper.steps:,} steps"),
        ]
    return rows


def as_record(plan: Plan) -> dict[str, Any]:
    """All numbers, for JSON, in seconds, hours and bytes. What is unknown is None."""
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
