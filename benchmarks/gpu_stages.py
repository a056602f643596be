"""One stage of gpu_first_contact.py, in the process that is started for it.

    python benchmarks/gpu_stages.py kernels [--quick]

Records, which `tell` writes, are lines of the output; everything else there is for people.
"""

from __future__ import annotations

import argparse
import configparser
import ctypes
import faulthandler
import gc
import importlib.metadata
import json
import os
import platform
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable

from gpu_first_contact import MARK

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = os.dup(1)
"""pytest captures what is written to 1."""

TESTS = {
    "kernels": "test_kernels",
    "products": "test_gemm",
    "gradient": "loss_and_gradients_are_those_of_the_cpu",
    "steps": "a_run_on_the_device_equals or a_run_of_a_language_model_equals",
    "resume": "a_resumed_run_equals or a_checkpoint_can_move",
    "nccl": "one_rank_keeps_its_numbers or a_gradient_is_sent_in_bf16",
}
"""Stage -> pytest's -k for the tests marked `gpu` that are this stage."""

TESTS["rest"] = f"not ({' or '.join(TESTS.values())})"


def tell(**record: Any) -> None:
    """now: what is being done. what: what was done, with its numbers or, in `failed`, why there are none."""
    os.write(OUTPUT, f"\n{MARK}{json.dumps(record)}\n".encode())


def attempt(what: str, work: Callable[[], dict[str, Any]]) -> None:
    """Tell what the work returns, or in one line why it fails."""
    from scratchformer.errors import in_one_line

    tell(now=what)
    try:
        tell(what=what, **work())
    except Exception as error:
        traceback.print_exc()
        tell(what=what, failed=f"{type(error).__name__}: {in_one_line(error)}")
    gc.collect()


# The stages -----------------------------------------------------------------------------------------------------------


def environment() -> None:
    attempt("versions", lambda: known(versions))
    attempt("surroundings", lambda: known(surroundings))
    attempt("device", device)


def known(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it returns. If it fails, the GPU may be right all the same."""
    try:
        return work()
    except Exception as error:
        return {"unknown": str(error)}


def versions() -> dict[str, Any]:
    """Of Python, of what the project requires (None: missing), and of what belongs to CUDA."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    required = re.findall(r"^[\w-]+(?=[^;]*$)", setup["options"]["install_requires"], re.MULTILINE)
    found: dict[str, Any] = {"python": platform.python_version(), **dict.fromkeys(required)}
    for distribution in importlib.metadata.distributions():
        name = str(distribution.metadata["Name"]).lower().replace("_", "-")
        if name in required or re.match("(torch|triton|pytest|ml-dtypes)$|cupy|nvidia-", name):
            found[name] = distribution.version
    return found


def surroundings() -> dict[str, Any]:
    from provenance import surroundings

    return surroundings()


def device() -> dict[str, Any]:
    """Raises if CuPy cannot use a GPU."""
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    free, total = runtime.memGetInfo()
    assert (cupy.asarray([1, 2, 3]).get() == [1, 2, 3]).all()
    return {
        "name": properties["name"].decode(),
        "compute_capability": cupy.cuda.Device(0).compute_capability,
        "gpus": runtime.getDeviceCount(),
        "memory_bytes": total,
        "free_bytes": free,
        "cuda_of_driver": runtime.driverGetVersion(),
        "cuda_of_cupy": runtime.runtimeGetVersion(),
        "kernel_cache_is_writable": is_writable(Path(os.environ.get("CUPY_CACHE_DIR", os.path.expanduser("~/.cupy")))),
    }


def is_writable(directory: Path) -> bool:
    """Otherwise each process compiles all kernels anew: CUPY_CACHE_DIR names another directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return os.access(directory, os.W_OK)
    except OSError:
        return False


def compile_kernels() -> None:
    from scratchformer.backends.cuda.device import STORED_AS
    from scratchformer.backends.cuda.kernels import KERNELS, CupyKernels
    from scratchformer.backends.device import dtype_named

    for stored in dict.fromkeys(STORED_AS.values()):

        def work() -> dict[str, Any]:
            CupyKernels().module(dtype_named(stored))
            return {"instances": sum(len(kernel.instances(stored)) for kernel in KERNELS.values())}

        attempt(stored, work)


def run_tests(name: str, quick: bool) -> int:
    """-> pytest's exit code"""
    import pytest

    class Reporter:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items):
            if quick:
                del items[1:]

        def pytest_collectreport(self, report):
            if report.failed:
                tell(what=report.nodeid, failed=str(report.longrepr).strip().splitlines()[-1])

        def pytest_runtest_logstart(self, nodeid):
            tell(now=nodeid)

        def pytest_runtest_logreport(self, report):
            if report.skipped:  # there is a GPU, so no test may be skipped
                tell(what=report.nodeid, failed=f"skipped: {report.longrepr[-1]}")
            elif report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                tell(what=report.nodeid, failed=str(crash.message if crash else report.longrepr).partition("\n")[0])
            elif report.when == "call":
                tell(what=report.nodeid, seconds=round(report.duration, 3))

    # pytest's own faulthandler would cancel ours at the first test that fails.
    options = "-m gpu -W default --disable-warnings --tb=short -p no:cacheprovider -p no:faulthandler".split()
    places = [str(ROOT / "tests" / place) for place in ("backends/cuda", "parallel")]
    return int(pytest.main([*options, "-k", TESTS[name], *places], plugins=[Reporter()]))


def speed(name: str, quick: bool) -> None:
    if name.endswith(("-pytorch", "-compile")):
        import torch

        if not torch.cuda.is_available():
            tell(**{"not run": "PyTorch sees no GPU"})
            return
    import gpu_speed

    for what, work in gpu_speed.STAGES[name](gpu_speed.QUICK if quick else gpu_speed.FULL):
        attempt(what, work)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stage")
    parser.add_argument("--seconds", type=float, help="print where the threads are shortly before these are over")
    parser.add_argument("--quick", action="store_true", help="one test, or tiny models")
    parser.add_argument("--checked", action="store_true", help="started by compute-sanitizer")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # for ranks
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if given.checked:
        import cupy

        cupy.cuda.set_allocator(None)  # in CuPy's pool, no access outside of an array would be noticed
    else:  # ends with the thread that started it, so that nothing is left on the GPU; compute-sanitizer's may end early
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    faulthandler.enable(OUTPUT)
    if given.seconds:
        faulthandler.dump_traceback_later(0.9 * given.seconds, file=OUTPUT)
    if given.stage in TESTS:
        return run_tests(given.stage, given.quick)
    if given.stage.startswith("speed"):
        speed(given.stage, given.quick)
    else:
        {"environment": environment, "compile": compile_kernels}[given.stage]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
