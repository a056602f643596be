"""Ranks on real GPUs: one GPU each, with NCCL, or all on one GPU."""

import numpy as np
import pytest

from scratchformer.backends.device import dtype_named
from scratchformer.cli import main
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum
from scratchformer.parallel.nccl import TYPES, Nccl
from scratchformer.training.run import RunDirectory


@pytest.fixture
def alone(cupy):
    """NCCL with one rank. A GPU without NCCL is a failure: the extras cuda12 and cuda13 install it."""
    return Nccl(Communicator(), cupy)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_one_rank_keeps_its_numbers(cupy, alone, dtype):
    expected = np.arange(10_000).astype(dtype_named(dtype))
    x = cupy.asarray(expected)
    for part in x, x[17:4_000]:
        alone.all_reduce_inplace(part)
        alone.wait()
        alone.broadcast_inplace(part)
    alone.barrier()
    alone.check()
    assert (x.get() == expected).all()


@pytest.mark.gpu
def test_a_gradient_is_sent_in_bf16(cupy, alone):
    bfloat16 = dtype_named("bfloat16")
    grad = cupy.linspace(-1, 1, 10_000, dtype="float32")
    expected = grad.astype(bfloat16).astype("float32")
    total = GradientSum(alone, grad, [0, 3_000, 6_000], bfloat16)
    total.complete_from(3_000)
    total.finish()
    assert (grad == expected).all()


# Whole runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def losses(cupy, tmp_path, small_settings):
    """losses("--nproc", 2, ...) -> the losses of a run: of each step, then of each validation"""

    def of(*options):
        run = RunDirectory(tmp_path / "-".join(map(str, options)).replace(":", ""))
        assert main([str(word) for word in ("train", "tiny", "--out", run.path, *small_settings, *options)]) == 0
        return [entry["loss"] for event in ("step", "validation") for entry in run.read_log(event)]

    return of


@pytest.mark.gpu
@pytest.mark.parametrize("precision, limit", [("fp32", 1e-3), ("bf16", 5e-2)])
def test_two_ranks_on_one_gpu_equal_one_with_two_micro_batches(losses, precision, limit):
    one, two = (losses("--device", "gpu:0", "--precision", precision, "--nproc", nproc) for nproc in (1, 2))
    assert two == pytest.approx(one, rel=limit)


@pytest.mark.multi_gpu
@pytest.mark.parametrize(
    "options, limit", [(["fp32"], 1e-3), (["bf16", "--set", "training.gradient_dtype=bf16"], 5e-2)]
)
def test_two_gpus_equal_one_with_two_micro_batches(losses, options, limit):
    one, two = (losses("--device", "gpu", "--nproc", nproc, "--precision", *options) for nproc in (1, 2))
    assert two == pytest.approx(one, rel=limit)
