"""One rank of the jobs of test_nccl.py: the stub of NCCL, CuPy's real binding, a stand-in for the rest of CuPy.

python nccl_rank.py libnccl.so.2 FUNCTION
"""

import atexit
import ctypes
import os
import signal
import sys
import time
import types

import ml_dtypes
import numpy as np

from scratchformer.errors import UserError
from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import PeerFailure
from scratchformer.parallel.job import GAVE_UP, join
from scratchformer.parallel.nccl import TYPES, Nccl

calls = []
"""Calls to streams and NCCL, in order."""


class Stream:
    """Only records its calls."""

    def __init__(self, ptr=0x1234, non_blocking=True):
        assert non_blocking
        self.ptr, self.name = ptr, "NCCL's" if ptr else "current"

    def record(self):
        calls.append(f"{self.name} stream: an event")
        return f"for the {self.name}"

    def wait_event(self, event):
        calls.append(f"{self.name} stream: wait {event}")

    def synchronize(self):
        calls.append(f"{self.name} stream: synchronize")


current = Stream(0)
cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(Stream=Stream, get_current_stream=lambda: current))


class Array(np.ndarray):
    """An array with CuPy's way to ask for its address."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


def array(numbers, dtype):
    return np.array(numbers, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).view(Array)


def message_of(error, call, *arguments):
    """The message of the error that this call must raise."""
    try:
        call(*arguments)
    except error as caught:
        return str(caught)
    raise AssertionError(f"no {error.__name__}")


def variable(name):
    return ctypes.c_int.in_dll(stub, name)


# The functions that ranks run -----------------------------------------------------------------------------------------


def collectives(host):
    ranks = Nccl(host, cupy)
    everyone = np.arange(ranks.size)
    for dtype in TYPES:
        whole = array(np.arange(20) + ranks.rank, dtype)
        ranks.all_reduce_inplace(whole[3:14])
        expected = np.arange(20) + ranks.rank
        expected[3:14] = ranks.size * np.arange(3, 14) + everyone.sum()
        assert whole.astype(int).tolist() == expected.tolist()

        matrix = array(np.full((3, 5), ranks.rank), dtype)
        ranks.broadcast_inplace(matrix[1:], root=1)
        assert matrix.astype(int).tolist() == [[ranks.rank] * 5] + [[1] * 5] * 2
    large = array(np.arange(100_000) * (ranks.rank + 1), "float32")  # fills several slots of the stub
    ranks.all_reduce_inplace(large)
    assert np.array_equal(large, np.arange(100_000) * (everyone + 1).sum())
    assert ctypes.c_void_p.in_dll(stub, "last_stream").value == ranks.stream.ptr
    ranks.check()
    ranks.barrier()


def a_gradient(host):
    ranks, gradient.BUCKET_SIZE = Nccl(host, cupy), 100
    for dtype, limit in (None, 1e-6), (ml_dtypes.bfloat16, 2**-7):
        shares = [np.random.default_rng(rank).normal(size=450) for rank in range(ranks.size)]
        grad = array(shares[ranks.rank], "float32")
        total = gradient.GradientSum(ranks, grad, [0, 120, 150, 300], dtype)
        for offset in 300, 150, 120, 0:
            total.complete_from(offset)
        assert len(total.buckets) == 3
        total.finish()
        np.testing.assert_allclose(grad, sum(shares), rtol=0, atol=limit * np.abs(shares).sum(axis=0).max())
        assert len(set(host.all_gather_bytes(grad.tobytes()))) == 1


def the_order(host):
    ranks = Nccl(host, cupy)
    real = ranks.world

    def recorded(name):
        return lambda *arguments: calls.append(name) or getattr(real, name)(*arguments)

    names = "allReduce", "broadcast", "check_async_error"
    ranks.world = types.SimpleNamespace(**{name: recorded(name) for name in names})
    host.barrier, host.check = (lambda: calls.append("host: barrier")), (lambda _: calls.append("host: check"))
    x = array([1, 2], "float32")
    follows = ["current stream: an event", "NCCL's stream: wait for the current"]
    is_followed = ["NCCL's stream: an event", "current stream: wait for the NCCL's"]
    for call, expected in [
        (lambda: ranks.all_reduce_inplace(x), [*follows, "allReduce"]),
        (lambda: ranks.broadcast_inplace(x), [*follows, "broadcast", *is_followed]),
        (ranks.wait, is_followed),
        (ranks.check, ["host: check", "check_async_error"]),
        (ranks.barrier, ["NCCL's stream: synchronize", "host: barrier"]),
    ]:
        calls.clear()
        call()
        assert calls == expected, calls
    assert x.tolist() == [1, 2]


def bad_arrays(host):
    ranks = Nccl(host, cupy)
    assert message_of(ValueError, ranks.all_reduce_inplace, array([1, 2], "int64")) == (
        "cannot send an array of int64, only of float32, float64, float16, bfloat16"
    )
    for call in ranks.all_reduce_inplace, ranks.broadcast_inplace:
        assert "of shape (2,) that is not contiguous" in message_of(ValueError, call, array([1, 2, 3], "float32")[::2])
    assert "NCCL_ERROR_INVALID_ARGUMENT" in message_of(
        ranks.nccl.NcclError, ranks.broadcast_inplace, array([1], "float32"), 1
    )


def errors(host):
    ranks = Nccl(host, cupy)
    for code, expected in [
        (1, "NCCL_ERROR_UNHANDLED_CUDA_ERROR: the stub was told to fail"),
        (6, "NCCL_ERROR_REMOTE_ERROR: a rank is gone"),
        (9, "NCCL failed with code 9"),
    ]:
        variable("error_of_all").value = code
        assert message_of(RuntimeError, ranks.check) == expected
    for code in 7, 0:  # in progress, and nothing wrong
        variable("error_of_all").value = code
        ranks.check()


def raising(host):
    """NCCL's communicator is aborted, not destroyed: that would wait for the other ranks."""
    if host.rank == 1:
        atexit.register(
            lambda: print(
                f"{variable('destroyed').value} destroyed, {variable('aborted').value} aborted", file=sys.stderr
            )
        )
    ranks = Nccl(host, cupy)
    if ranks.rank == 1:
        raise RuntimeError("rank 1 is unhappy")
    ranks.barrier()


def dying(host):
    ranks = Nccl(host, cupy)
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    host.check = lambda _: None  # so that NCCL notices it, not the launcher
    ranks.all_reduce_inplace(array([1], "float32"))
    while True:
        ranks.check()
        time.sleep(0.01)


def no_id(host):
    if host.rank == 0:
        variable("error_of_id").value = 2
    Nccl(host, cupy)


def no_connection(host):
    if host.rank == 1:
        variable("error_of_connecting").value = 2
    Nccl(host, cupy)


def no_connection_at_all(host):
    for code, expected in (1, "NCCL_ERROR_UNHANDLED_CUDA_ERROR: the stub was told to fail"), (7, "7"):
        variable("error_of_connecting").value = code
        assert f"NCCL cannot connect the GPUs: {expected}; for details" in message_of(UserError, Nccl, host, cupy)


if __name__ == "__main__":
    stub = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)  # before CuPy looks for the library
    try:
        with join(timeout=60) as host:
            globals()[sys.argv[2]](host)
    except UserError as error:
        print(f"scratchformer: {error}", file=sys.stderr)
        sys.exit(2)
    except PeerFailure:
        sys.exit(GAVE_UP)
