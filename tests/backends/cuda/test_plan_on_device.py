"""`plan` measures steps on the device that training would use."""

import json

import pytest

from scratchformer.backends.cuda.device import Gpu
from scratchformer.experiments import plan, sizes

SMALL = {"vocab_size": 20, "N": 1, "d_model": 8, "d_ff": 8, "h": 2, "tokens_per_batch": 16, "accumulation": 2}
SETTINGS = (
    *(word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")),
    "--seconds",
    0.001,
    "--json",
)


def test_steps_are_taken_on_the_device_in_its_precision(cli, open_strict, monkeypatch):
    devices, asked = [], []

    def open_device(*names):
        asked.append(names)
        devices.append(open_strict("bf16"))
        return devices[-1]

    monkeypatch.setattr(plan, "open_device", open_device)
    found = json.loads(cli("plan", "tiny", "--device", "gpu", "--precision", "bf16", *SETTINGS).out)
    assert asked == [("gpu", "bf16")]
    assert devices[0].kernels.launches.count("adam_inplace") >= 10  # the warm-up, and 3 x 3
    assert found["threads"] == 1 and found["turns"] == 2 and found["step_seconds"] > 0
    assert found["memory"]["weights, gradients, moments"] == 18 * found["n_parameters"]
    assert "gradients and activations of further threads" not in found["memory"]


@pytest.mark.parametrize("free", [0, 1000])
def test_the_memory_of_a_gpu_decides(cli, open_strict, monkeypatch, free):
    device = open_strict()
    monkeypatch.setattr(device, "memory_bytes", lambda: free)
    monkeypatch.setattr(plan, "open_device", lambda *_: device)
    outcome = cli("plan", "tiny", "--device", "gpu", *SETTINGS)
    assert outcome.code == 1 and json.loads(outcome.out)["memory_there"] == free
    assert device.kernels.launches == []


@pytest.mark.gpu
def test_a_gpu_reports_its_free_memory(open_gpu):
    assert sizes.FLOAT_BYTES < open_gpu().memory_bytes() < 2**40
    assert isinstance(open_gpu(), Gpu)
