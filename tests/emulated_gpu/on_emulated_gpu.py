"""Faults that the emulated GPU notices, and its counts. test_emulated_gpu.py runs this file in a process of its own."""

import subprocess
import sys
from functools import partial

import cupy
import emulation
import numpy as np
import pytest
from kernels_on_cpu import CpuKernels

from scratchformer.backends.cuda import fused_ops, gemm
from scratchformer.backends.cuda.device import Gpu
from scratchformer.backends.cuda.kernels import SOURCE, CupyKernels
from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.nccl import Nccl
from scratchformer.training.data_parallel import DataParallel
from scratchformer.training.trainer import Trainer

FLOATS = 1000
A_WARP_TOO_MANY = "warp < blockDim.y; warp++", "warp <= blockDim.y; warp++"
NOT_READY, ILLEGAL_ADDRESS = 600, 700  # codes of CUDA


@pytest.fixture
def gpu():
    return Gpu(0, "fp32")


def numbers(*shape, dtype="float32"):
    return cupy.asarray(np.random.default_rng(0).standard_normal(shape).astype(dtype))


# Each function takes `faulty`, and does the same without the fault if that is False.


def too_long_a_loop(gpu, faulty, monkeypatch):
    x = numbers(FLOATS)
    gpu.kernels("relu_backward", (4,), (256,), x, x, cupy.empty_like(x), FLOATS + (1 if faulty else 0))


def a_warp_too_many(gpu, faulty, monkeypatch):
    change_kernels(gpu, monkeypatch, faulty and A_WARP_TOO_MANY)
    dE = cupy.zeros((3, 8), "float32")
    gpu.ops[-1].embedding_backward(numbers(1, 2, 8), np.array([[1, 2]]), 1.0, dE)
    assert cupy.isfinite(dE).all(), "the gradient is not finite"


def beyond_shared_memory(gpu, faulty, monkeypatch):
    change_kernels(gpu, monkeypatch, faulty and ("sum_of[WARP][WARP]", "sum_of[4][WARP]"))
    gpu.ops[-1].embedding_backward(numbers(1, 2, 8), np.array([[1, 2]]), 1.0, cupy.zeros((3, 8), "float32"))


def a_barrier_left_out(gpu, faulty, monkeypatch):
    change_kernels(gpu, monkeypatch, faulty and ("    __syncthreads();\n    RowSums found", "    RowSums found"))
    gpu.ops[-1].cross_entropy(numbers(5, 300), np.arange(5), 0.9, 1e-3)


def change_kernels(gpu, monkeypatch, change):
    """Replace the first of two strings in kernels.cu by the second."""
    assert not change or SOURCE.count(change[0]) == 1
    source = SOURCE.replace(*change) if change else SOURCE
    monkeypatch.setattr("scratchformer.backends.cuda.kernels.SOURCE", source)
    gpu.ops[-1].kernels = CupyKernels()


def launch(gpu, address=None):
    """relu_backward, as CuPy launches it, without our checks"""
    dy, y, dx = numbers(FLOATS), numbers(FLOATS), cupy.empty(FLOATS, "float32")
    function = gpu.kernels.module(np.dtype("float32")).get_function("relu_backward<float>")
    function((4,), (256,), (np.uint64(address or dy.data.ptr), y, dx, np.int64(FLOATS)))


def too_many_blocks(gpu, faulty, monkeypatch):
    y = numbers(70_000, 1)
    grid = 1, 70_000 if faulty else 1 << 15
    gpu.kernels("add_to_rows_inplace", grid, (256,), y, numbers(1), 70_000, 1)


def a_leading_dimension_too_large(gpu, faulty, monkeypatch):
    right = gemm.CuBlas.__call__

    def wrong(self, call, *arguments):
        right(self, call._replace(b=call.b._replace(ld=call.b.ld + faulty)), *arguments)

    monkeypatch.setattr(gemm.CuBlas, "__call__", wrong)
    gpu.ops[-1].matmul(numbers(5, 6), numbers(6, 7))


def a_product_over_its_factor(gpu, faulty, monkeypatch):
    a, b = numbers(6, 6), numbers(6, 6)
    gpu.ops[-1].gemm(a, b, a if faulty else cupy.empty_like(a))


