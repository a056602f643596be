"""Measure the cost of a training by some of its steps. Nothing is written."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.backends.device import open_device
from scratchformer.config import Config
from scratchformer.experiments.flops import training_flops
from scratchformer.experiments.sizes import format_duration
from scratchformer.limits import machine_memory_bytes
from scratchformer.parallel.communicator import Communicator
from scratchformer.tasks.task import task_named
from scratchformer.text.batches import steps
from scratchformer.training.run import RunDirectory
from scratchformer.training.schedule import planned_steps
from scratchformer.training.trainer import Trainer

N_STEPS = 3


def dry_run(config: Config) -> list[str]:
    """Take the largest step of the first epoch, then three steps -> lines on the memory and the time of the run."""
    settings = config.training
    device = open_device(settings.device, settings.precision)
    tokenizer, config, data = task_named(config.data.task).begin(config, Communicator())
    trainer = Trainer(RunDirectory(Path("nowhere")), config, data, tokenizer, device)
    memory = device.memory_bytes()
    there = machine_memory_bytes() if memory is None else memory
    epoch = trainer.plan.epoch(0)
    with threadpool_limits(trainer.blas_threads, "blas"):
        largest = step_bytes(trainer, max(epoch, key=lambda step: data.train.lengths[step].max() * len(step)))
        seconds = flops = n_tokens = 0.0
        for number, index, indices in islice(steps(trainer.plan, 0, 0), N_STEPS):
            entry = trainer.finish(trainer.step(number, index, indices))
            read = entry["source_tokens"] if config.model.reads_text else entry["positions"]
            n = len(indices)
            flops += training_flops(config.model, n, read / n, entry["target_tokens"] / n) / N_STEPS
            seconds, n_tokens = seconds + entry["seconds"], n_tokens + entry["target_tokens"]
    tokens_of_step, rate = data.train.n_targets / len(epoch), n_tokens / seconds
    n_steps = planned_steps(config, data.train.n_targets, len(epoch))
    a_step = tokens_of_step / rate
    rows = [
        ("parameters", f"{trainer.model.store.data.size:,}", ""),
        ("weights, gradients, moments", mib(lasting_bytes(trainer)), ""),
        ("activations of the largest step", mib(largest), "measured"),
        ("memory there is", "unknown" if there is None else mib(there), ""),
        ("FLOPs of a step", f"{flops:.2e}", f"matrix products, without padding; mean of {N_STEPS} steps"),
        ("target tokens a second", f"{rate:,.0f}", f"measured, {N_STEPS} steps"),
        ("time of a mean step", format_duration(a_step), f"{tokens_of_step:,.0f} target tokens"),
        ("time of the run", f"{n_steps * a_step / 3600:,.2f} hours", f"{n_steps:,} steps, without validation"),
    ]
    return [f"{name:32}{value:>16}  {remark}".rstrip() for name, value, remark in rows]


def lasting_bytes(trainer: Trainer) -> int:
    """Memory of weights and their copy in another precision, the gradient of each thread, and Adam's two moments."""
    store = trainer.model.store
    copy = 0 if store.stored is store.data else store.stored.nbytes
    return 3 * store.data.nbytes + copy + sum(replica.store.grad.nbytes for replica in trainer.parallel.replicas)


def step_bytes(trainer: Trainer, indices: np.ndarray) -> int:
    """Take a step -> the most memory that it takes at a time, beside the lasting arrays"""
    before = trainer.device.memory_bytes()
    tracemalloc.start()
    try:
        trainer.finish(trainer.step(0, 0, indices))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    after = trainer.device.memory_bytes()
    return peak if before is None or after is None else max(0, before - after)


def mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
