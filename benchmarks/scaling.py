"""How much faster are N devices than one? Measured where there are several, else expected, and marked as a model.

    python benchmarks/scaling.py [--quick] [--out DIR]                             # all GPUs of this machine; or no GPU
    python benchmarks/scaling.py --device cpu                                      # 1 and 2 processes of one core each

    weak    each device has a micro-batch as large as that of one device alone: N times the work in, one hopes, the
            same time; efficiency = seconds of one / seconds of N
    strong  N devices share the step of one; efficiency = seconds of one / (N * seconds of N)

A step is forward, backward, the sum over the devices, Adam. Its seconds are the minimum over the repetitions, the
processes meeting before each. The model (`expected_seconds`) takes the time of a step on one device, the sizes of the
buckets and the bandwidth between devices: a bucket is sent when backward has filled it and the one before is through;
backward is two thirds of forward and backward, and its layers take as much of it as they hold of the parameters.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from cpu_step import micro_batches, pairs_of
from provenance import surroundings
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.device import open_device
from scratchformer.config import Config
from scratchformer.nn.ops import using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.sizes import parameter_shapes
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel import job, launcher
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum
from scratchformer.training.data_parallel import DataParallel

RESULTS = Path(__file__).parent / "results"
LENGTH = 32
TOKENS = {"base": 25_000, "big": 25_000, "multi30k": 1024, "tiny": 512}
"""Target tokens of a micro-batch; one of the paper's steps for its own models."""

LINKS = {"370 GB/s, NVLink within a machine": 370e9, "40 GB/s, PCIe 5": 40e9, "10 GB/s, a network of 100 Gb/s": 10e9}
"""Bytes per second and direction that a sum over all devices reaches: orders of magnitude, not measured here."""

GOALS = {"base": 25_000 / 600e3, "big": 25_000 / 250e3}
"""Seconds of a step on one GPU that docs/gpu.md names as goals; they stand in for a measurement."""

MEMORY = 3.8e12
"""Bytes per second of an H200's memory, four fifths of what its maker says: as fast as that are Adam and the norm."""

LATENCY = 30e-6
"""Seconds that a message takes, however short."""

# One rank -------------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What the ranks are told, as JSON: so many pairs in a step of a preset, cut into a micro-batch for each."""

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


def bucket_sizes(config: Config) -> list[int]:
    """Numbers in each bucket, in the order in which they are sent, without building the model."""
    n, sizes = config.model.N, {name: math.prod(shape) for name, shape in parameter_shapes(config.model).items()}
    encoder, decoder = (
        sum(size for name, size in sizes.items() if name.startswith(f"{stack}.layers.0."))
        for stack in ("encoder", "decoder")
    )
    first = sum(sizes.values()) - n * (encoder + decoder)
    begins = np.cumsum([first, *[encoder] * n, *[decoder] * n])
    total = GradientSum(Communicator(), np.broadcast_to(np.float32(0), int(begins[-1])), begins[:-1].tolist())
    return [bucket.stop - bucket.start for bucket in total.buckets]


def expected_seconds(compute: float, rest: float, buckets: Sequence[int], size: int, bandwidth: float) -> float:
    """Seconds of a step on `size` devices: a model.

    compute  seconds of forward and backward on each device;  rest: of Adam, when the sum is there
    """
    layers = buckets[:-1] or buckets  # the last one, the embeddings, is
    behind = np.cumsum(layers) / sum(layers)  # full when backward ends
    full = compute * (1 / 3 + 2 / 3 * np.append(behind, [1.0] * (len(buckets) - len(layers))))
    free = 0.0
    for numbers, when in zip(buckets, full):
        free = max(free, float(when)) + LATENCY + 2 * (size - 1) / size * 4 * numbers / bandwidth
    return max(compute, free) + rest


def model_rows() -> list[dict[str, Any]]:
    """What to expect of GPUs nobody here has: a step as fast as the goals say, links as fast as they are said to be."""
    rows = []
    for preset, step in GOALS.items():
        buckets = bucket_sizes(configs.preset(preset))
        rest = 9 * 4 * sum(buckets) / MEMORY  # Adam: 7 arrays; the mean: 2
        compute = step - rest
        for link, bandwidth in LINKS.items():
            for size in (2, 4, 8):
                weak = step / expected_seconds(compute, rest, buckets, size, bandwidth)
                strong = step / size / expected_seconds(compute / size, rest, buckets, size, bandwidth)
                rows.append(
                    {
                        "model": True,
                        "preset": preset,
                        "step_seconds_assumed": step,
                        "link": link,
                        "processes": size,
                        "weak": weak,
                        "strong": strong,
                    }
                )
    return rows


def with_expectation(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each measured row of weak scaling with what the model says of it, from the times of one and the sum by itself."""
    for row in rows:
        if row["mode"] == "weak" and row["processes"] > 1:
            one = next(each for each in rows if each["preset"] == row["preset"] and each["processes"] == 1)
            buckets, size = bucket_sizes(configs.preset(row["preset"])), row["processes"]
            compute = one["forward and backward"]
            bandwidth = 2 * (size - 1) / size * 4 * sum(buckets) / row["sum"]
            expected = expected_seconds(compute, one["step"] - compute, buckets, size, bandwidth)
            row |= {"bandwidth": bandwidth, "expected_efficiency": one["step"] / expected}
    return rows


def gpus() -> int:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:  # no CuPy, no driver: no GPU
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--quick", action="store_true", help="sizes that show nothing, for a test")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--as-rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        with job.join(600) as ranks, threadpool_limits(1, "blas"):
            return work(Task(*json.loads(args.as_rank)), ranks)
    n_gpus = gpus() if args.device == "gpu" else 0
    presets = ["tiny"] if args.quick else ["multi30k"] if args.device == "cpu" else ["base", "big"]
    sizes = [1, 2] if args.device == "cpu" else [size for size in (1, 2, 4, 8) if size <= n_gpus]
    rows = with_expectation(measure(args.device, sizes, presets, args.quick)) if sizes else model_rows()
    for row in rows:
        print(line_of(row))
    if not sizes:
        print("No GPU here: this is a model, not a measurement; see expected_seconds.")
    name = f"scaling_{args.device}" if sizes else "scaling_model"
    result = {
        "benchmark": "scaling",
        "command": f"python benchmarks/scaling.py --device {args.device}",
        "provenance": surroundings(),
        "length": LENGTH,
        "results": rows,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def line_of(row: dict[str, Any]) -> str:
    if row.get("model"):
        return (
            f"{row['preset']:8} {row['processes']} GPUs, {row['link']:34} expected efficiency: "
            f"weak {row['weak']:4.0%}, strong {row['strong']:4.0%}"
        )
    expected = f", expected {row['expected_efficiency']:.0%}" if "expected_efficiency" in row else ""
    return (
        f"{row['preset']:8} {row['processes']} processes, {row['mode']:6} {row['step'] * 1e3:8.1f} ms a step, "
        f"{row['tokens'] / row['step']:9,.0f} tokens/s, efficiency {row['efficiency']:4.0%}{expected}"
    )


if __name__ == "__main__":
    main()
