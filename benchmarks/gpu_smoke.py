"""What does one NVIDIA GPU make of it: is everything right there, and how fast is it beside PyTorch?

    python benchmarks/gpu_smoke.py [--models base,big] [--precisions fp32,tf32,bf16,fp16] [--no-compile] [--out DIR]
                                   [--minutes 9] [--quick]

One call of at most ten minutes: the tests marked `gpu`; the ceilings of the machine (copying, matrix products); each
kernel's bandwidth and its share of the copying; training steps of the paper's batch, about 25,000 source and 25,000
target tokens, in every precision, then beside PyTorch, eager and compiled, on the same shapes, until `--minutes` are
over. The result is written after each number, and what fails is told in its place, so what was measured is kept; a
table comes last. PyTorch is left out where it is not installed.

Times are between CUDA events, of several calls that were all queued before the first began, so that a kernel is not
charged for its launch. Rivals follow each other: a GPU has no other guests.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from cpu_step import RESULTS, micro_batches, names_from, pairs_of
from provenance import surroundings
from small_training import write

from scratchformer import config as configs
from scratchformer.backends.cuda.device import STORED_AS, Gpu
from scratchformer.backends.device import dtype_named
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
from scratchformer.training.data_parallel import DataParallel

ROOT = Path(__file__).resolve().parents[1]
MODELS = "base", "big"
LENGTH, PAIRS = 30, 833  # 24,990 tokens a side, without padding
REPETITIONS, WARM_UP = 10, 3
COPIED = 2**30  # bytes that are copied to see how fast copying is

# Measuring ------------------------------------------------------------------------------------------------------------


def seconds_of(work: Callable[[], Any], repetitions: int = REPETITIONS) -> float:
    """The mean time of a call, where the GPU does one after another and never waits for the host."""
    import cupy

    for _ in range(WARM_UP):
        work()
    busy = cupy.zeros((4096, 4096), np.float32)
    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(10):  # some 20 ms, for the calls to queue
        busy @ busy
    began.record()
    for _ in range(repetitions):
        work()
    ended.record()
    ended.synchronize()
    return cupy.cuda.get_elapsed_time(began, ended) / 1000 / repetitions


def ceilings(device: Gpu) -> dict[str, float]:
    """Bytes a second, read and written, of a copy; FLOP a second of a product of two matrices, by precision."""
    cupy = device.xp
    source, target = (cupy.zeros(COPIED // 4, np.float32) for _ in range(2))
    found = {"copy_bytes_per_second": 2 * COPIED / seconds_of(lambda: cupy.copyto(target, source))}
    size = 8192
    for precision, stored in STORED_AS.items():
        ops = ops_for(device, precision)
        a = cupy.ones((size, size), dtype_named(stored))
        out = cupy.empty_like(a)
        found[f"{precision}_flop_per_second"] = 2 * size**3 / seconds_of(lambda: ops.matmul(a, a, out=out))
    return found


def ops_for(device: Gpu, precision: str) -> Any:
    """The operations in this precision."""
    return Gpu(device.number, precision).ops[-1]


# Kernels --------------------------------------------------------------------------------------------------------------


def kernels(device: Gpu, precision: str) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """(operation, a call of it at the base model's shapes, the bytes it cannot do without)"""
    cupy, stored, config = device.xp, dtype_named(STORED_AS[precision]), configs.preset("base").model
    ops = ops_for(device, precision)
    rows, D, F, V, key = PAIRS * LENGTH, config.d_model, config.d_ff, config.vocab_size, DropoutKey(1, 1)

    def normal(*shape: int) -> Any:
        return cupy.random.standard_normal(shape, dtype=np.float32).astype(stored)

    x, update, hidden, gamma = normal(rows, D), normal(rows, D), normal(rows, F), normal(D)
    dgamma, A = cupy.zeros(D, np.float32), x.nbytes
    yield "dropout", lambda: ops.dropout(x, 0.1, key), 2 * A
    yield "add_norm", lambda: ops.add_norm(x, update, gamma, gamma, 1e-6, 0.1, key), 4 * A
    _, saved = ops.add_norm(x, update, gamma, gamma, 1e-6, 0.1, key)
    yield "add_norm_backward", lambda: ops.add_norm_backward(x, saved, gamma, dgamma, dgamma, 0.1), 4 * A
    yield "relu_backward", lambda: ops.relu_backward(hidden, hidden), 3 * hidden.nbytes
    scores = normal(PAIRS, config.h, LENGTH, LENGTH)
    lengths = np.full(PAIRS, LENGTH)
    yield "masked_softmax", lambda: ops.masked_softmax(scores, 0.1, lengths, True), 2 * scores.nbytes
    yield "masked_softmax_backward", lambda: ops.masked_softmax_backward(scores, scores, 0.1), 3 * scores.nbytes
    ids = pairs_of(PAIRS, LENGTH, LENGTH, V, 1).source.padded(np.arange(PAIRS))  # some words are frequent
    E, dE = normal(V, D), cupy.zeros((V, D), np.float32)
    yield "embedding", lambda: ops.embedding(ids, E, 22.6), 2 * A
    yield "embedding_backward", lambda: ops.embedding_backward(x.reshape(PAIRS, LENGTH, D), ids, 22.6, dE), 5 * A
    logits = normal(ops.logits_at_once // V, V)
    targets = ids.reshape(-1)[: len(logits)]
    yield "cross_entropy", lambda: ops.cross_entropy(logits, targets, 0.9, 1e-6, out=logits), 2 * logits.nbytes
    w, g, m, v = (cupy.zeros(63_082_496, np.float32) for _ in range(4))
    yield "adam", lambda: ops.adam_inplace(w, g, m, v, 1e-3, 0.9, 0.98, 1e-9), 7 * w.nbytes
    yield "divide_inplace", lambda: ops.divide_inplace(g, 3), 2 * g.nbytes


# Steps ----------------------------------------------------------------------------------------------------------------


def batch_of(config: Config, pairs: int, length: int) -> Batch:
    (batch,) = micro_batches(pairs_of(pairs, length, length, config.model.vocab_size, 1), 1)
    return batch


def our_step(model: Transformer, config: Config, batch: Batch, device: Gpu) -> Callable[[], None]:
    training = config.training
    with using(*device.ops):
        parallel = DataParallel(model, 1, ops=device.ops)
        optimizer = Adam(model, (training.beta1, training.beta2), training.eps)

    def step() -> None:
        with using(*device.ops):
            _, n_tokens = parallel.step_gradient([batch], training, optimizer.t + 1)
            norm = parallel.average_inplace(n_tokens)
            optimizer.step(noam(optimizer.t + 1, config.model.d_model, training.warmup), norm)
            model.zero_grad()

    return step


def measure_ours(config: Config, precision: str, pairs: int, length: int) -> dict[str, Any]:
    device, batch = Gpu(0, precision), batch_of(config, pairs, length)
    pool = device.xp.get_default_memory_pool()
    pool.free_all_blocks()
    model = Transformer(config.model)
    device.to_device(model)
    step = our_step(model, config, batch, device)
    step()
    device.xp.cuda.Device().synchronize()
    began = time.perf_counter()
    step()
    launching = time.perf_counter() - began  # the GPU had nothing else to do
    return figures(seconds_of(step), batch, pool.total_bytes()) | {"seconds_to_launch": launching}


def measure_pytorch(config: Config, precision: str, pairs: int, length: int, compiled: bool) -> dict[str, Any]:
    import torch
    from rival import Rival, adam, to_tensors

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    batch, training = batch_of(config, pairs, length), config.training
    rival = Rival(config.model, length).cuda()
    tensors = to_tensors(batch)
    tensors = tensors._replace(**{name: getattr(tensors, name).cuda() for name in tensors._fields[:3]})
    optimizer = adam(rival, training)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    scaler = torch.amp.GradScaler(enabled=precision == "fp16")
    loss_of = torch.compile(rival.loss, dynamic=False) if compiled else rival.loss

    def step() -> None:
        with torch.autocast("cuda", dtype, enabled=precision in ("bf16", "fp16")):
            loss = loss_of(tensors, training) / batch.n_target_tokens
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    for _ in range(WARM_UP):
        step()
    torch.cuda.reset_peak_memory_stats()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(REPETITIONS):
        step()
    ended.record()
    ended.synchronize()
    return figures(began.elapsed_time(ended) / 1000 / REPETITIONS, batch, torch.cuda.max_memory_reserved())


def figures(seconds: float, batch: Batch, peak_bytes: int) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "target_tokens_per_second": round(batch.n_target_tokens / seconds),
        "peak_bytes": peak_bytes,
    }


# All of it ------------------------------------------------------------------------------------------------------------


def tests() -> dict[str, Any]:
    """Run the tests that need a GPU -> pytest's exit code and its last line."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-W", "default", "tests/backends/cuda", "tests/parallel"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout[-4000:])
    return {"exit_code": done.returncode, "summary": done.stdout.strip().splitlines()[-1]}


def or_failure(work: Callable[[], Any]) -> Any:
    """What it returns, or in one line why it fails: the rest is measured all the same. Memory is freed."""
    try:
        return work()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}
    finally:
        gc.collect()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


def print_table(result: dict[str, Any]) -> None:
    print(f"\n{result['gpu']}\ntests: {result['tests'].get('summary')}\nceilings: {result['ceilings']}\n")
    copy = result["ceilings"].get("copy_bytes_per_second", float("nan"))
    for precision, of_precision in result["kernels"].items():
        for name, rate in of_precision.items():
            print(
                f"{precision:10} {name:26} "
                + (
                    rate["failed"]
                    if isinstance(rate, dict)
                    else f"{rate / 1e9:7,.0f} GB/s {rate / copy:4.0%} of copying"
                )
            )
    print(f"\n{'step':6} {'precision':10} {'who':14} {'ms':>8} {'tokens/s':>10} {'GB':>6}")
    for row in result["steps"]:
        print(
            f"{row['model']:6} {row['precision']:10} {row['who']:14} "
            + (
                row["failed"]
                if "failed" in row
                else f"{1000 * row['seconds']:8.1f} "
                f"{row['target_tokens_per_second']:10,} {row['peak_bytes'] / 1e9:6.1f}"
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=names_from(MODELS), default=list(MODELS), help="(default: base,big)")
    parser.add_argument(
        "--precisions",
        type=names_from(STORED_AS),
        default=["bf16", "tf32", "fp16", "fp32"],
        help="(default: bf16,tf32,fp16,fp32)",
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out: it takes minutes")
    parser.add_argument("--minutes", type=float, default=9, help="no rival begins after these (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    parser.add_argument("--quick", action="store_true", help="small batches, to see that it runs")
    arguments, began = parser.parse_args(), time.perf_counter()
    if not arguments.out.is_dir():
        parser.error(f"--out: {arguments.out} is no directory")
    try:
        device = Gpu(0, "fp32")
    except ValueError as error:  # UserError is one
        parser.error(str(error))

    pairs, length = (8, 10) if arguments.quick else (PAIRS, LENGTH)
    result: dict[str, Any] = {
        "benchmark": "gpu_smoke",
        "gpu": device.describe(),
        "pairs": pairs,
        "length": length,
        "repetitions": REPETITIONS,
        "seeds": {"batch": 1, "weights": 0},
        "kernels": {},
        "steps": [],
        **surroundings(),
    }
    result["versions"] |= {"cupy": device.xp.__version__, "driver": device.xp.cuda.runtime.driverGetVersion()}
    rivals = ["pytorch", "torch.compile"][: 0 if find_spec("torch") is None else 1 if arguments.no_compile else 2]
    if rivals:
        result["versions"]["torch"] = version("torch")

    def keep() -> None:
        write(arguments.out, "gpu_smoke", result)

    result["tests"] = or_failure(tests)
    result["ceilings"] = or_failure(lambda: ceilings(device))
    keep()
    for precision in arguments.precisions:
        if precision != "tf32":  # its kernels are those of fp32
            of_precision = result["kernels"][precision] = {}
            for name, call, needed in kernels(device, precision):
                of_precision[name] = or_failure(lambda: needed / seconds_of(call))
                keep()
    for who in ("scratchformer", *rivals):
        for model, precision in itertools.product(arguments.models, arguments.precisions):
            if who != "scratchformer" and time.perf_counter() - began > 60 * arguments.minutes:
                break
            what = configs.preset(model), precision, pairs, length
            measured = or_failure(
                lambda: (
                    measure_ours(*what) if who == "scratchformer" else measure_pytorch(*what, compiled=who != "pytorch")
                )
            )
            result["steps"].append({"model": model, "precision": precision, "who": who, **measured})
            keep()
    print_table(result)
    if result["tests"].get("exit_code") != 0:
        sys.exit("gpu_smoke.py: tests failed")


if __name__ == "__main__":
    main()
