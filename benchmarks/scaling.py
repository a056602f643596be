"""Speed-up of N devices over one.

    python benchmarks/scaling.py [--quick] [--out DIR]                             # all GPUs of this machine
    python benchmarks/scaling.py --device cpu                                      # 1 and 2 processes of one core each

    weak    each device has a micro-batch as large as that of one device alone: N times the work in, one hopes, the
            same time; efficiency = seconds of one / seconds of N
    strong  N devices share the step of one; efficiency = seconds of one / (N * seconds of N)

A step is forward, backward, the sum over the devices, Adam. Its seconds are the minimum over the repetitions, the
processes meeting before each.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cpu_step import micro_batches, pairs_of
from harness import record
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


def work(ranks: Communicator, preset: str, device_name: str, pairs: int, repetitions: int, file: str) -> None:
    """Take steps; rank 0 writes what it measured to the file. The pairs of a step are cut into a micro-batch a rank."""
    config = configs.preset(preset)
    device = open_device(device_name, "bf16" if device_name == "gpu" else "", ranks.local_rank)
    model, settings = Transformer(config.model), config.training
    device.to_device(model)
    between = device.communicator(ranks)
    with using(*device.ops):
        parallel, optimizer = DataParallel(model, 1, between, ops=device.ops), Adam(model)
    batches = micro_batches(pairs_of(pairs, LENGTH, LENGTH, config.model.vocab_size, 1), ranks.size)
    seconds: list[float] = []
    with using(*device.ops):
        for _ in range(repetitions + 1):  # the first one warms up
            ranks.barrier()
            began = time.perf_counter()
            _, n_tokens = parallel.step_gradient(batches, settings, optimizer.t + 1)
            norm = parallel.average_inplace(n_tokens)
            optimizer.step(noam(optimizer.t + 1, config.model.d_model, settings.warmup), norm)
            device.read_back(norm)()
            seconds.append(time.perf_counter() - began)
            model.zero_grad()
    if ranks.rank == 0:
        found = {
            "step": min(seconds[1:]),
            "processes": ranks.size,
            "tokens": n_tokens,
            "device": device.describe(),
            "preset": preset,
        }
        Path(file).write_text(json.dumps(found))


def measured(preset: str, device: str, processes: int, times: int, quick: bool) -> dict[str, Any]:
    """Seconds of a step, which is `times` the work of one device."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        task = preset, device, (2 if quick else TOKENS[preset] // LENGTH) * times, 2 if quick else 12, str(file)
        if code := launcher.launch([sys.executable, __file__, "--as-rank", json.dumps(task)], processes):
            raise SystemExit(code)
        return json.loads(file.read_text())


def gpus() -> int:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:  # no CuPy, no driver: no GPU
        return 0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device, quick, rows = arguments.device, arguments.quick, []
    presets = ["tiny"] if quick else ["multi30k"] if device == "cpu" else ["base", "big"]
    sizes = [1, 2] if device == "cpu" else [size for size in (1, 2, 4, 8) if size <= gpus()]
    if not sizes:
        raise SystemExit("there is no GPU here; --device cpu measures processes")
    for preset in presets:
        for mode in ("weak", "strong"):
            for size in sizes:
                row = measured(preset, device, size, size if mode == "weak" else 1, quick)
                one = rows[-1]["one"] if size > 1 else row["step"]
                row["efficiency"] = one / row["step"] / (1 if mode == "weak" else size)
                rows.append(row | {"mode": mode, "one": one})
                print(preset, mode, f"{size} processes: {row['step']:.3f} s a step, efficiency {row['efficiency']:.0%}")
    return {"name": f"scaling_{device}", "length": LENGTH, "results": rows}


if __name__ == "__main__":
    if "--as-rank" in sys.argv:
        with job.join(600) as ranks, threadpool_limits(1, "blas"):
            work(ranks, *json.loads(sys.argv[2]))
    else:
        record("scaling", __doc__, measure, options, threads=None)