def ids_that_are_not_copied(gpu, faulty, monkeypatch):
    if faulty:
        monkeypatch.setattr(fused_ops.FusedOps, "_to_device", lambda self, ids: cupy.empty(ids.shape, "int32"))
    gpu.ops[-1].embedding(np.array([[1, 2, 3]]), numbers(5, 8), 1.0)


def a_stream_that_waits_for_nothing(gpu, faulty, monkeypatch):
    x, other = numbers(FLOATS), cupy.cuda.Stream(non_blocking=True)
    if not faulty:
        other.wait_event(cupy.cuda.get_current_stream().record())
    with other:
        x += 1
    other.synchronize()


def nccl_that_does_not_wait_for_the_gradient(gpu, faulty, monkeypatch):
    nccl, x = Nccl(Communicator(), cupy), numbers(FLOATS)
    if faulty:
        monkeypatch.setattr(Nccl, "_wait_for_current_stream", lambda self: None)
    x += 1
    nccl.all_reduce_inplace(x)
    nccl.wait()


def a_step_that_does_not_wait_for_nccl(gpu, faulty, monkeypatch):
    nccl, x = Nccl(Communicator(), cupy), numbers(FLOATS)
    nccl.all_reduce_inplace(x)
    if not faulty:
        nccl.wait()
    x += 1
    nccl.stream.synchronize()


def nccl_that_sums_what_is_still_read(gpu, faulty, monkeypatch):
    nccl, x = Nccl(Communicator(), cupy), numbers(FLOATS)
    nccl._wait_for_current_stream()  # x has been written
    product = x * 2  # noqa: F841
    if faulty:
        monkeypatch.setattr(Nccl, "_wait_for_current_stream", lambda self: None)
    nccl.all_reduce_inplace(x)
    cupy.cuda.get_current_stream().synchronize()  # so that the product reads x first
    nccl.wait()


def an_array_freed_while_another_stream_reads_it(gpu, faulty, monkeypatch):
    x, y, other = numbers(FLOATS), cupy.zeros(FLOATS, "float32"), cupy.cuda.Stream(non_blocking=True)
    other.wait_event(cupy.cuda.get_current_stream().record())
    with other:
        y += x
    if not faulty:
        cupy.cuda.get_current_stream().wait_event(other.record())
    del x


def a_barrier_that_some_threads_miss(gpu, faulty, monkeypatch):
    condition = "threadIdx.x < 16" if faulty else "true"
    body = f"if ({condition}) __syncthreads(); x[threadIdx.x] = __shfl_sync(~0u, 1u, 0);"
    cupy.RawKernel(f'extern "C" __global__ void meet(float* x) {{ {body} }}', "meet")((1,), (32,), (numbers(32),))


def a_barrier_in_a_helper(gpu, faulty, monkeypatch):
    """Barriers are looked for in the text of a kernel. One that is not found must be noticed when threads reach it."""
    call = "meet();" if faulty else ""
    source = f"""
__device__ void meet() {{ __syncthreads(); }}
extern "C" __global__ void wait(float* x) {{
    {call}
    x[threadIdx.x] = 1;
}}"""
    cupy.RawKernel(source, "wait")((1,), (32,), (numbers(32),))


