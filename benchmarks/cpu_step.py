"""Time and memory of a training step on a CPU, here and in PyTorch.

    python benchmarks/cpu_step.py [--models tiny,multi30k,small,base] [--padding without,with] [--threads 1,2]
                                  [--without bf16] [--repetitions 20] [--out DIR] [--keep] [--quick]

A step is forward, label-smoothed loss, backward, Adam and clearing the gradients, with dropout. A cell is a model, with
or without padding, on so many threads. Each cell is measured in a process of its own, in which scratchformer (on two
threads also with all pairs in one batch) and PyTorch in four ways start from the same weights and take turns, step by
step, on the same batches. What counts is the minimum over all repetitions, since on a
shared machine most of what lies above it is somebody else's work. Peak memory is measured in one more process for each
rival. README.md here says more.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import itertools
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import numpy as np
from provenance import surroundings
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.cpu import FAST, keep_freed_memory
from scratchformer.config import Config, ModelConfig
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, BatchPlan, EncodedPairs, Sequences
from scratchformer.text.tokenizer import EOS, UNK
from scratchformer.training.data_parallel import DataParallel

# PyTorch is imported where it is used: the process that measures our memory must not hold it.

OURS = "scratchformer"
EAGER, COMPILED = "pytorch", "compile"
RIVALS: dict[str, dict[str, bool]] = {
    EAGER: {},
    "pytorch_cut": {"cut": True, "only_real": True},
    COMPILED: {"compiled": True},
    "bf16": {"bf16": True},
}
"""The columns beside ours: ways of PyTorch, as `rival.their_step` takes them, and `cut`: in micro-batches, as ours."""

ONE_BATCH = "one_batch"
"""One more column on several threads: no micro-batches, and all threads compute each product of NumPy together."""

WAYS = [ONE_BATCH, *RIVALS]

Step = Callable[[EncodedPairs], float]
"""One training step on some sentence pairs -> the mean loss of a target token, in nats."""

WARM_UP = 2  # rounds that are not timed
PAUSE = 0.05  # seconds before a turn: idle threads of the last one spin for a while
STEPS_ALONE = 5
QUARTILES = {"minimum": 0, "lower_quartile": 25, "median": 50, "upper_quartile": 75}
RESULTS = Path(__file__).parent / "results"

# What is measured -----------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A model, and how many sentence pairs a step has: so many that it takes 0.1 to 3 seconds."""

    config: Config
    pairs: int


def model_of(**sizes: int) -> Config:
    return Config(model=ModelConfig(**sizes))


TASKS = {
    name: Task(configs.with_settings(config, {"warmup": 20, "lr_factor": 0.1}), pairs)
    for name, config, pairs in (
        ("tiny", model_of(vocab_size=2000, N=2, d_model=128, d_ff=512, h=4), 128),
        ("multi30k", configs.preset("multi30k"), 128),
        ("small", model_of(vocab_size=8000, N=3, d_model=256, d_ff=1024, h=4), 128),
        ("base", configs.preset("base"), 32),
    )
}
"""With learning rates at which something is learned in 20 steps: so equal losses mean something in the end."""

QUICK = {"vocab_size": 60, "N": 1, "d_model": 16, "d_ff": 32, "h": 2}
QUICK_PAIRS = 16

LENGTH = 20  # tokens of the longest sentence of a batch, on both sides
MICRO_BATCH = 640  # positions a side, or fewer if there were less than one for each thread
SHORTEST = {"without": LENGTH, "with": 9}  # from 9 to 20 tokens: 27.5 % of all positions are padding
SEEDS = (1,)  # the pairs of one step each


