"""Matrix products by cuBLAS, in the layouts and precisions that `cupy.matmul` copies, casts or refuses.

cuBLAS reads matrices by columns, NumPy's lie by rows. Read by columns, a matrix that lies by rows is its transpose; so
for C = A B we ask for C^T = B^T A^T, and nothing is copied.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Callable, NamedTuple

import numpy as np

from scratchformer.nn.parameter import Array

Shape = tuple[int, ...]


class Layout(NamedTuple):
    """How cuBLAS reads a stack of matrices (..., rows, columns).

    transposed  False: read by columns, it is the transpose of the matrix, as for a matrix that lies by rows
    ld          numbers from one column that is read to the next ("leading dimension")
    step        numbers from one matrix to the next; 0 if all are the same one
    """

    transposed: bool
    ld: int
    step: int


class Call(NamedTuple):
    """What cuBLAS is told: c^T (n, m) = b^T (n, k) a^T (k, m), so many times."""

    n: int
    m: int
    k: int
    b: Layout
    a: Layout
    c: Layout
    times: int


def layout(shape: Shape, strides: Shape) -> Layout | None:
    """Of matrices with these strides, in numbers; None if cuBLAS cannot read them so."""
    (rows, columns), (row, column) = shape[-2:], strides[-2:]
    step = stack_step(shape[:-2], strides[:-2])
    if rows == 1:  # no second row: any stride will do
        row = columns if column == 1 else 1
    if columns == 1:
        column = 1
    if step is None:
        return None
    if column == 1 and row >= columns:
        return Layout(False, row, step)
    if row == 1 and column >= rows:
        return Layout(True, column, step)
    return None


def stack_step(shape: Shape, strides: Shape) -> int | None:
    """From one matrix of a stack to the next, if that is the same everywhere; else None."""
    axes = [(size, stride) for size, stride in zip(shape, strides) if size > 1]
    if any(outer != size * inner for (_, outer), (size, inner) in zip(axes, axes[1:])):
        return None
    return axes[-1][1] if axes else 0


@lru_cache(maxsize=4096)
def call_of(a: tuple[Shape, Shape], b: tuple[Shape, Shape], c: tuple[Shape, Shape]) -> Call | None:
    """For c = a b, each given by its shape and its strides in numbers; None if a copy is needed first.

    The leading axes of c are those of the stack; a and b have the same or none.
    """
    (*stack, m, n), k = c[0], a[0][-1]
    of_b, of_a, of_c = (layout(*matrices) for matrices in (b, a, c))
    if of_b is None or of_a is None or of_c is None or of_c.transposed:
        return None
    return Call(n, m, k, of_b, of_a, of_c, times=math.prod(stack))


Blas = Callable[[Call, Array, Array, Array, bool], None]
"""Carries out a call on arrays b, a, c; the last argument says whether the product is added to what c holds."""


class Gemm:
    """gemm(a, b, out): out = a b over the last two axes, or out += a b. All arrays are of one library, `xp`.

    Transposed and strided matrices are read where they lie. Stacks whose strides cuBLAS cannot follow, such as heads
    side by side in a row, are copied.
    """

    def __init__(self, xp: Any, blas: Blas) -> None:
        self.xp, self.blas = xp, blas

    def __call__(self, a: Array, b: Array, out: Array, add: bool = False) -> None:
        if out.size == 0 or a.shape[-1] == 0:  # a sum of no products
            if not add:
                out[...] = 0
            return
        a, b = self._readable(a), self._readable(b)
        call = call_of(seen(a), seen(b), seen(out))
        if call is not None:
            self.blas(call, b, a, out, add)
            return
        product = self.xp.empty(out.shape, out.dtype)
        self(a, b, product)
        out[...] = out + product if add else product

    def _readable(self, x: Array) -> Array:
        """The matrices themselves, or a copy; what lies by columns also does so in the copy."""
        if layout(*seen(x)) is not None:
            return x
        if x.strides[-2] < x.strides[-1]:
            return self.xp.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        return self.xp.ascontiguousarray(x)


def seen(x: Array) -> tuple[Shape, Shape]:
    """Shape and strides in numbers."""
    return x.shape, tuple(stride // x.itemsize for stride in x.strides)


R_32F, R_16F, R_16BF = 0, 2, 14  # cudaDataType, from library_types.h
CUDA_TYPE = {"float32": R_32F, "float16": R_16F, "bfloat16": R_16BF}
COMPUTE_32F, COMPUTE_32F_FAST_TF32, ALGORITHM = 68, 77, -1  # from cublas_api.h


MOST_AT_ONCE = 1 << 15
"""Matrices of a stack in one call: with twice as many, some versions of cuBLAS are known to fail."""


class CuBlas:
    """cuBLAS on the current device. Sums are float32; with `tf32`, factors in float32 are rounded to 11 bits first."""

    def __init__(self, tf32: bool = False) -> None:
        from cupy.cuda import cublas, device

        self.cublas, self.handle = cublas, device.get_cublas_handle
        self.compute = COMPUTE_32F_FAST_TF32 if tf32 else COMPUTE_32F
        self.one, self.zero = np.ones(1, np.float32), np.zeros(1, np.float32)

    def __call__(self, call: Call, b: Array, a: Array, c: Array, add: bool) -> None:
        operations = [self.cublas.CUBLAS_OP_T if x.transposed else self.cublas.CUBLAS_OP_N for x in (call.b, call.a)]
        alpha, beta = self.one.ctypes.data, (self.one if add else self.zero).ctypes.data
        compute = self.compute if a.dtype == np.float32 else COMPUTE_32F
        for first in range(0, call.times, MOST_AT_ONCE):
            begin = self.handle(), *operations, call.n, call.m, call.k
            (pb, tb), (pa, ta), (pc, tc) = (place(x, of, first) for x, of in ((b, call.b), (a, call.a), (c, call.c)))
            if call.times == 1:
                self.cublas.gemmEx(
                    *begin, alpha, pb, tb, call.b.ld, pa, ta, call.a.ld, beta, pc, tc, call.c.ld, compute, ALGORITHM
                )
            else:
                self.cublas.gemmStridedBatchedEx(
                    *begin,
                    alpha,
                    pb,
                    tb,
                    call.b.ld,
                    call.b.step,
                    pa,
                    ta,
                    call.a.ld,
                    call.a.step,
                    beta,
                    pc,
                    tc,
                    call.c.ld,
                    call.c.step,
                    min(MOST_AT_ONCE, call.times - first),
                    compute,
                    ALGORITHM,
                )


def place(x: Array, of: Layout, first: int) -> tuple[int, int]:
    """Address and type of the matrix with this number in a stack."""
    return x.data.ptr + first * of.step * x.itemsize, CUDA_TYPE[x.dtype.name]
