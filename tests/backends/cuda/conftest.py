"""Two devices for the same tests: a GPU, if there is one; and everywhere strict arrays, with the kernels run on the CPU
and a model of cuBLAS."""

import column_major
import pytest
import strict_array
from kernels_on_cpu import COMPILER, CpuKernels

from scratchformer.backends.cuda.device import Accelerator, Gpu
from scratchformer.backends.cuda.gemm import Gemm


def memory(array):
    return array.inside


def exact(call, b, a, c, add):
    column_major.gemm(call, b, a, c, add, memory)


def rounded(call, b, a, c, add):
    """As with tf32: float32 factors keep 11 of their 24 bits."""
    column_major.gemm(call, b, a, c, add, memory, bits=11)


@pytest.fixture(autouse=True)
def no_waits_yet():
    strict_array.waits.clear()


@pytest.fixture
def open_strict():
    """open_strict(precision="fp32") -> a device; its launches are in `device.kernels.launches`."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")

    def open_(precision="fp32"):
        kernels = CpuKernels(array_type=strict_array.Array, memory=memory)
        products = (Gemm(strict_array.xp, blas) for blas in (exact, rounded))
        return Accelerator(strict_array.xp, kernels, *products, precision)

    return open_


@pytest.fixture(params=["strict", pytest.param("gpu", marks=pytest.mark.gpu)])
def open_there(request):
    """open_there(precision="fp32") -> a device that is not the CPU."""
    return request.getfixturevalue("open_strict" if request.param == "strict" else "open_gpu")


@pytest.fixture
def open_gpu(cupy):
    return lambda precision="fp32": Gpu(0, precision)


@pytest.fixture
def cupy():
    """The module; skips the test without a GPU."""
    module = pytest.importorskip("cupy")
    try:
        found = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        found = 0
    if not found:
        pytest.skip("no GPU")
    return module
