"""Choosing a device: errors are reported in one line. And kernels.cu compiles for several kinds of GPU."""

import importlib.util
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from scratchformer.backends.cuda import device
from scratchformer.backends.cuda.device import Gpu
from scratchformer.backends.cuda.kernels import C_TYPE, SOURCE, parse_kernels
from scratchformer.backends.device import Device, open_device
from scratchformer.config import Config, load, with_settings
from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator
from scratchformer.tasks import start


def pretended_cupy(count=None):
    """A module that finds `count` GPUs; None: no driver."""
    cupy, runtime = types.ModuleType("cupy"), types.SimpleNamespace()
    runtime.CUDARuntimeError = type("CUDARuntimeError", (RuntimeError,), {})

    def device_count():
        if count is None:
            raise runtime.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
        return count

    runtime.getDeviceCount = device_count
    cupy.cuda = types.SimpleNamespace(runtime=runtime)
    return cupy


NO_DRIVER = "gpu:0: cudaErrorInsufficientDriver: CUDA driver version is insufficient; if a library"


@pytest.mark.parametrize(
    "cupy, name, message",
    [
        (None, "gpu", "--device gpu needs cupy; pip install 'scratchformer[cuda13]', or [cuda12], brings it"),
        (pretended_cupy(), "gpu", NO_DRIVER),
        (types.ModuleType("cupy"), "gpu:1", "gpu:1: module 'cupy' has no attribute 'cuda'; if a library is missing"),
        (pretended_cupy(2), "gpu:2", "gpu:2: there are 2 GPUs here, counted from 0"),
    ],
)
def test_missing_parts_are_reported_in_one_line(cupy, name, message, monkeypatch, refused, own_run, small_settings):
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # None: as if it were not installed
    assert message in refused("translate", own_run.path, "--device", name)
    assert message in refused("train", "tiny", *small_settings, "--device", name, "--out", own_run.path / "new")
    assert not (own_run.path / "new" / "config.toml").exists()


@pytest.mark.parametrize("error, said", [("out of luck\nand more", "out of luck"), ("", "CUBLASError")])
def test_a_gpu_that_fails_later_is_reported_in_one_line(monkeypatch, cli, own_run, error, said):
    kind = type("CUBLASError", (RuntimeError,), {"__module__": "cupy_backends.cuda.libs.cublas"})

    def fail(*_):
        raise kind(error)

    monkeypatch.setattr(Device, "to_device", fail)
    outcome = cli("translate", own_run.path)
    where = "SCRATCHFORMER_TRACEBACK=1 and CUDA_LAUNCH_BLOCKING=1 in the environment show where"
    assert (outcome.code, outcome.err) == (1, f"scratchformer: the GPU failed: {said}; {where}\n")
    monkeypatch.setenv("SCRATCHFORMER_TRACEBACK", "1")
    code, _, said_at_length = cli("translate", own_run.path)
    assert code == 1 and said_at_length.startswith("Traceback ") and said_at_length.endswith(outcome.err)
    assert "in fail\n    raise kind(error)" in said_at_length


def settings_of(run):
    return load(run.config_file).training


@pytest.mark.slow
def test_a_run_keeps_its_precision_until_it_moves_to_the_cpu(own_run, cli, monkeypatch):
    monkeypatch.setattr(start, "open_device", lambda *_: Device())  # only the configuration file matters here

    def resumed(*options):
        assert cli("train", "--resume", own_run.path, *options).code == 0
        return settings_of(own_run).device, settings_of(own_run).precision

    assert resumed("--device", "gpu", "--precision", "bf16") == ("gpu", "bf16")
    assert resumed() == resumed("--device", "gpu") == ("gpu", "bf16")
    assert resumed("--device", "gpu:1") == ("gpu:1", "bf16")
    assert resumed("--set", "device=cpu") == ("cpu", "")
    assert resumed("--device", "gpu", "--precision", "fp16") == ("gpu", "fp16")
    assert resumed("--device", "cpu") == ("cpu", "")


def test_the_cpu_is_the_default_and_takes_a_precision_of_its_own():
    assert Config().training.device == "cpu" and type(open_device("cpu", "fp32")) is type(open_device("cpu")) is Device
    with pytest.raises(UserError, match="precision"):
        with_settings(Config(), {"training.precision": "fp8"})


@pytest.mark.gpu
def test_a_gpu_reports_its_free_memory(open_gpu):
    assert 2**20 < open_gpu().memory_bytes() < 2**40