FAULTS = {
    too_long_a_loop: "illegal read of an array of 4000 bytes, at byte 4000",
    a_warp_too_many: "the gradient is not finite",
    a_barrier_left_out: "cross_entropy<float>: warps race for a shared variable of 128 bytes, at byte ",
    beyond_shared_memory: "embedding_backward<float>: illegal write of a shared variable of 512 bytes, at byte ",
    too_many_blocks: "a grid of 1 x 70000 x 1 blocks",
    a_leading_dimension_too_large: "product 7 x 6 x 5: illegal read of an array of 168 bytes, at byte ",
    a_product_over_its_factor: "product 6 x 6 x 6: writes over a factor or a result",
    ids_that_are_not_copied: "embedding<float>: reads what nobody has written",
    a_stream_that_waits_for_nothing: "race with copy in another stream",
    nccl_that_does_not_wait_for_the_gradient: "NCCL: race with cupy_add__float32_",
    a_step_that_does_not_wait_for_nccl: "race with NCCL in another stream",
    nccl_that_sums_what_is_still_read: "NCCL: race with cupy_multiply__float32_float_float32",
    an_array_freed_while_another_stream_reads_it: "illegal read of freed memory",
    a_barrier_that_some_threads_miss: "meet: threads wait for each other at different barriers",
    a_barrier_in_a_helper: "wait: a barrier in a kernel in which has_barriers has found none",
}
"""Function -> a part of what is said about it."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_noticed(fault, gpu, monkeypatch):
    fault(gpu, False, monkeypatch)
    cupy.cuda.runtime.deviceSynchronize()
    assert emulation.problems() == []
    try:
        fault(gpu, True, monkeypatch)
    except Exception as error:
        raised = [str(error)]
    else:
        raised = []
    said = emulation.problems() + raised
    assert any(FAULTS[fault] in sentence for sentence in said), said


@pytest.mark.parametrize("kind", ["memory that is not the GPU's", "memory of the host", "freed memory"])
def test_memory_of_the_wrong_kind_is_noticed(gpu, kind):
    here, pinned, freed = np.ones(FLOATS, "float32"), cupy.cuda.alloc_pinned_memory(4 * FLOATS), numbers(FLOATS)
    address = {
        "memory that is not the GPU's": here.ctypes.data,
        "memory of the host": pinned.ptr,
        "freed memory": freed.data.ptr,
    }[kind]
    del freed
    launch(gpu)
    assert emulation.problems() == []
    launch(gpu, address)
    assert f"relu_backward<float>: illegal read of {kind}" in emulation.problems()[0]


def test_shared_memory_begins_as_nan_where_kernels_run_without_cupy():
    dx, dE = np.ones((2, 8), "float32"), np.zeros((3, 8), "float32")
    words, starts, rows = np.int32([1, 2]), np.int32([0, 1, 2]), np.int32([0, 1])
    kernels = CpuKernels(SOURCE.replace(*A_WARP_TOO_MANY))
    kernels("embedding_backward", (2, 1), (32, 8), dx, words, starts, rows, dE, 8, 1.0, dtype=dx.dtype)
    assert np.isnan(dE[1:]).all()


def test_after_a_fault_every_call_answers_the_error(gpu):
    """As on a GPU, where it ends the process's use of it."""
    runtime, square, copied = cupy.cuda.runtime, numbers(2, 2), cupy.cuda.Event()
    too_long_a_loop(gpu, True, None)
    copied.record()
    assert [runtime.eventQuery(copied.ptr) for _ in range(3)] == [NOT_READY, ILLEGAL_ADDRESS, ILLEGAL_ADDRESS]
    for call in (
        runtime.deviceSynchronize,
        cupy.cuda.get_current_stream().record,
        lambda: square.get(),
        lambda: launch(gpu),
        lambda: cupy.empty(3),
    ):
        with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress: relu_backward<float>: illegal read"):
            call()
    with pytest.raises(cupy.cuda.cublas.CUBLASError, match="EXECUTION_FAILED"):
        gpu.ops[-1].gemm(square, square, square)
    assert len(emulation.problems()) == 1
    runtime.deviceSynchronize()


@pytest.mark.parametrize("faulty", [False, True])
def test_a_process_cannot_end_well_after_a_fault(faulty):
    """Such as a rank, whose operations nobody has waited for."""
    stream = "Stream(non_blocking=True)" if faulty else "Stream.null"
    code = f"import cupy\nx = cupy.zeros(3)\nwith cupy.cuda.{stream}: x += 1"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == (70 if faulty else 0)
    assert ("race with cudaMemset in another stream" in done.stderr) == faulty, done.stderr


def test_the_host_reads_nothing_before_it_has_waited(gpu):
    """A loss that is read too early is not a number."""
    loss = cupy.full(1, 3.0, "float32")
    read = gpu.read_back(loss)
    early = {cell.cell_contents.tobytes() for cell in read.__closure__ if isinstance(cell.cell_contents, np.ndarray)}
    assert early == {b"\xff" * 4}
    assert read() == 3


