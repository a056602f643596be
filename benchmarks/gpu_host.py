"""How much has the host to do for a GPU: launches, products, copies and its time, with a driver that does nothing.

    python benchmarks/gpu_host.py [--against COMMIT] [--models tiny,base,big] [--precision bf16] [--repetitions N]
                                  [--out DIR]

A training step of the paper's batch, 833 pairs of 30 tokens a side, and a position of a translation of 256 sentences.
Real CuPy runs on null_cuda.cpp, which counts what it is asked for and computes nothing. This needs no GPU, but what the
emulated GPU of the tests needs (tests/emulated_gpu). With --against, this commit and an earlier one take turns.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import mmap
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Callable, Iterator

from cpu_commits import checkout
from cpu_step import RESULTS, names_from, pairs_of, positive
from provenance import surroundings
from small_training import write

ROOT = Path(__file__).resolve().parents[1]
EMULATED = ROOT / "tests" / "emulated_gpu"

MODELS = "tiny", "base", "big"
PAIRS, LENGTH, SENTENCES = 833, 30, 256
FEW, MANY = 20, 60
"""Positions of two translations, whose difference is the cost of a position."""

CALLS = "launches", "products", "copies", "memsets"

# The process that is measured -----------------------------------------------------------------------------------------


class NullDriver:
    """Real CuPy with a driver that does nothing."""

    def __init__(self) -> None:
        sys.path.append(str(EMULATED))
        import emulation

        emulation.install()
        import cupy
        from cupy.cuda import compiler, thrust

        path = emulation.compiled(emulation.cache() / "null_cuda.so", "-O2", Path(__file__).with_name("null_cuda.cpp"))
        self.null = ctypes.CDLL(str(path))
        for name in re.findall(r" FUNC +GLOBAL DEFAULT +\d+ (cu\w+)$", emulation.symbols(path), re.MULTILINE):
            jump(from_=getattr(emulation.library(), name), to=getattr(self.null, name))
        compiler._NVRTCProgram = Uncompiled
        thrust.argsort = lambda *arguments: None  # of the searches of earlier commits
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
        self.null.null_counts.restype = ctypes.c_char_p

    def counts(self) -> Counter:
        """How often each kernel was launched so far, and the other functions of the driver were called."""
        lines = self.null.null_counts().decode().splitlines()
        return Counter({name: int(count) for count, name in (line.split(" ", 1) for line in lines)})


def jump(from_: Any, to: Any) -> None:
    """From now on, the second function runs in place of the first. For x86-64."""
    begin, target = (ctypes.cast(function, ctypes.c_void_p).value for function in (from_, to))
    page = begin // mmap.PAGESIZE * mmap.PAGESIZE
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), 7)
    code = b"\x49\xbb" + target.to_bytes(8, "little") + b"\x41\xff\xe3"  # mov r11, target; jmp r11
    ctypes.memmove(begin, code, len(code))


class Uncompiled:
    """In place of CuPy's compiler."""

    def __init__(self, src, name="", headers=(), include_names=(), name_expressions=None, method="ptx"):
        self.names = {name: name for name in name_expressions or ()}

    def compile(self, options=(), log_stream=None):
        return b"nothing", self.names


def in_kinds(counts: Counter) -> dict[str, int]:
    """Launches, products, copies and memsets."""
    kinds = {"product": "products", "copy": "copies", "memset": "memsets"}
    found = dict.fromkeys(CALLS, 0)
    for name, n in counts.items():
        found[kinds.get(name, "launches")] += n
    return found


def training_step(model: Any, config: Any, device: Any) -> Callable[[], None]:
    """What `Trainer.step` does."""
    import numpy as np

    from scratchformer.nn.ops import using
    from scratchformer.nn.optim import Adam, noam
    from scratchformer.text.batches import BatchPlan
    from scratchformer.training.data_parallel import DataParallel

    training = config.training
    plan = BatchPlan(pairs_of(PAIRS, LENGTH, LENGTH, config.model.vocab_size, 1), PAIRS * LENGTH, 1, seed=0)
    with using(*device.ops):
        parallel = DataParallel(model, 1, ops=device.ops)
        optimizer = Adam(model, (training.beta1, training.beta2), training.eps)
    pending = []

    def step() -> None:
        batches = plan.micro_batches(np.arange(PAIRS))
        with using(*device.ops):
            loss_sum, n_tokens = parallel.step_gradient(batches, training, optimizer.t + 1)
            norm = parallel.average_inplace(n_tokens)
            optimizer.step(noam(optimizer.t + 1, config.model.d_model, training.warmup), norm)
            device.adapt_loss_scale(norm)
            model.zero_grad()
            pending[:] = device.read_back(loss_sum / n_tokens), device.read_back(norm)

    return step


def translation(model: Any, config: Any, device: Any, beam: int, positions: int) -> Callable[[], None]:
    """Search for translations that end after so many positions, because the driver's answer to everything is 0."""
    import numpy as np

    from scratchformer.decoding.search import search
    from scratchformer.nn.ops import using

    sources = np.random.default_rng(1).integers(4, config.model.vocab_size, (SENTENCES, LENGTH), np.int32)

    def translate() -> None:
        with using(*device.ops):
            search(model, sources, beam, extra_length=positions - LENGTH)

    return translate


