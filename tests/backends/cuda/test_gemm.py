"""The arguments for cuBLAS, against a model of it that reads memory by columns."""

import ctypes
import itertools
from types import SimpleNamespace
from typing import NamedTuple

import column_major
import numpy as np
import pytest

from scratchformer.backends.cuda import gemm as module
from scratchformer.backends.cuda.device import dtype_named
from scratchformer.backends.cuda.gemm import Call, CuBlas, Gemm, Layout, call_of, layout, seen


@pytest.fixture
def random():
    return np.random.default_rng(0)


def in_memory(x, how, xp=np):
    """The same matrices, but laid out otherwise."""
    if how == "by columns":
        return xp.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "part of wider rows":
        wide = xp.full((*x.shape[:-1], x.shape[-1] + 3), 7, x.dtype)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]
    if how == "every other number":  # cuBLAS cannot read that
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1]), 7, x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x


LAYOUTS = ["by rows", "by columns", "part of wider rows", "every other number"]


@pytest.mark.parametrize("m, k, n", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (1, 7, 1), (5, 1, 1)])
@pytest.mark.parametrize("stack", [(), (2,), (2, 3), (1, 3), (2, 1)])
def test_all_layouts_of_both_factors_and_of_the_result(m, k, n, stack, random):
    a, b = random.standard_normal((*stack, m, k)), random.standard_normal((*stack, k, n))
    before = random.standard_normal((*stack, m, n))
    gemm = Gemm(np, column_major.gemm)
    for of_a, of_b, of_out, add in itertools.product(LAYOUTS, LAYOUTS, LAYOUTS, (False, True)):
        out = in_memory(before.copy(), of_out)
        gemm(in_memory(a, of_a), in_memory(b, of_b), out, add)
        np.testing.assert_allclose(out, a @ b + before * add, rtol=0, atol=1e-13, err_msg=f"{of_a}, {of_b}, {of_out}")


def test_a_matrix_serves_a_whole_stack(random):
    a, W, out = random.standard_normal((2, 3, 4)), random.standard_normal((4, 5)), np.empty((2, 3, 5))
    Gemm(np, column_major.gemm)(a, W, out)
    np.testing.assert_allclose(out, a @ W, atol=1e-13)


def test_heads_side_by_side_are_copied_and_nothing_else_is(random):
    """Queries (B, T, H, K) of a fused projection (B, T, 3 H K): the heads are neither one stack nor each a matrix."""
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


def test_what_cublas_is_told():
    """Of x (3, 4) by rows times W (4, 5) by rows: y^T = W^T x^T, and nothing is transposed."""
    call = call_of(seen(np.empty((3, 4))), seen(np.empty((4, 5))), seen(np.empty((3, 5))))
    assert (call.n, call.m, call.k, call.times) == (5, 3, 4, 1)
    assert (call.b, call.a, call.c) == (Layout(False, 5, 0), Layout(False, 4, 0), Layout(False, 5, 0))


class Memory(NamedTuple):
    """What CuPy says of an array: where it lies."""

    data: SimpleNamespace
    dtype: np.dtype
    itemsize: int


