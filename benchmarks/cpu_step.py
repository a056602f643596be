"""Time and memory of a training step on a CPU, here and in PyTorch.

    python benchmarks/cpu_step.py [--models tiny,multi30k,small,base] [--padding without,with] [--threads 1,2]
                                  [--without bf16] [--repetitions 20] [--out DIR] [--quick]

A step is forward, label-smoothed loss, backward, Adam and clearing the gradients, with dropout. A cell is a model, with
or without padding, on so many threads. Each cell is measured in a process of its own, in which scratchformer and
PyTorch in four ways start from the same weights and take turns, step by step, on the same batches. The minimum over all
repetitions counts, since on a shared machine most of what lies above it is the work of others. Peak memory is measured
in one more process for each program. README.md here says more.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
from harness import (
    EAGER,
    OURS,
    cell_by_cell,
    counts,
    in_own_process,
    names_from,
    over_ours,
    record,
    spread_of,
    take_turns,
)
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.cpu import FAST, keep_freed_memory
from scratchformer.config import Config, ModelConfig
from scratchformer.experiments.flops import training_flops
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, BatchPlan, EncodedPairs, Sequences
from scratchformer.text.tokenizer import EOS, UNK
from scratchformer.training.data_parallel import DataParallel

# PyTorch is imported where it is used: the process that measures our memory must not hold it.

COMPILED = "compile"
RIVALS: dict[str, dict[str, bool]] = {
    EAGER: {},
    "pytorch_cut": {"cut": True, "only_real": True},
    COMPILED: {"compiled": True},
    "bf16": {"bf16": True},
}
"""Ways of PyTorch, as `rival.their_step` takes them, and `cut`: in micro-batches, as ours."""

Step = Callable[[EncodedPairs], float]
"""One training step on some sentence pairs -> the mean loss of a target token, in nats."""

STEPS_ALONE = 5
TASKS: dict[str, tuple[Config, int]] = {
    name: (configs.with_settings(config, {"warmup": 20, "lr_factor": 0.1}), pairs)
    for name, config, pairs in (
        ("tiny", Config(model=ModelConfig(vocab_size=2000, N=2, d_model=128, d_ff=512, h=4)), 128),
        ("multi30k", configs.preset("multi30k"), 128),
        ("small", Config(model=ModelConfig(vocab_size=8000, N=3, d_model=256, d_ff=1024, h=4)), 128),
        ("base", configs.preset("base"), 32),
    )
}
"""A model, and the sentence pairs of a step: so many that it takes 0.1 to 3 seconds. At these learning rates something
is learned in 20 steps, so equal losses in the end mean something."""

QUICK, QUICK_PAIRS = {"vocab_size": 60, "N": 1, "d_model": 16, "d_ff": 32, "h": 2}, 16
LENGTH = 20  # tokens of the longest sentence of a batch, on both sides
MICRO_BATCH = 640  # positions a side, or fewer if there were less than one for each thread
SHORTEST = {"without": LENGTH, "with": 9}  # from 9 to 20 tokens: 27.5 % of all positions are padding


class Cell(NamedTuple):
    """One row of the table."""

    model: str
    padding: str
    threads: int
    quick: bool = False

    def task(self) -> tuple[Config, int]:
        config, pairs = TASKS[self.model]
        return (configs.with_settings(config, QUICK), QUICK_PAIRS) if self.quick else (config, pairs)

    def cut(self) -> int:
        """Into how many micro-batches scratchformer cuts a step; two at least where there is padding to cut off."""
        return max(self.threads, self.task()[1] * LENGTH // MICRO_BATCH, 2 if self.padding == "with" else 1)

    def pairs(self) -> EncodedPairs:
        config, pairs = self.task()
        return pairs_of(pairs, LENGTH, SHORTEST[self.padding], config.model.vocab_size, seed=1)


def pairs_of(pairs: int, longest: int, shortest: int, vocab_size: int, seed: int) -> EncodedPairs:
    """Pairs of random words. The lengths, EOS counted, spread evenly from `shortest` to `longest` on both sides, and a
    long source has a long target, to within a few words, as in text.

    The k-th word is drawn in proportion to 1/k, roughly as in text (Zipf's law): some rows of the embedding's gradient
    get many shares, most get none.
    """
    random = np.random.default_rng(seed)
    words = np.arange(UNK + 1, vocab_size)
    frequency = 1 / np.arange(1, len(words) + 1)
    lengths = np.linspace(shortest, longest, pairs).round().astype(int)
    source_lengths = random.permutation(lengths)
    target_lengths = lengths[np.argsort(np.argsort(source_lengths + random.normal(0, 2, pairs)))]

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


def matmul_flops(config: ModelConfig, batch: Batch) -> float:
    """The operations in all matrix products of a step. All layers compute padding, too, but the logits."""
    (B, S), T = batch.inputs[0].shape, batch.targets.shape[1]
    logits_left_out = (B * T - batch.n_target_tokens) * config.d_model * config.vocab_size
    return training_flops(config, B, S, T) - 6 * logits_left_out


def our_way(cell: Cell) -> Step:
    """A step of scratchformer, in micro-batches."""
    config, _ = cell.task()
    return our_step(Transformer(config.model, config.training.seed), config, cell.cut(), cell.threads)


def our_step(model: Transformer, config: Config, cut: int, threads: int, ops: Ops = FAST) -> Step:
    """A step like `Trainer.step`. Micro-batches go to so many threads; BLAS has one in each."""
    pin = partial(ThreadpoolController().limit, limits=1, user_api="blas")
    pin()
    training, parallel = config.training, DataParallel(model, min(cut, threads), ops=(ops,))
    optimizer = Adam(model, (training.beta1, training.beta2), training.eps, parallel.map)

    def step(pairs: EncodedPairs) -> float:
        pin()  # another way may have other threads
        with using(ops):
            loss, n_tokens = parallel.step_gradient(micro_batches(pairs, cut), training, optimizer.t + 1)
            parallel.average_inplace(n_tokens)
            optimizer.step(noam(optimizer.t + 1, config.model.d_model, training.warmup, training.lr_factor))
            model.zero_grad()
        return loss / n_tokens

    return step


def their_way(rival: Any, cell: Cell, cut: bool = False, **options: bool) -> Step:
    """A step of PyTorch on all pairs in one batch, or cut as ours. The batches are made in warm-up, so never timed."""
    from rival import their_step, to_tensors

    step_on, batches = their_step(rival, cell.task()[0], **options), []

    def step(pairs: EncodedPairs) -> float:
        if not batches:
            batches.extend(to_tensors(batch) for batch in micro_batches(pairs, cell.cut() if cut else 1))
        return step_on(batches)

    return step


# One cell: time -------------------------------------------------------------------------------------------------------


def measure(cell: Cell, repetitions: int, without: list[str]) -> dict[str, Any]:
    """Let all programs of a cell take turns: everything but memory."""
    import torch
    from rival import Rival, assert_same, copy_weights

    (config, _), cut, pairs = cell.task(), cell.cut(), cell.pairs()
    torch.set_num_threads(cell.threads)
    torch.manual_seed(config.training.seed)
    model, missing = Transformer(config.model, config.training.seed), dict.fromkeys(without, "left out")
    steps = {OURS: our_way(cell)}
    pinned = {EAGER: torch.get_num_threads(), OURS: blas_threads()}
    for name in RIVALS:
        if name in without:
            continue
        rival = Rival(config.model, LENGTH)
        copy_weights(model, rival)
        if name == EAGER:
            assert_same(model, rival, micro_batches(pairs, 1)[0], config.training)
        steps[name] = their_way(rival, cell, **RIVALS[name])
    if COMPILED in steps:
        try:
            missing[COMPILED] = "left out of a quick run" if cell.quick else steps[COMPILED](pairs) and ""
        except Exception as error:  # a compiler may lack many things
            missing[COMPILED] = f"{type(error).__name__}: {error}".partition("\n")[0]
        if missing[COMPILED]:
            del steps[COMPILED]

    seconds, first, last = take_turns(steps, [pairs], repetitions)
    peak = sgemm_gflops(cell.threads, repetitions)
    if not cell.quick:
        assert_learned_alike(first, last)
    spread = {name: spread_of(times) for name, times in seconds.items()}
    flops = sum(matmul_flops(config.model, batch) for batch in micro_batches(pairs, cut))
    tokens = len(pairs.target.ids)
    return {
        "threads_pinned": pinned,
        "config": asdict(config.model),
        "cut": cut,
        "padding_share": padding_share(pairs),
        "seconds": spread,
        "time_over_ours": over_ours(spread),
        "target_tokens_per_second": {name: round(tokens / spread[name]["minimum"]) for name in spread},
        "sgemm_gflops": peak,
        "share_of_sgemm_peak": round(flops / 1e9 / spread[OURS]["minimum"] / peak[OURS], 4),
        "first_loss": {name: round(loss, 4) for name, loss in first.items()},
        "last_loss": {name: round(loss, 4) for name, loss in last.items()},
        "missing": {name: reason for name, reason in missing.items() if reason},
    }


def padding_share(pairs: EncodedPairs) -> float:
    """The share of padding in all positions of both sides, if all pairs are one batch."""
    (batch,) = micro_batches(pairs, 1)
    return round(1 - (batch.n_source_tokens + batch.n_target_tokens) / batch.n_positions, 4)


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
    """The best rates of a float32 matrix product in NumPy and in PyTorch, in GFLOP/s: a step hardly exceeds them."""
    import torch

    best = {OURS: 0.0, EAGER: 0.0}
    with threadpool_limits(threads, "blas"):
        for size in (1024, 2048):
            a = np.random.default_rng(0).standard_normal((size, size), np.float32)
            a_there = torch.from_numpy(a)
            products = {OURS: lambda _: np.matmul(a, a), EAGER: lambda _: torch.matmul(a_there, a_there)}
            for name, seconds in take_turns(products, [None], repetitions).seconds.items():
                best[name] = max(best[name], round(2 * size**3 / float(seconds.min()) / 1e9, 1))
    return best


# One program alone: memory --------------------------------------------------------------------------------------------


def measure_alone(cell: Cell, name: str) -> dict[str, int | None]:
    """Measure the memory of a program's first steps in a process that holds nothing else.

    after_imports, peak  bytes of the whole process, before the model is made and at most
    """
    is_ours, pairs = name not in RIVALS, cell.pairs()
    if not is_ours:
        import torch._dynamo  # the optimizer does so, too: then it would count as the step's memory
        from rival import Rival

        if name == COMPILED:
            import torch._inductor.compile_fx  # likewise the first compilation
        torch.set_num_threads(cell.threads)
    after_imports = resident_bytes("VmRSS")
    if is_ours:
        keep_freed_memory()  # as the command line does
        step = our_way(cell)
    else:
        step = their_way(Rival(cell.task()[0].model, LENGTH), cell, **RIVALS[name])
    for _ in range(STEPS_ALONE):
        step(pairs)
    return {"after_imports": after_imports, "peak": resident_bytes("VmHWM")}


def resident_bytes(field: str) -> int:
    """VmRSS, memory in use, or VmHWM, the most there ever was, on Linux."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


# All cells ------------------------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=names_from(TASKS), default=list(TASKS), help="(default: all of them)")
    parser.add_argument("--padding", type=names_from(SHORTEST), default=list(SHORTEST), help="(default: without,with)")
    parser.add_argument("--threads", type=counts, default=[1, 2], help="for all programs (default: 1,2)")
    parser.add_argument("--without", type=names_from(RIVALS), default=[], help="columns to leave out")
    parser.add_argument("--repetitions", type=int, default=20, help="of every batch (default: %(default)s)")


def measure_all(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    repetitions = 2 if arguments.quick else arguments.repetitions

    def measured(*names: Any) -> dict[str, Any]:
        cell = Cell(*names, quick=arguments.quick)
        found = in_own_process(measure, cell, repetitions, arguments.without)
        alone = {name: in_own_process(measure_alone, cell, name) for name in found["seconds"]}
        print(*names, "PyTorch's time over ours:", found["time_over_ours"]["minimum"], flush=True)
        return {**found, "alone": alone, "repetitions": repetitions}

    cells = [
        (model, padding, threads)
        for model in arguments.models
        for padding in arguments.padding
        for threads in arguments.threads
    ]
    yield from cell_by_cell(("model", "padding", "threads"), cells, measured)


if __name__ == "__main__":
    record("cpu_step", __doc__, measure_all, options, threads=None, torch=True)