def test_what_is_queued_is_counted(gpu):
    x, ops = numbers(6, 8), gpu.ops[-1]
    weights = [numbers(8, 8), numbers(8)]
    before = emulation.counts()
    y = ops.relu(ops.linear(x, *weights))
    after = emulation.counts()
    assert {name: after[name] - before[name] for name in after} == {
        "launches": 2,  # the bias, ReLU
        "products": 1,
        "copies": 0,
        "synchronisations": 0,
        "polls": 0,
    }
    y.get()
    assert emulation.counts()["synchronisations"] == after["synchronisations"] + 1


@pytest.mark.parametrize(
    "omitted, expected",
    [
        (None, ""),
        ("_wait_for_current_stream", "NCCL: race with "),  # a bucket is sent before backward has filled it
        ("wait", "NCCL: race with cudaMemset"),  # Adam does not wait for the sums, nor what makes the gradient 0
    ],
)
def test_gradients_are_summed_by_nccl_while_backward_goes_on(begin, gpu, monkeypatch, omitted, expected):
    """One rank of two, whose sums are its own numbers."""
    monkeypatch.setattr(gradient, "BUCKET_SIZE", 500)
    nccl = Nccl(Communicator(), cupy)
    nccl.size = 2
    if omitted:
        monkeypatch.setattr(nccl, omitted, lambda: None)
    plain = begin(accumulation=2)
    trainer = Trainer(plain.run, plain.config, plain.data, plain.tokenizer, gpu)
    trainer.parallel = DataParallel(trainer.model, 1, nccl, None, gpu.ops)
    largest = max(trainer.plan.epoch(0), key=len)
    for pending in [trainer.step(0, 0, largest), trainer.step(0, 1, largest)]:
        try:
            trainer.finish(pending)
        except cupy.cuda.runtime.CUDARuntimeError:
            assert omitted
    said = emulation.problems()
    cupy.cuda.runtime.deviceSynchronize()  # before the arrays are freed
    assert any(expected in line for line in said) if omitted else said == [], said


@pytest.mark.parametrize("faulty", [False, True])
def test_a_training_step_makes_the_host_wait_for_nothing(begin, monkeypatch, faulty):
    """And each step of the same shape launches the same. The fault: its loss and norm are read within the step."""
    if faulty:
        read_back = Gpu.read_back

        def read_at_once(*arguments, **options):
            return partial(float, read_back(*arguments, **options)())

        monkeypatch.setattr(Gpu, "read_back", read_at_once)
    monkeypatch.setattr("scratchformer.tasks.start.devices.open_device", lambda *_: Gpu(0, "bf16"))
    trainer = begin("run", steps=4)
    indices = trainer.plan.epoch(0)[0]
    seen = []
    for step in range(3):
        before = emulation.counts()
        pending = trainer.step(0, 0, indices)
        after = emulation.counts()
        seen.append({name: after[name] - before[name] for name in after})
        trainer.finish(pending)
    assert seen[1] == seen[2] and seen[1]["synchronisations"] == 0
    assert seen[1]["polls"] == (2 if faulty else 0)
    assert seen[1]["launches"] > 100 and seen[1]["products"] > 50


def test_a_step_whose_kernel_fails_ends_with_its_error(begin, monkeypatch):
    """And not by waiting for ever, which asking whether the copy of the loss is done would do."""

    class Impatient(Communicator):
        def check(self, waited=0.0):
            assert waited < 10

    gpu = Gpu(0, "fp32")
    gpu.communicator = lambda host: Impatient()
    monkeypatch.setattr("scratchformer.tasks.start.devices.open_device", lambda *_: gpu)
    trainer = begin()
    run = gpu.kernels.run

    def with_a_fault(name, dtype, grid, block, arguments):
        if "adam" in name:  # goes beyond its arrays
            arguments[4] += 1
        run(name, dtype, grid, block, arguments)

    monkeypatch.setattr(gpu.kernels, "run", with_a_fault)
    pending = trainer.step(0, 0, trainer.plan.epoch(0)[0])
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress: .*adam_inplace"):
        trainer.finish(pending)
    emulation.problems()
