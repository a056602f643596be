"""First contact with an NVIDIA GPU: are the tests marked `gpu` right there, and how fast is it beside PyTorch?

    python benchmarks/gpu_first_contact.py [--parts tests,kernels] [--out DIR] [--quick]

The parts: `tests` (pytest), `kernels`, `steps`, `pytorch` and `compile` (the steps in PyTorch, eager and compiled).
Each is a process of its own with a time limit, because an error of CUDA spoils its process. The result is written after
every part; other parts keep what an earlier call measured. scaling.py measures several GPUs.

Kernels and products are timed between CUDA events, over several calls that were all queued before the first began, so
that they are not charged for their launch. Each call of a kernel has other arrays than the one before, which
may still be in the GPU's cache. Steps are timed by the host's clock, in the same way here and in PyTorch: rounds of
several steps, each round from and to a GPU that has nothing to do. The fastest round counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections import deque
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
from cpu_step import QUICK as TINY
from cpu_step import micro_batches, pairs_of
from harness import earlier, names_from, record
from provenance import ROOT, surroundings

from scratchformer import config as configs
from scratchformer.backends.cuda.device import STORED_AS, Gpu
from scratchformer.backends.device import dtype_named
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
from scratchformer.training.data_parallel import DataParallel

MODELS = [f"{model} {precision}" for precision in ("bf16", "tf32", "fp16", "fp32") for model in ("base", "big")]
LEARNING_RATE = 1e-4  # at which the loss of the one batch falls within these few steps
WARM_UP, ROUNDS = 3, 3

Number = tuple[str, Callable[[], dict[str, Any]]]
"""A name, and the work that measures it."""


class Scale(NamedTuple):
    """pairs        of sentences of `length` tokens a side in a batch, without padding
    changes         of the models' configurations
    matrix          rows and columns of the products
    copied          bytes that are copied to see how fast copying is
    between         bytes that other calls of a kernel read and write before an array is used again
    parameters      of Adam
    repetitions     of a call or step in a round
    """

    pairs: int
    length: int
    changes: dict[str, int]
    matrix: int
    copied: int
    between: int
    parameters: int
    repetitions: int

    def config(self, model: str) -> Config:
        return configs.with_settings(configs.preset(model), self.changes)

    def batch(self, config: Config) -> Batch:
        pairs = pairs_of(self.pairs, self.length, self.length, config.model.vocab_size, seed=1)
        return micro_batches(pairs, 1)[0]


FULL = Scale(833, 30, {}, 8192, 2**30, 2**28, 63_082_496, 10)  # 24,990 tokens a side, as in the paper
QUICK = Scale(4, 5, TINY, 32, 2**12, 1, 1000, 1)


def seconds_of(work: Callable[[], Any], scale: Scale) -> float:
    """The mean time of a call, where the GPU does one after another and never waits for the host."""
    import cupy

    for _ in range(WARM_UP):
        work()
    busy = cupy.zeros((scale.matrix // 2, scale.matrix // 2), np.float32)
    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(10):  # some 20 ms, for the calls to queue
        busy @ busy
    began.record()
    for _ in range(scale.repetitions):
        work()
    ended.record()
    ended.synchronize()
    return cupy.cuda.get_elapsed_time(began, ended) / 1000 / scale.repetitions


def copying(scale: Scale) -> float:
    """Bytes a second, read and written."""
    import cupy

    source, target = (cupy.zeros(scale.copied // 4, np.float32) for _ in range(2))
    return 2 * scale.copied / seconds_of(lambda: cupy.copyto(target, source), scale)


def multiplying(precision: str, scale: Scale) -> dict[str, float]:
    device = Gpu(0, precision)
    a = numbers(device, precision, scale.matrix, scale.matrix)
    out = device.xp.empty_like(a)
    seconds = seconds_of(lambda: device.ops[-1].matmul(a, a, out=out), scale)
    return {"flop_per_second": 2 * scale.matrix**3 / seconds}


def numbers(device: Gpu, precision: str, *shape: int) -> Any:
    """Random numbers, which repeat after a while: products of zeros need less power, and are faster."""
    some = device.xp.asarray(np.random.default_rng(0).standard_normal(99_991, np.float32))
    size = int(np.prod(shape))
    return device.xp.tile(some, -(-size // some.size))[:size].reshape(shape).astype(dtype_named(STORED_AS[precision]))


# Kernels --------------------------------------------------------------------------------------------------------------


def kernels(scale: Scale) -> Iterator[Number]:
    """Speed of the GPU at the shapes of the base model: of copying, of products, and of moving the bytes that each
    operation cannot do without."""
    yield "copy", lambda: {"bytes_per_second": copying(scale)}
    for precision in STORED_AS:
        yield f"product {precision}", partial(multiplying, precision, scale)
    for precision in ("bf16", "fp32", "fp16"):
        for name, prepare, needed in calls(precision, scale):
            yield f"{name} {precision}", partial(bandwidth, prepare, needed, scale)


def bandwidth(prepare: Callable[[], Callable[[], Any]], needed: int, scale: Scale) -> dict[str, float]:
    turns = [prepare() for _ in range(1 + scale.between // needed)]
    results = deque((call() for call in turns), maxlen=len(turns))  # while they are kept, no array takes their place
    calls = cycle(turns)
    rate = needed / seconds_of(lambda: results.append(next(calls)()), scale)
    return {"bytes_per_second": rate, "share_of_copying": round(rate / copying(scale), 3)}


def calls(precision: str, scale: Scale) -> Iterator[tuple[str, Callable[[], Callable[[], Any]], int]]:
    """(operation, what prepares a call of it with new arrays, the bytes that the call must read and write)"""
    device, config, key = Gpu(0, precision), scale.config("base").model, DropoutKey(1, 1)
    ops, xp, size = device.ops[-1], device.xp, device.stored.itemsize
    B, L, D, F, V, h = scale.pairs, scale.length, config.d_model, config.d_ff, config.vocab_size, config.h
    A, H, S = size * B * L * D, size * B * L * F, size * B * h * L * L  # bytes of activations, hidden units, scores
    gamma, dgamma, lengths = numbers(device, precision, D), xp.zeros(D, np.float32), np.full(B, L)

    def new(n: int, *shape: int) -> list[Any]:
        return [numbers(device, precision, *shape) for _ in range(n)]

    def heads(n: int) -> list[Any]:
        return new(n, B, L, h, D // h)

    def add_norm_backward() -> Callable[[], Any]:
        _, saved = ops.add_norm(*new(2, B * L, D), gamma, gamma, 1e-6, 0.1, key)
        return partial(ops.add_norm_backward, *new(1, B * L, D), saved, gamma, dgamma, dgamma, 0.1)

    def linear() -> Callable[[], Any]:
        return partial(ops.linear, *new(1, B * L, D), *new(1, D, F), *new(1, F))

    yield "dropout", lambda: partial(ops.dropout, *new(1, B * L, D), 0.1, key), 2 * A
    yield "add_norm", lambda: partial(ops.add_norm, *new(2, B * L, D), gamma, gamma, 1e-6, 0.1, key), 4 * A
    yield "add_norm_backward", add_norm_backward, 4 * A
    yield "relu_backward", lambda: partial(ops.relu_backward, *new(2, B * L, F)), 3 * H
    yield "linear", linear, A + size * D * F + H
    yield "masked_softmax", lambda: partial(ops.masked_softmax, *new(1, B, h, L, L), 0.1, lengths, True), 2 * S
    yield "masked_softmax_backward", lambda: partial(ops.masked_softmax_backward, *new(2, B, h, L, L), 0.1), 3 * S

    def attention_backward(run: Callable[..., Any]) -> Callable[[], Any]:
        (weights,) = new(1, B, h, L, L)
        dy, q, k, v = heads(4)
        return partial(run, dy, q, k, v, 0.1, weights, weights, None, 0.0)

    forward, backward = 4 * A + S, 7 * A + S
    yield "attention", lambda: partial(ops.attention, *heads(3), 0.1, lengths, True, 0.0, None), forward
    yield "attention, in steps", lambda: partial(Ops.attention, ops, *heads(3), 0.1, lengths, True, 0.0, None), forward
    yield "attention_backward", lambda: attention_backward(ops.attention_backward), backward
    yield "attention_backward, in steps", lambda: attention_backward(partial(Ops.attention_backward, ops)), backward
    ids = pairs_of(B, L, L, V, 1).source.padded(np.arange(B))  # some words are frequent
    rows = D * len(np.unique(ids))  # of all words that are there
    yield "embedding", lambda: partial(ops.embedding, ids, *new(1, V, D), 22.6), A + size * rows
    yield "embedding_backward", lambda: partial(
        ops.embedding_backward, *new(1, B, L, D), ids, 22.6, xp.zeros((V, D), np.float32)
    ), A + 2 * 4 * rows
    targets = ids.reshape(-1)[: ops.logits_at_once // V]

    def cross_entropy(logits: Any) -> Any:
        return ops.cross_entropy(logits, targets, 0.9, 1e-6, out=logits)

    yield "cross_entropy", lambda: partial(cross_entropy, *new(1, len(targets), V)), 2 * size * len(targets) * V

    def zeros(n: int) -> list[Any]:
        return [xp.zeros(scale.parameters, np.float32) for _ in range(n)]

    yield "adam", lambda: partial(ops.adam_inplace, *zeros(4), 1e-3, 0.9, 0.98, 1e-9), 7 * 4 * scale.parameters
    yield "divide_inplace", lambda: partial(ops.divide_inplace, *zeros(1), 3), 2 * 4 * scale.parameters


# Steps ----------------------------------------------------------------------------------------------------------------


def steps(who: str, scale: Scale) -> Iterator[Number]:
    """Training steps of scratchformer ("steps"), of PyTorch, or of PyTorch with torch.compile."""
    for name in MODELS:
        model, precision = name.split()
        measure = ours if who == "steps" else partial(pytorchs, who == "compile")
        yield name, partial(measure, scale.config(model), precision, scale)


def ours(config: Config, precision: str, scale: Scale) -> dict[str, Any]:
    device, batch, training = Gpu(0, precision), scale.batch(config), config.training
    pool = device.xp.get_default_memory_pool()
    pool.free_all_blocks()
    model = Transformer(config.model, training.seed)
    device.to_device(model)
    with using(*device.ops):
        parallel = DataParallel(model, 1, ops=device.ops)
        optimizer = Adam(model, (training.beta1, training.beta2), training.eps)

    def step() -> Any:
        with using(*device.ops):
            loss, n_tokens = parallel.step_gradient([batch], training, optimizer.t + 1)
            norm = parallel.average_inplace(n_tokens)
            optimizer.step(LEARNING_RATE, norm)
            device.adapt_loss_scale(norm)
            model.zero_grad()
        return loss

    found = measured(step, device.xp.cuda.runtime.deviceSynchronize, batch, scale)
    return found | {"peak_bytes": pool.total_bytes()}


def pytorchs(compiled: bool, config: Config, precision: str, scale: Scale) -> dict[str, Any]:
    """From the same weights."""
    import torch
    from rival import Rival, adam, copy_weights, to_tensors

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    batch, training = scale.batch(config), config.training
    rival = Rival(config.model, scale.length)
    copy_weights(Transformer(config.model, training.seed), rival)
    rival.cuda()
    tensors = to_tensors(batch, "cuda")
    optimizer = adam(rival, training)
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    scaler = torch.amp.GradScaler(enabled=precision == "fp16")
    loss_of = torch.compile(rival.loss, dynamic=False) if compiled else rival.loss

    def step() -> Any:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            loss = loss_of(tensors, training)
        scaler.scale(loss / batch.n_target_tokens).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    found = measured(step, torch.cuda.synchronize, batch, scale)
    return found | {"peak_bytes": torch.cuda.max_memory_reserved()}


def measured(step: Callable[[], Any], synchronize: Callable[[], Any], batch: Batch, scale: Scale) -> dict[str, Any]:
    """step  -> the sum of the losses of all target tokens, in nats, on the GPU

    -> seconds of a step in the fastest round, and of the first step, with all that is compiled in it; the mean loss of
    a target token in the first and in the last step.
    """

    def timed(repetitions: int) -> tuple[float, Any]:
        """-> seconds of a step, and the last one's loss"""
        began = time.perf_counter()
        for _ in range(repetitions):
            loss = step()
        synchronize()
        return (time.perf_counter() - began) / repetitions, loss

    synchronize()
    first_step, first_loss = timed(1)
    timed(WARM_UP)
    rounds = [timed(scale.repetitions) for _ in range(ROUNDS)]
    seconds = min(each[0] for each in rounds)
    losses = [float(loss) / batch.n_target_tokens for loss in (first_loss, rounds[-1][1])]
    if not np.isfinite(losses).all():
        raise FloatingPointError(f"the loss of the first and the last step: {losses}")
    rate = round(batch.n_target_tokens / seconds)
    times = {"seconds": seconds, "target_tokens_per_second": rate, "seconds_first_step": first_step}
    return times | {"losses": [round(loss, 4) for loss in losses]}


