"""The first contact with a GPU measures what it says, and runs from end to end on an emulated one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scratchformer.nn.ops import Ops

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.slow
def test_pytorch_takes_the_same_steps(script, monkeypatch):
    """On the CPU, as if it were the GPU: from the same loss, at the same pace."""
    torch = pytest.importorskip("torch")
    speed = script("gpu_first_contact")
    to_tensors = script("rival").to_tensors
    monkeypatch.setattr(script("rival"), "to_tensors", lambda batch, device: to_tensors(batch))
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    for name in ("empty_cache", "reset_peak_memory_stats", "synchronize", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    scale = speed.QUICK._replace(pairs=32, length=8, repetitions=5, changes=speed.TINY | {"P_drop": 0.0})
    config = scale.config("base")
    theirs = speed.pytorchs(False, config, "fp32", scale)
    assert theirs["target_tokens_per_second"] == pytest.approx(32 * 8 / theirs["seconds"], rel=0.01)
    monkeypatch.setattr(speed, "Gpu", NumPyDevice)
    ours = speed.ours(config, "fp32", scale)
    assert ours.keys() == theirs.keys() and ours["losses"] == pytest.approx(theirs["losses"], rel=1e-3)
    assert ours["losses"][1] < ours["losses"][0]


class NumPyDevice:
    """In place of a Gpu."""

    def __init__(self, number, precision):
        pool = type("Pool", (), {"free_all_blocks": lambda self: None, "total_bytes": lambda self: 0})()
        runtime = type("Runtime", (), {"deviceSynchronize": lambda self: None})()
        cuda = type("Cuda", (), {"runtime": runtime})
        self.xp = type("Xp", (), {"cuda": cuda, "get_default_memory_pool": lambda self: pool})()
        self.ops = ()

    def to_device(self, model):
        pass

    def adapt_loss_scale(self, norm):
        pass


@pytest.mark.slow
def test_all_parts_run_on_an_emulated_gpu(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "tests" / "emulated_gpu")
    import emulation

    if emulation.reason_to_skip():
        pytest.skip(emulation.reason_to_skip())
    (tmp_path / "sitecustomize.py").write_text("import emulation\nemulation.install()\n")  # Python imports this first
    folders = [tmp_path, ROOT / "tests" / "emulated_gpu", ROOT, os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, folders)), "CUPY_CACHE_DIR": str(tmp_path)}
    script = [sys.executable, "benchmarks/gpu_first_contact.py", "--quick", "--out", tmp_path]
    command = [*script, "--parts", "tests,kernels,steps"]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | environment | {"OPENBLAS_NUM_THREADS": "1"})
    parts = json.loads((tmp_path / "gpu_first_contact.json").read_text(encoding="utf-8"))["parts"]
    assert {name: len(part["results"]) for name, part in parts.items()} == {"tests": 1, "kernels": 53, "steps": 8}
    for part in parts.values():
        assert part["name"] == "emulated GPU" and part["end"] == "exit code 0"
        assert not any(result.get("failed") for result in part["results"].values()), part
    assert parts["tests"]["results"]["tests"]["exit_code"] == 0
    assert all(3 < loss < 6 for loss in parts["steps"]["results"]["base bf16"]["losses"])


class NumPyGpu:
    """In place of a Gpu: the reference on NumPy arrays."""

    xp, stored, batch_factor = np, np.dtype("float32"), 4

    def __init__(self, number, precision):
        self.ops = (Ops(np),)

    def to_device(self, model):
        pass


def arrays_in(*things):
    """The arrays in tuples of tuples, each once."""
    found = {}
    for thing in things:
        if isinstance(thing, (tuple, list)):
            found |= {id(each): each for each in arrays_in(*thing)}
        elif isinstance(thing, np.ndarray):
            found[id(thing)] = thing
    return list(found.values())


def test_no_byte_of_a_kernel_is_counted_twice_and_no_array_used_again(script, monkeypatch):
    speed = script("gpu_first_contact")
    monkeypatch.setattr(speed, "Gpu", NumPyGpu)
    for name, prepare, needed in speed.calls("fp32", speed.QUICK):
        calls = prepare(), prepare()
        read, others = (arrays_in(call.args) for call in calls)
        size = sum(each.nbytes for each in read)
        written = sum(each.nbytes for each in arrays_in(calls[0]())) or size  # in place, or not for NumPy
        assert size + written >= needed > size / 2, name
        assert all(each.nbytes < needed / 8 for each in read if any(each is other for other in others)), name