def by_operation(work: Callable[[], None], device: Any, driver: NullDriver) -> list[dict[str, Any]]:
    """The calls of each operation, those in an operation that it uses not counted, and of what calls no operation."""
    from scratchformer.nn.ops import Ops

    found: dict[str, Counter] = {}
    stack, last = ["(others)"], driver.counts()

    def settle() -> None:
        nonlocal last
        now = driver.counts()
        found.setdefault(stack[-1], Counter()).update(now - last)
        last = now

    def followed(name: str, method: Callable) -> Callable:
        def call(*arguments: Any, **named: Any) -> Any:
            settle()
            stack.append(name)
            try:
                return method(*arguments, **named)
            finally:
                settle()
                stack.pop()

        return call

    ops = device.ops[-1]
    names = [name for name in vars(Ops) if callable(getattr(Ops, name)) and name[0] != "_" and name != "works_on"]
    for name in names:
        setattr(ops, name, followed(name, getattr(ops, name)))
    try:
        work()
        settle()
    finally:
        for name in names:
            delattr(ops, name)
    rows = [{"operation": name, **in_kinds(counts)} for name, counts in found.items()]
    return sorted(
        (row for row in rows if any(row[kind] for kind in CALLS)), key=lambda row: -row["launches"] - row["products"]
    )


def worker(name: str, precision: str) -> None:
    """Print the calls; then, for each line that is read, do each work twice and print the CPU seconds of the
    second time."""
    driver = NullDriver()
    from scratchformer import config as configs
    from scratchformer.backends.cuda.device import Gpu
    from scratchformer.nn.transformer import Transformer

    config = configs.preset(name)
    device, model = Gpu(0, precision), Transformer(config.model)
    device.to_device(model)
    works = {"training step": training_step(model, config, device)}
    for beam in (1, 4):
        for positions in (FEW, MANY):
            works[f"beam {beam}, {positions} positions"] = translation(model, config, device, beam, positions)
    calls = {}
    for work in works.values():
        work()
        work()
    for key, work in works.items():
        before = driver.counts()
        work()
        calls[key] = in_kinds(driver.counts() - before)
    operations = by_operation(works["training step"], device, driver)
    gc.collect()
    gc.freeze()
    print(json.dumps({"calls": calls, "training_step_by_operation": operations}), flush=True)
    for _ in sys.stdin:
        seconds = {}
        for key, work in works.items():
            work()  # as in a run, where the same work came before
            began = time.process_time()
            work()
            seconds[key] = time.process_time() - began
        print(json.dumps(seconds), flush=True)


# Measuring ------------------------------------------------------------------------------------------------------------


class Worker:
    """The works of the package in one directory, in a process of its own.

    code  what to call the package
    """

    def __init__(self, code: str, root: Path, model: str, precision: str, cache: str) -> None:
        environment = {"PYTHONPATH": str(root), "CUPY_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", model, precision],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.name = f"{model}, {code}"
        self.found = self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.process.communicate()
            sys.exit(f"gpu_host.py: the process of {self.name} ended with exit code {self.process.returncode}")
        return json.loads(line)

    def take(self) -> dict[str, float]:
        """The CPU seconds of each work."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            print(file=self.process.stdin, flush=True)
        return self.read()


def measure(
    roots: dict[str, Path], model: str, precision: str, repetitions: int, cache: str
) -> Iterator[dict[str, Any]]:
    """The calls and the milliseconds of the host, for the code in each directory, which take turns."""
    workers = {name: Worker(name, root, model, precision, cache) for name, root in roots.items()}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for repetition in range(repetitions):
        for name in sorted(workers, reverse=repetition % 2 == 0):
            taken[name].append(workers[name].take())
    for name, worker in workers.items():
        worker.process.terminate()
        calls, row = worker.found["calls"], {"model": model, "precision": precision, "code": name}
        seconds = {key: min(times[key] for times in taken[name]) for key in calls}
        yield {
            **row,
            "what": "training step",
            **calls["training step"],
            "milliseconds": round(1000 * seconds["training step"], 2),
            "by_operation": worker.found["training_step_by_operation"],
        }
        for beam in (1, 4):
            few, many = (f"beam {beam}, {positions} positions" for positions in (FEW, MANY))
            counts = {kind: round((calls[many][kind] - calls[few][kind]) / (MANY - FEW), 1) for kind in CALLS}
            yield {
                **row,
                "what": f"position of {SENTENCES} sentences, beam {beam}",
                **counts,
                "milliseconds": round(1000 * (seconds[many] - seconds[few]) / (MANY - FEW), 2),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", metavar="COMMIT", help="an earlier commit to compare with")
    parser.add_argument("--models", type=names_from(MODELS), default=list(MODELS), help="(default: tiny,base,big)")
    parser.add_argument("--precision", default="bf16", help="(default: %(default)s)")
    parser.add_argument(
        "--repetitions", type=positive, default=20, help="of which the fastest counts (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    sys.path.append(str(EMULATED))
    import emulation

    if reason := emulation.reason_to_skip():
        sys.exit(f"gpu_host.py: {reason.replace('the emulated GPU', 'the driver that does nothing')}")
    result: dict[str, Any] = {
        "provenance": surroundings(),
        "cupy": version(emulation.CUPY[0]),
        "before": arguments.against,
        "repetitions": arguments.repetitions,
        "results": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        roots = {"now": ROOT}
        if arguments.against:
            roots["before"] = Path(folder) / "before"
            checkout(arguments.against, roots["before"])
        for model in arguments.models:
            for row in measure(roots, model, arguments.precision, arguments.repetitions, f"{folder}/cache"):
                result["results"].append(row)
                counts = ", ".join(f"{row[kind]:6} {kind}" for kind in CALLS)
                print(f"{model:5} {row['code']:7} {row['what']:35} {counts}, {row['milliseconds']:7.2f} ms", flush=True)
    write(arguments.out, "gpu_host", result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:4])
    else:
        main()