# The parts ------------------------------------------------------------------------------------------------------------

SPEED: dict[str, Callable[[Scale], Iterator[Number]]] = {
    "kernels": kernels,
    "steps": partial(steps, "steps"),
    "pytorch": partial(steps, "pytorch"),
    "compile": partial(steps, "compile"),
}
SECONDS = {"tests": 600, "kernels": 120, "steps": 150, "pytorch": 150, "compile": 400}
"""Part -> its time limit."""


def run_tests(quick: bool) -> dict[str, Any]:
    """Run the tests marked `gpu` -> the last line of pytest, and the tests that failed"""
    places = ["-k", "test_every_kernel", "tests/backends/cuda"] if quick else ["tests/backends/cuda", "tests/parallel"]
    options = "-m pytest -m gpu -W default -q -rfE --tb=line -p no:cacheprovider".split()
    done = subprocess.run([sys.executable, *options, *places], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    lines = done.stdout.strip().splitlines()
    return {
        "exit_code": done.returncode,
        "last_line": lines[-1],
        "failed": [x for x in lines if x[:5] in ("FAILE", "ERROR")],
    }


def run_part(name: str, quick: bool, file: Path) -> None:
    """Measure a part in this process, and write each number to the file as soon as it is there."""
    warnings.simplefilter("default")  # PyTorch has warnings of its own
    found: dict[str, Any] = {}
    tests = [("tests", partial(run_tests, quick))]
    for what, work in tests if name == "tests" else SPEED[name](QUICK if quick else FULL):
        try:
            found[what] = work()
        except Exception as error:  # the next number may be right all the same
            found[what] = {"failed": f"{type(error).__name__}: {error}"}
        print(what, found[what], flush=True)
        file.write_text(json.dumps(found), encoding="utf-8")


def in_own_process(name: str, quick: bool, directory: Path) -> dict[str, Any]:
    """The numbers of a part, and how its process ended."""
    file, began = directory / f"{name}.unfinished", time.monotonic()
    process = get_context("spawn").Process(target=run_part, args=(name, quick, file))
    process.start()
    process.join(SECONDS[name])
    end = f"exit code {process.exitcode}" if process.exitcode is not None else f"no end after {SECONDS[name]} s"
    process.kill()
    process.join()
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.unlink(missing_ok=True)
    failed = [what for what, each in results.items() if each.get("failed")]
    found = {"end": end, "seconds": round(time.monotonic() - began, 1), "results": results}
    print(f"{name}: {end}, {found['seconds']} s, {len(results)} numbers, failed: {failed}", flush=True)
    return found


def device() -> dict[str, Any]:
    """The GPU and its driver. Raises if CuPy cannot use a GPU."""
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "name": runtime.getDeviceProperties(0)["name"].decode(),
        "gpus": runtime.getDeviceCount(),
        "cuda_of_driver": runtime.driverGetVersion(),
        "cuda_of_cupy": runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", type=names_from(SECONDS), default=list(SECONDS), help="(default: all of them)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    parts, commit, gpu = earlier(arguments, "gpu_first_contact").get("parts", {}), surroundings()["commit"], device()
    for name in arguments.parts:
        parts[name] = {**gpu, "commit": commit, **in_own_process(name, arguments.quick, arguments.out)}
        yield {"device": gpu, "parts": parts}


if __name__ == "__main__":
    record("gpu_first_contact", __doc__, measure, options, threads=None)