class Cell(NamedTuple):
    """One row of the table."""

    model: str
    padding: str
    threads: int
    quick: bool
    without: tuple[str, ...] = ()

    def ways(self) -> list[str]:
        """The columns beside ours."""
        return [name for name in WAYS if name not in self.without and (name != ONE_BATCH or self.threads > 1)]

    def task(self) -> Task:
        config, pairs = TASKS[self.model]
        return Task(configs.with_settings(config, QUICK), QUICK_PAIRS) if self.quick else Task(config, pairs)

    def cut(self) -> int:
        """Into how many micro-batches scratchformer cuts a step; two at least where there is padding to cut off."""
        return max(self.threads, self.task().pairs * LENGTH // MICRO_BATCH, 2 if self.padding == "with" else 1)

    def steps(self) -> list[EncodedPairs]:
        config, pairs = self.task()
        return [pairs_of(pairs, LENGTH, SHORTEST[self.padding], config.model.vocab_size, seed) for seed in SEEDS]


def pairs_of(pairs: int, longest: int, shortest: int, vocab_size: int, seed: int) -> EncodedPairs:
    """Pairs of random words. The lengths, EOS counted, spread evenly from `shortest` to `longest` on both sides, and a
    long source has a long target, to within a few words, as in text.

    The k-th word is drawn in proportion to 1/k, roughly as in text (Zipf's law): some rows of the embedding's gradient
    get many shares, most get none.
    """
    random = np.random.default_rng(seed)
    words = np.arange(UNK + 1, vocab_size)
    frequency = 1 / np.arange(1, len(words) + 1)
    spread = np.linspace(shortest, longest, pairs).round().astype(int)
    source_lengths = random.permutation(spread)
    target_lengths = spread[np.argsort(np.argsort(source_lengths + random.normal(0, 2, pairs)))]

    def side(lengths: np.ndarray) -> Sequences:
        ends = np.cumsum(lengths)
        ids = random.choice(words, ends[-1], p=frequency / frequency.sum()).astype(np.int32)
        ids[ends - 1] = EOS
        return Sequences(ids, np.concatenate([[0], ends]))

    return EncodedPairs(side(source_lengths), side(target_lengths), np.arange(pairs), longest, 0)


def micro_batches(pairs: EncodedPairs, cut: int) -> list[Batch]:
    """All pairs of a step, in so many batches, as a batch plan cuts them."""
    plan = BatchPlan(pairs, int(pairs.lengths.max()) * len(pairs), cut, seed=0)
    return plan.micro_batches(np.arange(len(pairs)))


def our_way(cell: Cell, name: str = OURS) -> Step:
    """A step of scratchformer, in micro-batches or as ONE_BATCH."""
    config = cell.task().config
    model = Transformer(config.model, config.training.seed)
    return our_step(model, config, 1 if name == ONE_BATCH else cell.cut(), cell.threads)


def our_step(model: Transformer, config: Config, cut: int, threads: int, ops: Ops = FAST) -> Step:
    """A step like `Trainer.step`. Micro-batches go to so many threads; BLAS has those that are left, at least one."""
    n_replicas = min(cut, threads)
    blas = ThreadpoolController()
    pin = partial(blas.limit, limits=threads // n_replicas, user_api="blas")
    pin()
    training, parallel = config.training, DataParallel(model, n_replicas, ops=(ops,))
    adam_map = ThreadPoolExecutor(threads).map if threads > n_replicas else parallel.map
    optimizer = Adam(model, (training.beta1, training.beta2), training.eps, adam_map)

    def step(pairs: EncodedPairs) -> float:
        pin()  # another way may have other threads
        with using(ops):
            loss, n_tokens = parallel.step_gradient(micro_batches(pairs, cut), training, optimizer.t + 1)
            parallel.average_inplace(n_tokens)
            optimizer.step(noam(optimizer.t + 1, config.model.d_model, training.warmup, training.lr_factor))
            model.zero_grad()
        return loss / n_tokens

    return step


def matmul_flops(config: ModelConfig, batch: Batch) -> int:
    """The floating-point operations in all matrix products of our forward and backward, as the code executes them.

    All layers compute padding, too; the logits are made for real tokens only. A product of (m, k) and (k, n) takes
    m k n multiplications and as many additions. Backward makes two such products for each of forward, one for the
    gradient of either factor.
    """
    (B, S), T = batch.inputs[0].shape, batch.targets.shape[1]
    source, target, real = B * S, B * T, batch.n_target_tokens  # rows of the products
    D, F, V = config.d_model, config.d_ff, config.vocab_size
    queries, values = config.h * config.d_k, config.h * config.d_v  # widths; keys are as queries
    feed_forward = 2 * D * F
    self_attention = D * (2 * queries + values) + values * D  # W_QKV and W_O
    encoder_layer = source * (self_attention + feed_forward) + B * S * S * (queries + values)
    decoder_layer = (
        target * (self_attention + feed_forward)
        + B * T * T * (queries + values)
        + target * (D * queries + values * D)
        + source * D * (queries + values)  # W_Q, W_O; W_KV
        + B * T * S * (queries + values)
    )
    forward = config.N * (encoder_layer + decoder_layer) + real * D * V
    return 3 * 2 * forward


# One cell: the rivals together ----------------------------------------------------------------------------------------


def measure(cell: Cell, repetitions: int) -> dict[str, Any]:
    """All rivals of a cell together: everything but memory."""
    import torch
    from rival import Rival, assert_same, copy_weights

    config, cut, steps_of_pairs = cell.task().config, cell.cut(), cell.steps()
    torch.set_num_threads(cell.threads)
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model, config.training.seed)
    missing = dict.fromkeys(cell.without, "left out")
    steps = {OURS: our_way(cell)}
    pinned = {EAGER: torch.get_num_threads(), OURS: blas_threads()}
    for name in cell.ways():
        if name not in RIVALS:
            steps[name] = our_way(cell, name)
            continue
        rival = Rival(config.model, LENGTH)
        copy_weights(model, rival)
        if name == EAGER:
            assert_same(model, rival, micro_batches(steps_of_pairs[0], 1)[0], config.training)
        steps[name] = rival_step(rival, cell, **RIVALS[name])
    if COMPILED in steps:
        reason = "left out of a quick run" if cell.quick else failure(steps[COMPILED], steps_of_pairs[0])
        if reason:
            missing[COMPILED] = reason
            del steps[COMPILED]

    peaks = [sgemm_gflops(cell.threads, repetitions)]
    seconds, faults, first, last = take_turns(steps, steps_of_pairs, repetitions)
    peaks.append(sgemm_gflops(cell.threads, repetitions))
    peak = {name: round(max(rates[name] for rates in peaks), 1) for name in peaks[0]}
    if not cell.quick:
        assert_learned_alike(first, last)

    spread = {name: spread_of(times) for name, times in seconds.items()}
    tokens = np.mean([len(pairs.target.ids) for pairs in steps_of_pairs])
    flops = np.mean(
        [sum(matmul_flops(config.model, batch) for batch in micro_batches(pairs, cut)) for pairs in steps_of_pairs]
    )
    return {
        **{key: value for key, value in cell._asdict().items() if key != "without"},
        "threads_pinned": pinned,
        "config": asdict(config.model),
        "pairs": len(steps_of_pairs[0]),
        "length": LENGTH,
        "cut": cut,
        "padding_share": padding_share(steps_of_pairs, 1),
        "padding_share_when_cut": padding_share(steps_of_pairs, cut),
        "target_tokens": round(tokens),
        "seconds": spread,
        "time_over_ours": {
            label: {name: round(spread[name][label] / spread[OURS][label], 3) for name in spread}
            for label in ("minimum", "median")
        },
        "target_tokens_per_second": {name: round(tokens / spread[name]["minimum"]) for name in spread},
        "matmul_gflop": round(flops / 1e9, 3),
        "sgemm_gflops": peak,
        "share_of_sgemm_peak": round(flops / 1e9 / spread[OURS]["minimum"] / peak[OURS], 4),
        "page_faults": {name: round(float(counts.mean())) for name, counts in faults.items()},
        "first_loss": {name: round(loss, 4) for name, loss in first.items()},
        "last_loss": {name: round(loss, 4) for name, loss in last.items()},
        "missing": missing,
    }


def rival_step(rival: Any, cell: Cell, cut: bool = False, **options: bool) -> Step:
    """A step of PyTorch on all pairs in one batch, or cut as ours. The batches are made in warm-up, so never timed."""
    from rival import their_step, to_tensors

    step_on, batches = their_step(rival, cell.task().config, **options), {}

    def step(pairs: EncodedPairs) -> float:
        if id(pairs) not in batches:
            batches[id(pairs)] = [to_tensors(batch) for batch in micro_batches(pairs, cell.cut() if cut else 1)]
        return step_on(batches[id(pairs)])

    return step


def padding_share(steps_of_pairs: list[EncodedPairs], cut: int) -> float:
    """The share of padding in all positions of both sides."""
    batches = [batch for pairs in steps_of_pairs for batch in micro_batches(pairs, cut)]
    real = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    return round(1 - real / sum(batch.n_positions for batch in batches), 4)


def failure(step: Step, pairs: EncodedPairs) -> str:
    """Take one step -> in one line what went wrong, "" if nothing did."""
    try:
        step(pairs)
    except Exception as error:  # a compiler may lack many things
        first_line = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {first_line}"
    return ""


class Turns(NamedTuple):
    """By rival: seconds and page faults of its steps, (repetitions, units) each; what the first step returned and the
    last one."""

    seconds: dict[str, np.ndarray]
    faults: dict[str, np.ndarray]
    first: dict[str, Any]
    last: dict[str, Any]


def take_turns(steps: dict[str, Callable], units: Sequence, repetitions: int) -> Turns:
    """Who goes when is drawn anew for every unit of work, of which each rival does all."""
    order = np.random.default_rng(0)
    shape = WARM_UP + repetitions, len(units)
    seconds, faults = ({name: np.empty(shape) for name in steps} for _ in range(2))
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for turn in np.ndindex(shape):
        for name in order.permutation(list(steps)):
            time.sleep(PAUSE)
            faults_before, began = page_faults(), time.perf_counter()
            last[name] = steps[name](units[turn[1]])
            seconds[name][turn] = time.perf_counter() - began
            faults[name][turn] = page_faults() - faults_before
            first.setdefault(name, last[name])
    timed = slice(WARM_UP, None)
    return Turns(
        {name: values[timed] for name, values in seconds.items()},
        {name: values[timed] for name, values in faults.items()},
        {name: first[name] for name in steps},
        {name: last[name] for name in steps},
    )


def page_faults() -> int:
    """The number of minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def spread_of(times: np.ndarray) -> dict[str, float]:
    """Seconds (repetitions, batches) -> minimum and quartiles over the repetitions, mean over the batches."""
    return {
        label: round(float(np.percentile(times, percent, axis=0).mean()), 6) for label, percent in QUARTILES.items()
    }


def assert_learned_alike(first: dict[str, float], last: dict[str, float], tolerance: float = 0.05) -> None:
    """Of the same batches, all must have learned something, and as much; only their dropout masks differ.

    `compile` has taken one step more than the others: in the first it was compiled.
    """
    for name, loss in last.items():
        if not loss < (1 - 2 * tolerance) * first[OURS]:
            raise AssertionError(f"nothing was learned with {name}: the loss went from {first[name]} to {loss}")
        if not abs(loss / last[OURS] - 1) < tolerance:
            raise AssertionError(f"not the same training: the last loss is {last[OURS]} here and {loss} with {name}")


def blas_threads() -> list[int]:
    """Of each BLAS that NumPy has loaded; usually one."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def sgemm_gflops(threads: int, repetitions: int) -> dict[str, float]:
    """The best rates of a float32 matrix product in NumPy and in PyTorch, in GFLOP/s: what a step hardly exceeds."""
    import torch

    best = {OURS: 0.0, EAGER: 0.0}
    with threadpool_limits(threads, "blas"):
        for size in (1024, 2048):
            a = np.random.default_rng(0).standard_normal((size, size), np.float32)
            out = np.empty_like(a)
            a_there, out_there = torch.from_numpy(a), torch.from_numpy(out)
            products = {
                OURS: lambda: np.matmul(a, a, out=out),
                EAGER: lambda: torch.matmul(a_there, a_there, out=out_there),
            }
            for _, (name, product) in itertools.product(range(repetitions), products.items()):
                time.sleep(PAUSE)
                began = time.perf_counter()
                product()
                best[name] = max(best[name], 2 * size**3 / (time.perf_counter() - began) / 1e9)
    return best


# One rival alone ------------------------------------------------------------------------------------------------------


def measure_alone(cell: Cell, name: str) -> dict[str, int | None]:
    """Measure memory and page faults of a rival's first steps in a process that holds nothing else.

    after_imports, peak  bytes of the whole process, before the model is made and at most
    page_faults          of a step, the first two left out
    """
    config, steps_of_pairs = cell.task().config, cell.steps()
    is_ours = name not in RIVALS
    if not is_ours:
        import torch._dynamo  # the optimizer does so, too: then it would count as the step's memory
        from rival import Rival

        if name == COMPILED:
            import torch._inductor.compile_fx  # likewise the first compilation
        torch.set_num_threads(cell.threads)
    after_imports = resident_bytes("VmRSS")
    if is_ours:
        keep_freed_memory()  # as the command line does
        step = our_way(cell, name)
    else:
        step = rival_step(Rival(config.model, LENGTH), cell, **RIVALS[name])
    faults = []
    for i in range(STEPS_ALONE):
        before = page_faults()
        step(steps_of_pairs[i % len(steps_of_pairs)])
        faults.append(page_faults() - before)
    return {
        "after_imports": after_imports,
        "peak": resident_bytes("VmHWM"),
        "page_faults": round(np.mean(faults[WARM_UP:])),
    }


def resident_bytes(field: str) -> int | None:
    """VmRSS, memory in use, or VmHWM, the most there ever was; None on systems that do not tell, as Linux does."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def memory_ratios(alone: dict[str, dict[str, int | None]]) -> dict[str, dict[str, float | None]]:
    """Our peak over each rival's: of the whole process, and of what the model and its steps add to the imports."""

    def ratio(ours: int, theirs: int) -> float:
        return round(ours / theirs, 3)

    mine = alone[OURS]
    if mine["peak"] is None:
        return {name: {"whole_process": None, "beyond_imports": None} for name in alone}
    return {
        name: {
            "whole_process": ratio(mine["peak"], theirs["peak"]),
            "beyond_imports": ratio(mine["peak"] - mine["after_imports"], theirs["peak"] - theirs["after_imports"]),
        }
        for name, theirs in alone.items()
    }


# All cells ------------------------------------------------------------------------------------------------------------


def in_own_process(cell: Cell, *more: str) -> dict[str, Any]:
    """Call this script for one cell -> what it prints."""
    words = ["--cell", "--models", cell.model, "--padding", cell.padding, "--threads", str(cell.threads), *more]
    if cell.quick:
        words.append("--quick")
    if cell.without:
        words += ["--without", ",".join(cell.without)]
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"cpu_step.py: failed with {' '.join(words)}")
    return json.loads(done.stdout)


