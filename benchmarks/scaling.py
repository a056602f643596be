"""Speed-up of N devices over one.

    python benchmarks/scaling.py [--quick] [--out DIR]                             # all GPUs of this machine
    python benchmarks/scaling.py --device cpu                                      # 1 and 2 processes of one core each

    weak    each device has a micro-batch as large as that of one device alone: N times the work in, one hopes, the
            same time; efficiency = seconds of one / seconds of N
    strong  N devices share the step of one; efficiency = seconds of one / (N * seconds of N)

A step is forward, backward, the sum over the devices, Adam. Its seconds are the minimum over the repetitions, the
processes meeting before each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Sequence

from cpu_step import micro_batches, pairs_of
from small_training import record
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.device import open_device
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel import job, launcher
from scratchformer.parallel.communicator import Communicator
from scratchformer.training.data_parallel import DataParallel

LENGTH = 32
TOKENS = {"base": 25_000, "big": 25_000, "multi30k": 1024, "tiny": 512}
"""Target tokens of a micro-batch; one of the paper's steps for its own models."""

# One rank -------------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """The task of the ranks, sent as JSON: so many pairs in a step of a preset, cut into a micro-batch for each."""

    preset: str
    device: str
    pairs: int
    repetitions: int
    file: str


def work(task: Task, ranks: Communicator) -> None:
    """Take steps; rank 0 writes what it measured to the task's file."""
    config = configs.preset(task.preset)
    device = open_device(task.device, "bf16" if task.device == "gpu" else "", ranks.local_rank)
    model = Transformer(config.model)
    device.to_device(model)
    between = device.communicator(ranks)
    with using(*device.ops):
        parallel, optimizer = DataParallel(model, 1, between, ops=device.ops), Adam(model)
    pairs = pairs_of(task.pairs, LENGTH, LENGTH, config.model.vocab_size, 1)
    batches, settings = micro_batches(pairs, ranks.size), config.training
    seconds: dict[str, list[float]] = {"step": [], "forward and backward": [], "sum": []}
    with using(*device.ops):
        for _ in range(task.repetitions + 1):  # the first one warms up
            ranks.barrier()
            began = time.perf_counter()
            loss, n_tokens = parallel.step_gradient(batches, settings, optimizer.t + 1)
            device.read_back(loss)()
            seconds["forward and backward"].append(time.perf_counter() - began)
            norm = parallel.average_inplace(n_tokens)
            optimizer.step(noam(optimizer.t + 1, config.model.d_model, settings.warmup), norm)
            device.read_back(norm)()
            seconds["step"].append(time.perf_counter() - began)
            model.zero_grad()
            ranks.barrier()
            began = time.perf_counter()
            between.all_reduce_inplace(model.store.grad)
            between.wait()
            device.read_back(model.store.grad[0])()
            seconds["sum"].append(time.perf_counter() - began)
    if ranks.rank == 0:
        found = {name: min(each[1:]) for name, each in seconds.items()}
        Path(task.file).write_text(
            json.dumps(
                found
                | {"processes": ranks.size, "tokens": n_tokens, "device": device.describe(), "preset": task.preset}
            )
        )


def measured(preset: str, device: str, processes: int, work_of: int, quick: bool) -> dict[str, Any]:
    """Seconds of a step, of its forward and backward, and of a sum by itself.   Raises SystemExit if a rank fails.

    work_of  so many processes, each with as much to do as one alone
    """
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "result.json")
        pairs = (2 if quick else TOKENS[preset] // LENGTH) * work_of
        task = Task(preset, device, pairs, 2 if quick else 12, file)
        code = launcher.launch([sys.executable, __file__, "--as-rank", json.dumps(task)], processes)
        if code:
            raise SystemExit(code)
        return json.loads(Path(file).read_text())


# All of them ----------------------------------------------------------------------------------------------------------


def measure(device: str, sizes: Sequence[int], presets: Sequence[str], quick: bool) -> list[dict[str, Any]]:
    """Rows: preset, mode, processes, seconds, efficiency."""
    rows = []
    for preset in presets:
        for mode in ("weak", "strong"):
            for size in sizes:
                row = measured(preset, device, size, size if mode == "weak" else 1, quick)
                one = rows[-1]["one"] if size > 1 else row["step"]
                efficiency = one / row["step"] / (1 if mode == "weak" else size)
                rows.append(row | {"mode": mode, "efficiency": efficiency, "one": one})
    return rows


def gpus() -> int:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:  # no CuPy, no driver: no GPU
        return 0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")


def of_devices(arguments: argparse.Namespace) -> dict[str, Any]:
    n_gpus = gpus() if arguments.device == "gpu" else 0
    presets = ["tiny"] if arguments.quick else ["multi30k"] if arguments.device == "cpu" else ["base", "big"]
    sizes = [1, 2] if arguments.device == "cpu" else [size for size in (1, 2, 4, 8) if size <= n_gpus]
    if not sizes:
        raise SystemExit("there is no GPU here; --device cpu measures processes")
    rows = measure(arguments.device, sizes, presets, arguments.quick)
    for row in rows:
        print(
            f"{row['preset']:8} {row['processes']} processes, {row['mode']:6} {row['step'] * 1e3:8.1f} ms a step, "
            f"{row['tokens'] / row['step']:9,.0f} tokens/s, efficiency {row['efficiency']:4.0%}"
        )
    return {"name": f"scaling_{arguments.device}", "length": LENGTH, "results": rows}


if __name__ == "__main__":
    if "--as-rank" in sys.argv:
        with job.join(600) as ranks, threadpool_limits(1, "blas"):
            work(Task(*json.loads(sys.argv[2])), ranks)
    else:
        record("scaling", __doc__, of_devices, options, threads=None)