class PretendedCublas:
    """Takes arguments in the order in which CuPy's cublas.gemmEx and gemmStridedBatchedEx take them."""

    CUBLAS_OP_N, CUBLAS_OP_T = 0, 1

    def __init__(self, *arrays):
        self.at = {array.ctypes.data: array for array in arrays}
        self.calls = []

    def gemmEx(
        self,
        handle,
        transa,
        transb,
        m,
        n,
        k,
        alpha,
        A,
        Atype,
        lda,
        B,
        Btype,
        ldb,
        beta,
        C,
        Ctype,
        ldc,
        computeType,
        algo,
    ):
        self.gemmStridedBatchedEx(
            handle,
            transa,
            transb,
            m,
            n,
            k,
            alpha,
            A,
            Atype,
            lda,
            0,
            B,
            Btype,
            ldb,
            0,
            beta,
            C,
            Ctype,
            ldc,
            0,
            1,
            computeType,
            algo,
        )

    def gemmStridedBatchedEx(
        self,
        handle,
        transa,
        transb,
        m,
        n,
        k,
        alpha,
        A,
        Atype,
        lda,
        strideA,
        B,
        Btype,
        ldb,
        strideB,
        beta,
        C,
        Ctype,
        ldc,
        strideC,
        batchCount,
        computeType,
        algo,
    ):
        assert handle == "handle" and ctypes.c_float.from_address(alpha).value == 1 and algo == -1
        self.calls.append((Atype, Btype, Ctype, computeType, batchCount))
        call = Call(
            m,
            n,
            k,
            Layout(bool(transa), lda, strideA),
            Layout(bool(transb), ldb, strideB),
            Layout(False, ldc, strideC),
            batchCount,
        )
        first, second, result = (self.array_at(address) for address in (A, B, C))
        column_major.gemm(call, first, second, result, ctypes.c_float.from_address(beta).value == 1)

    def array_at(self, address):
        """The array from this address on: part of one that is known."""
        begin = max(known for known in self.at if known <= address)
        return self.at[begin].reshape(-1)[(address - begin) // self.at[begin].itemsize :]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("stack", [(), (5,)])
@pytest.mark.parametrize(
    "dtype, tf32, codes",
    [("float32", False, (0, 0, 0, 68)), ("float32", True, (0, 0, 0, 77)), ("float16", True, (2, 2, 0, 68))],
)
def test_the_arguments_of_cublas_stand_in_their_order(dtype, tf32, codes, stack, add, random, monkeypatch):
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)  # so that a stack of 5 takes 3 calls
    a, b = (random.standard_normal((*stack, *shape)).astype(dtype) for shape in ((3, 4), (4, 2)))
    c = random.standard_normal((*stack, 3, 2)).astype("float32")
    expected = a.astype("float32") @ b.astype("float32") + c * add
    blas = object.__new__(CuBlas)  # its constructor looks for CuPy
    blas.cublas, blas.handle, blas.compute = PretendedCublas(a, b, c), lambda: "handle", codes[3]
    blas.one, blas.zero = np.ones(1, "f4"), np.zeros(1, "f4")
    call = call_of(seen(a), seen(b), seen(c))
    blas(call, *(Memory(SimpleNamespace(ptr=x.ctypes.data), x.dtype, x.itemsize) for x in (b, a, c)), add)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-6)
    assert blas.cublas.calls == [(*codes, times) for times in ((2, 2, 1) if stack else (1,))]


@pytest.mark.parametrize(
    "shape, strides, expected",
    [
        ((3, 4), (4, 1), (False, 4, 0)),
        ((3, 4), (9, 1), (False, 9, 0)),
        ((3, 4), (1, 3), (True, 3, 0)),
        ((3, 4), (0, 1), None),
        ((3, 4), (8, 2), None),
        ((2, 3, 4), (12, 4, 1), (False, 4, 12)),
        ((2, 3, 4), (0, 4, 1), (False, 4, 0)),
        ((2, 2, 3, 4), (24, 12, 4, 1), (False, 4, 12)),
        ((2, 2, 3, 4), (12, 24, 4, 1), None),
        ((1, 2, 3, 4), (99, 12, 4, 1), (False, 4, 12)),
    ],
)
def test_what_cublas_can_read(shape, strides, expected):
    assert layout(shape, strides) == expected


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
def test_cublas_does_what_the_model_of_it_does(cupy, random, dtype, into, tf32, tolerance):
    gemm, dtype, into = Gemm(cupy, CuBlas(tf32)), dtype_named(dtype), dtype_named(into)
    shapes = (33, 40, 17), (2, 3, 8, 16, 24), (1, 5, 7)
    for (*stack, m, k, n), of_a, of_b, add in itertools.product(shapes, LAYOUTS, LAYOUTS, (False, True)):
        a, b = (random.standard_normal((*stack, *shape)).astype(dtype) for shape in ((m, k), (k, n)))
        before = random.standard_normal((*stack, m, n)).astype(into)
        there = [in_memory(cupy.asarray(x), how, cupy) for x, how in ((a, of_a), (b, of_b))]
        out = cupy.asarray(before)
        gemm(*there, out, add)
        expected = a.astype("float32") @ b.astype("float32") + before.astype("float32") * add
        np.testing.assert_allclose(out.get().astype("float32"), expected, rtol=tolerance, atol=20 * tolerance)