def measure_all(cells: list[Cell], repetitions: int, out: Path, keep: bool = False) -> list[dict[str, Any]]:
    """Measure the cells one after another. The file is written after each, so what is measured is kept; with `keep`,
    also what it holds of other cells."""
    from small_training import write  # here: it holds more than a measured process needs

    around = surroundings()  # now: git may move while we measure
    around["versions"]["torch"] = importlib.metadata.version("torch")
    seeds = {"weights": 0, "batches": SEEDS, "turns": 0}
    anew = {cell[:3] for cell in cells}
    results = other_cells(out / "cpu_step.json", ("model", "padding", "threads"), anew) if keep else []
    for cell in cells:
        result = in_own_process(cell, "--repetitions", str(repetitions))
        alone = {name: in_own_process(cell, "--alone", name) for name in result["seconds"]}
        results.append(
            result
            | {
                "alone": alone,
                "our_memory_over_theirs": memory_ratios(alone),
                "repetitions": repetitions,
                "date": around["date"],
                "commit": around["commit"],
            }
        )
        write(
            out,
            "cpu_step",
            {
                "benchmark": "cpu_step",
                "repetitions": repetitions,
                "warm_up": WARM_UP,
                "seeds": seeds,
                "cells": results,
                **around,
            },
        )
        print_cell(results[-1])
    return results


