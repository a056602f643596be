"""The arguments for cuBLAS, checked with a model of it that reads memory column by column."""

import itertools
from contextlib import nullcontext
from types import SimpleNamespace

import column_major
import numpy as np
import pytest

from scratchformer.backends.cuda import gemm as module
from scratchformer.backends.cuda.gemm import CuBlas, Gemm, gemm_call, shape_and_strides
from scratchformer.backends.device import dtype_named


@pytest.fixture
def random():
    return np.random.default_rng(0)


def with_layout(x, how, xp=np):
    """The same matrices in another memory layout."""
    if how == "column-major":
        return xp.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "part of wider rows":
        wide = xp.full((*x.shape[:-1], x.shape[-1] + 3), 7, x.dtype)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]
    if how == "every other number":  # cuBLAS cannot read this
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1]), 7, x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x


LAYOUTS = ["row-major", "column-major", "part of wider rows", "every other number"]


@pytest.mark.parametrize("m, k, n", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (1, 7, 1), (5, 1, 1)])
@pytest.mark.parametrize("stack", [(), (2,), (2, 3), (1, 3), (2, 1)])
def test_all_layouts_of_both_factors_and_of_the_result(m, k, n, stack, random):
    a, b = random.standard_normal((*stack, m, k)), random.standard_normal((*stack, k, n))
    before = random.standard_normal((*stack, m, n))
    gemm = Gemm(np, column_major.gemm)
    for of_a, of_b, of_out, add in itertools.product(LAYOUTS, LAYOUTS, LAYOUTS, (False, True)):
        out = with_layout(before.copy(), of_out)
        gemm(with_layout(a, of_a), with_layout(b, of_b), out, add)
        np.testing.assert_allclose(out, a @ b + before * add, rtol=0, atol=1e-13, err_msg=f"{of_a}, {of_b}, {of_out}")


def test_one_matrix_is_used_for_a_whole_stack(random):
    a, W, out = random.standard_normal((2, 3, 4)), random.standard_normal((4, 5)), np.empty((2, 3, 5))
    Gemm(np, column_major.gemm)(a, W, out)
    np.testing.assert_allclose(out, a @ W, atol=1e-13)


def test_only_heads_side_by_side_are_copied(random):
    """Queries (B, T, H, K) of a fused projection (B, T, 3 H K): cuBLAS cannot address the heads as one stack."""
    calls = []

    def blas(call, b, a, c, add):
        calls.append((np.shares_memory(a, qkv), np.shares_memory(b, qkv), np.shares_memory(c, y)))
        column_major.gemm(call, b, a, c, add)

    qkv = random.standard_normal((2, 5, 24))
    q, k = (qkv[..., i : i + 8].reshape(2, 5, 4, 2).swapaxes(1, 2) for i in (0, 8))
    y = np.empty((2, 5, 4, 5)).swapaxes(1, 2)
    Gemm(np, blas)(q, k.swapaxes(-1, -2), y)
    np.testing.assert_allclose(y, q @ k.swapaxes(-1, -2), atol=1e-13)
    x, y = qkv.reshape(10, 24), np.empty((24, 24))
    Gemm(np, blas)(x.T, x, y)
    assert calls == [(False, False, False), (True, True, True)]


@pytest.mark.parametrize("m, k, n", [(0, 4, 5), (3, 0, 5), (3, 4, 0)])
@pytest.mark.parametrize("add", [False, True])
def test_empty_products_are_zero_and_need_no_library(m, k, n, add):
    def blas(*_):
        raise AssertionError("cuBLAS refuses empty matrices")

    out = np.full((m, n), 1.0 if add else np.nan)
    Gemm(np, blas)(np.ones((m, k)), np.ones((k, n)), out, add)
    assert np.array_equal(out, np.full((m, n), float(add)))


NONE, OTHER = "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_SUPPORTED"


@pytest.mark.parametrize("where", ["handle", "gemmEx"])
@pytest.mark.parametrize(
    "errors, raised, emptied",
    [
        ([], None, 0),
        ([NONE], None, 1),
        (["cudaErrorMemoryAllocation: out of memory"], None, 1),
        ([NONE, NONE], MemoryError, 1),
        ([OTHER], RuntimeError, 0),
        ([NONE, OTHER], RuntimeError, 1),
    ],
)
def test_if_cublas_finds_no_memory_the_pool_gives_some_back(errors, raised, emptied, where):
    """A MemoryError remains if that does not help, so that training says which batch would fit."""
    answers, pool, done = iter(errors), [], []

    def gemm_ex(*arguments):
        fail("gemmEx")
        done.append(arguments[0])

    def fail(here):
        error = next(answers, None) if here == where else None
        if error:
            raise RuntimeError(error)
        return "handle"

    blas = object.__new__(CuBlas)  # its constructor imports CuPy
    blas.cublas, blas.handle = SimpleNamespace(gemmEx=gemm_ex), lambda: fail("handle")
    blas.tf32, blas.errors = False, (RuntimeError,)
    blas.empty_pool = lambda: pool.append("emptied")
    x = np.ones((2, 2), "f4")
    array = SimpleNamespace(data=SimpleNamespace(ptr=x.ctypes.data), dtype=x.dtype, itemsize=x.itemsize)
    with pytest.raises(raised) if raised else nullcontext():
        blas(gemm_call(*3 * [shape_and_strides(x)]), array, array, array, False)
    assert len(pool) == emptied and done == ([] if raised else ["handle"])


@pytest.mark.gpu
@pytest.mark.parametrize(
    "dtype, into, tf32, tolerance",
    [
        ("float32", "float32", False, 1e-6),
        ("float32", "float32", True, 2e-3),
        ("float16", "float16", False, 2e-3),
        ("float16", "float32", False, 1e-6),
        ("bfloat16", "bfloat16", False, 1e-2),
        ("bfloat16", "float32", False, 1e-6),
    ],
)
def test_cublas_agrees_with_the_model_of_it(cupy, random, dtype, into, tf32, tolerance, monkeypatch):
    monkeypatch.setattr(module, "MAX_BATCH", 4)  # so that a stack of 6 takes 2 calls
    gemm, dtype, into = Gemm(cupy, CuBlas(tf32)), dtype_named(dtype), dtype_named(into)
    shapes = (33, 40, 17), (2, 3, 8, 16, 24), (1, 5, 7)
    for (*stack, m, k, n), of_a, of_b, add in itertools.product(shapes, LAYOUTS, LAYOUTS, (False, True)):
        a, b = (random.standard_normal((*stack, *shape)).astype(dtype) for shape in ((m, k), (k, n)))
        before = random.standard_normal((*stack, m, n)).astype(into)
        there = [with_layout(cupy.asarray(x), how, cupy) for x, how in ((a, of_a), (b, of_b))]
        out = cupy.asarray(before)
        gemm(*there, out, add)
        expected = a.astype("float32") @ b.astype("float32") + before.astype("float32") * add
        np.testing.assert_allclose(out.get().astype("float32"), expected, rtol=tolerance, atol=20 * tolerance)
