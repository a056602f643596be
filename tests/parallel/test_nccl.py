"""Communication between GPUs: with a stand-in for CuPy's module `nccl` and host memory, and on real GPUs."""

import ctypes
import threading
import types

import ml_dtypes
import numpy as np
import pytest

from scratchformer.backends.device import dtype_named
from scratchformer.cli import main
from scratchformer.errors import UserError
from scratchformer.parallel import gradient
from scratchformer.parallel import nccl as module
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.gradient import GradientSum
from scratchformer.parallel.nccl import TYPES, Nccl
from scratchformer.training.run import RunDirectory

# Ranks that are threads, with arrays in host memory -------------------------------------------------------------------


class Stream:
    """A stream without a queue: every call is done at once. tests/emulated_gpu has real ones."""

    ptr = 0x1234

    def record(self):
        return None

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass


class Array(np.ndarray):
    """An array with CuPy's way to ask for its address."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


def array(numbers, dtype):
    return np.array(numbers, dtype_named(dtype)).view(Array)


def numbers_at(address, count, dtype):
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address), dtype)


class NcclError(RuntimeError):
    pass


class World:
    """CuPy's NcclCommunicator of one rank; its numbers travel through the host's communicator."""

    def __init__(self, host):
        self.host, self.error = host, None

    def abort(self):
        pass

    def allReduce(self, source, target, count, dtype, operation, stream):
        assert (source, operation, stream) == (target, "sum", 0x1234)
        numbers = numbers_at(target, count, dtype)
        wide = numbers.astype(np.float64)
        self.host.all_reduce_inplace(wide)
        numbers[:] = wide

    def broadcast(self, source, target, count, dtype, root, stream):
        assert (source, stream) == (target, 0x1234)
        self.host.broadcast_inplace(numbers_at(target, count, dtype).view(np.uint8), root)

    def check_async_error(self):
        if self.error:
            raise self.error


@pytest.fixture
def connect(monkeypatch):
    """connect(host, error=None) -> Nccl. The error is one of connecting."""

    def build(host, error=None):
        def communicator(size, shared_id, rank):
            assert (size, shared_id, rank) == (host.size, b"the id of rank 0", host.rank)
            if error:
                raise error
            return World(host)

        cuda = types.SimpleNamespace(Stream=lambda non_blocking: Stream(), get_current_stream=Stream)
        dtypes = {name: ml_dtypes.bfloat16 if key == "bfloat16" else np.dtype(key) for key, name in TYPES.items()}
        nccl = types.SimpleNamespace(
            NcclError=NcclError, NCCL_SUM="sum", NcclCommunicator=communicator, available=True, **dtypes
        )
        nccl.get_unique_id = lambda: b"the id of rank 0"
        modules[threading.get_ident()] = nccl
        return Nccl(host, types.SimpleNamespace(cuda=cuda))

    modules = {}
    monkeypatch.setattr(module, "import_nccl", lambda: modules[threading.get_ident()])
    return build


@pytest.mark.parametrize("size", [2, 3])
def test_sums_and_copies_are_right(size, connect, together):
    def work(host):
        ranks = connect(host)
        for dtype in TYPES:
            whole = array(np.arange(20) + ranks.rank, dtype)
            ranks.all_reduce_inplace(whole[3:14])
            expected = np.arange(20) + ranks.rank
            expected[3:14] = size * np.arange(3, 14) + sum(range(size))
            assert whole.astype(int).tolist() == expected.tolist()
            matrix = array(np.full((3, 5), ranks.rank), dtype)
            ranks.broadcast_inplace(matrix[1:], root=1)
            assert matrix.astype(int).tolist() == [[ranks.rank] * 5] + [[1] * 5] * 2
        ranks.check()
        ranks.barrier()

    together(size, work)


@pytest.mark.parametrize("dtype, limit", [(None, 1e-6), ("bfloat16", 2**-7)])
def test_the_buckets_of_a_gradient_are_summed(dtype, limit, connect, together, monkeypatch):
    monkeypatch.setattr(gradient, "BUCKET_SIZE", 100)
    shares = np.random.default_rng(0).normal(size=(2, 450))

    def work(host):
        grad = array(shares[host.rank], "float32")
        total = GradientSum(connect(host), grad, [0, 120, 150, 300], dtype and dtype_named(dtype))
        for offset in 300, 150, 120, 0:
            total.complete_from(offset)
        total.finish()
        return grad

    one, other = together(2, work)
    np.testing.assert_allclose(one, shares.sum(axis=0), rtol=0, atol=limit * np.abs(shares).sum(axis=0).max())
    assert np.array_equal(one, other)


def test_errors_of_nccl(connect, monkeypatch):
    ranks = connect(Communicator())
    for error, expected in (NcclError("a rank is gone"), "a rank is gone"), (KeyError(9), "NCCL failed with code 9"):
        ranks.world.error = error
        with pytest.raises(RuntimeError, match=expected):
            ranks.check()
    ranks.world.error = KeyError(module.IN_PROGRESS)
    ranks.check()
    for error, expected in (NcclError("no\nroute"), "no"), (KeyError(7), "7"):
        with pytest.raises(
            UserError, match=f"^NCCL cannot connect the GPUs: {expected}.*; for details, set NCCL_DEBUG"
        ):
            connect(Communicator(), error)


# On real GPUs: one each, with NCCL, or all on one ---------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "device, options, limit",
    [
        pytest.param("gpu:0", ["fp32"], 1e-3, marks=pytest.mark.gpu),
        pytest.param("gpu:0", ["bf16"], 5e-2, marks=pytest.mark.gpu),
        pytest.param("gpu", ["fp32"], 1e-3, marks=pytest.mark.multi_gpu),
        pytest.param("gpu", ["bf16", "--set", "gradient_dtype=bf16"], 5e-2, marks=pytest.mark.multi_gpu),
    ],
)
def test_two_ranks_equal_one_with_two_micro_batches(device, options, limit, cupy, tmp_path, small_settings):
    losses = []
    for nproc in (1, 2):
        run = RunDirectory(tmp_path / str(nproc))
        arguments = ["--device", device, "--nproc", nproc, "--precision", *options]
        assert main([str(word) for word in ("train", "tiny", "--out", run.path, *small_settings, *arguments)]) == 0
        losses.append([entry["loss"] for event in ("step", "validation") for entry in run.read_log(event)])
    assert losses[1] == pytest.approx(losses[0], rel=limit)