def other_cells(file: Path, keys: Sequence[str], anew: set[tuple]) -> list[dict[str, Any]]:
    """The cells in the file of an earlier run that are not measured anew, each known by its values of the keys; none if
    there is no file."""
    if not file.exists():
        return []
    return [
        cell
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]
        if tuple(cell[key] for key in keys) not in anew
    ]


def print_cell(cell: dict[str, Any]) -> None:
    pinned = cell["threads_pinned"]
    print(
        f"{cell['model']}, {cell['padding']} padding, {cell['threads']} thread(s) (pinned: PyTorch {pinned[EAGER]}, "
        f"NumPy's BLAS {pinned[OURS]}); milliseconds, minimum (quartiles):"
    )
    for name, labels in cell["seconds"].items():
        minimum, *quartiles = (f"{1000 * seconds:.1f}" for seconds in labels.values())
        print(
            f"    {name:13} {minimum:>8} ({', '.join(quartiles)}), {cell['page_faults'][name]} page faults, "
            f"alone {cell['alone'][name]['page_faults']}"
        )
    for name, reason in cell["missing"].items():
        print(f"    {name:13} {reason}")
    sys.stdout.flush()


def print_table(cells: list[dict[str, Any]]) -> None:
    print(
        "\nTime: ours in ms, then each rival's over ours (minima). Tokens: real target tokens a second, ours. "
        "Peak: our share\nof sgemm's. Memory: our peak over PyTorch's, whole process / beyond the imports.\n"
    )
    print(
        f"{'model':9} {'padding':8} {'threads':>7} {'ours':>8} "
        + " ".join(f"{name:>12}" for name in WAYS)
        + f" {'tokens':>8} {'peak':>6} {'memory':>13}"
    )
    for cell in cells:
        ratios, memory = cell["time_over_ours"]["minimum"], cell["our_memory_over_theirs"][EAGER]
        ours = 1000 * cell["seconds"][OURS]["minimum"]
        print(
            f"{cell['model']:9} {cell['padding']:8} {cell['threads']:7} {ours:8.1f} "
            + " ".join(f"{number(ratios.get(name)):>12}" for name in WAYS)
            + f" {cell['target_tokens_per_second'][OURS]:8,} {cell['share_of_sgemm_peak']:6.0%} "
            f"{number(memory['whole_process']):>6} / {number(memory['beyond_imports'])}"
        )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def names_from(known: Iterable[str]) -> Callable[[str], list[str]]:
    """For an argument that lists some of the known names: tiny,small"""

    def listed(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return text.split(",")

    return listed


def positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def thread_counts(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=names_from(TASKS), default=list(TASKS), help="(default: all of them)")
    parser.add_argument("--padding", type=names_from(SHORTEST), default=list(SHORTEST), help="(default: without,with)")
    parser.add_argument("--threads", type=thread_counts, default=[1, 2], help="for all rivals (default: 1,2)")
    parser.add_argument("--without", type=names_from(WAYS), default=[], help="columns to leave out")
    parser.add_argument("--repetitions", type=positive, default=20, help="of every batch (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    parser.add_argument("--keep", action="store_true", help="what the result of an earlier run says of other cells")
    parser.add_argument("--quick", action="store_true", help="2 repetitions of small models, to see that it runs")
    # How the script calls itself: measure the one cell here and print JSON; or only one rival, alone.
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", choices=[OURS, *WAYS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"--out: {arguments.out} is not a directory")
    if importlib.util.find_spec("torch") is None:
        parser.error("there is no PyTorch to compare with: pip install torch")

    repetitions = 2 if arguments.quick else arguments.repetitions
    cells = [
        Cell(model, padding, threads, arguments.quick, tuple(arguments.without))
        for model in arguments.models
        for padding in arguments.padding
        for threads in arguments.threads
    ]
    if arguments.alone:
        print(json.dumps(measure_alone(cells[0], arguments.alone)))
    elif arguments.cell:
        print(json.dumps(measure(cells[0], repetitions)))
    else:
        print_table(measure_all(cells, repetitions, arguments.out, arguments.keep))


if __name__ == "__main__":
    main()