# The compiler ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def compile_kernels():
    """compile_kernels(architecture, source) -> the compiler's log"""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else []
    headers = [each for place in places for each in Path(place).glob("**/cuda_bf16.h")]
    if importlib.util.find_spec("cupy") is None or not headers:
        pytest.skip("no CuPy and nvidia-cuda-runtime")
    from cupy.cuda import nvrtc

    def compile_(architecture, source):
        program = nvrtc.createProgram(source, "kernels.cu", [], [])
        for kernel in parse_kernels(source).values():
            for name in {name for stored in C_TYPE for name in kernel.instances(stored)}:
                nvrtc.addNameExpression(program, name)
        options = f"-arch={architecture}", "-std=c++17", f"-I{headers[0].parent}", "-ftz=true", "--ptxas-options=-v"
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            return nvrtc.getProgramLog(program)
        assert len(nvrtc.getCUBIN(program)) > 10_000
        return nvrtc.getProgramLog(program)

    return compile_


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_the_kernels_compile_for_several_kinds_of_gpu(compile_kernels, architecture):
    log = compile_kernels(architecture, SOURCE)
    assert "error" not in log, log
    spills = dict(re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill stores", log, re.DOTALL))
    assert len(spills) > 40
    assert [kernel for kernel, spilled in spills.items() if spilled != "0"] == []


def test_errors_of_the_compiler_are_noticed(compile_kernels):
    assert "too few arguments" in compile_kernels("sm_80", SOURCE.replace("warp_sum(sum)", "warp_sum()"))


# Among several ranks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local_rank, number", [(0, 0), (1, 1), (3, 1)])
def test_a_rank_takes_the_gpu_of_its_local_rank(local_rank, number, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", pretended_cupy(2))
    with pytest.raises(UserError, match=f"^gpu:{number}: "):  # nothing more is simulated
        open_device("gpu", "", local_rank)


def a_gpu(number, was_named, cuda):
    gpu = Gpu.__new__(Gpu)
    gpu.number, gpu.was_named, gpu.xp = number, was_named, types.SimpleNamespace(cuda=types.SimpleNamespace(**cuda))
    return gpu


@pytest.mark.parametrize(
    "buses, was_named, kind",
    [
        (["0000:01", "0000:02"], False, "NCCL"),
        (["0000:01", "0000:02"], True, "NCCL"),
        (["0000:01", "0000:01"], True, "HostStaged"),
        (["0000:01", "0000:01"], False, "UserError: ranks 0, 1 would have to share a GPU: start fewer processes"),
    ],
)
def test_ranks_with_a_gpu_each_use_nccl_and_others_the_host(buses, was_named, kind, together, monkeypatch):
    monkeypatch.setattr(device, "Nccl", lambda host, xp: "NCCL")

    def work(ranks):
        gpu = a_gpu(5, was_named, {"Device": lambda number: types.SimpleNamespace(pci_bus_id=buses[ranks.rank])})
        try:
            found = gpu.communicator(ranks)
        except UserError as error:
            return f"UserError: {error}"
        return found if isinstance(found, str) else type(found).__name__

    assert all(said.startswith(kind) for said in together(2, work))


def test_a_single_rank_needs_no_communication(together, open_strict):
    for of_rank in (a_gpu(0, False, {}), open_strict(), open_strict("bf16")):
        (found,) = together(1, of_rank.communicator)
        assert type(found) is Communicator
    assert all(together(2, lambda ranks: Device().communicator(ranks) is ranks))


def test_a_rank_that_waits_for_its_gpu_checks_the_other_ranks_and_notices_a_failure(monkeypatch):
    """On a GPU that answers with these statuses of CUDA, one each time it is asked, and in the end with a 7."""

    def fail():
        raise RuntimeError("an illegal memory access")

    statuses, seconds = iter([600, 600, 0, 700]), []
    event = types.SimpleNamespace(ptr=1, record=lambda: None, synchronize=fail)
    runtime = types.SimpleNamespace(eventQuery=lambda ptr: next(statuses))
    number = types.SimpleNamespace(dtype=np.float32, reshape=lambda n: number)
    number.get = lambda out, blocking: out.fill(7)
    monkeypatch.setitem(sys.modules, "cupyx", types.SimpleNamespace(empty_pinned=lambda n, dtype: np.empty(n, dtype)))
    wait = a_gpu(0, True, {"Event": lambda: event, "runtime": runtime}).read_back(number, seconds.append)
    assert wait() == 7 and len(seconds) == 2 and 0 <= seconds[0] < seconds[1]
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        wait()
