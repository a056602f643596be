"""Matrix products by cuBLAS, also for layouts and precisions that `cupy.matmul` would copy, cast or refuse.

cuBLAS assumes column-major matrices, NumPy's are row-major. Read as column-major, a row-major matrix is its transpose.
So for C = A B we ask for C^T = B^T A^T, and nothing is copied.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Callable, NamedTuple

import numpy as np

from scratchformer.nn.parameter import Array

Shape = tuple[int, ...]


class Layout(NamedTuple):
    """Memory layout of a stack of matrices (..., rows, columns), as cuBLAS reads it.

    transposed  False if reading it as column-major gives the transpose of the matrix, as for a row-major one
    ld          leading dimension: numbers between the beginnings of two columns that are read
    stride      numbers between the beginnings of two matrices; 0 if all are the same matrix
    """

    transposed: bool
    ld: int
    stride: int


class GemmCall(NamedTuple):
    """The arguments for cuBLAS: c^T (n, m) = b^T (n, k) a^T (k, m), for `batch_count` matrices."""

    n: int
    m: int
    k: int
    b: Layout
    a: Layout
    c: Layout
    batch_count: int


def layout_of(shape: Shape, strides: Shape) -> Layout | None:
    """The layout of matrices with these strides, in numbers; None if cuBLAS cannot read them."""
    (rows, columns), (row, column) = shape[-2:], strides[-2:]
    stride = stack_stride(shape[:-2], strides[:-2])
    if rows == 1:  # there is no second row, so the stride may be anything
        row = columns if column == 1 else 1
    if columns == 1:
        column = 1
    if stride is None:
        return None
    if column == 1 and row >= columns:
        return Layout(False, row, stride)
    if row == 1 and column >= rows:
        return Layout(True, column, stride)
    return None


def stack_stride(shape: Shape, strides: Shape) -> int | None:
    """The distance between neighbouring matrices of a stack, or None if it is not the same everywhere."""
    axes = [(size, stride) for size, stride in zip(shape, strides) if size > 1]
    if any(outer != size * inner for (_, outer), (size, inner) in zip(axes, axes[1:])):
        return None
    return axes[-1][1] if axes else 0


@lru_cache(maxsize=1 << 14)
def gemm_call(a: tuple[Shape, Shape], b: tuple[Shape, Shape], c: tuple[Shape, Shape]) -> GemmCall | None:
    """The call for c = a b, each given by its shape and its strides in numbers; None if a copy is needed first.

    a and b have the leading axes of c, or none.
    """
    (*stack, m, n), k = c[0], a[0][-1]
    of_b, of_a, of_c = (layout_of(*matrices) for matrices in (b, a, c))
    if of_b is None or of_a is None or of_c is None or of_c.transposed:
        return None
    return GemmCall(n, m, k, of_b, of_a, of_c, math.prod(stack))


Blas = Callable[[GemmCall, Array, Array, Array, bool], None]
"""Executes a call on arrays b, a and c, the output. The last argument says whether to add the product to c."""


class Gemm:
    """gemm(a, b, out): out = a b over the last two axes, or out += a b. All arrays belong to the library `xp`.

    Transposed and strided matrices are read in place. Stacks whose strides cuBLAS cannot follow are copied, such as
    heads side by side in a row.
    """

    def __init__(self, xp: Any, blas: Blas) -> None:
        self.xp, self.blas = xp, blas

    def __call__(self, a: Array, b: Array, out: Array, add: bool = False) -> None:
        if out.size == 0 or a.shape[-1] == 0:  # sums without terms
            if not add:
                out[...] = 0
            return
        call = gemm_call(*map(shape_and_strides, (a, b, out)))
        if call is None:
            a, b = self._readable(a), self._readable(b)
            call = gemm_call(*map(shape_and_strides, (a, b, out)))
        if call is not None:
            self.blas(call, b, a, out, add)
            return
        product = self.xp.empty(out.shape, out.dtype)
        self(a, b, product)
        out[...] = out + product if add else product

    def _readable(self, x: Array) -> Array:
        """x itself if cuBLAS can read it, or a copy. The copy of a column-major matrix is column-major, too."""
        if layout_of(*shape_and_strides(x)) is not None:
            return x
        if x.strides[-2] < x.strides[-1]:
            return self.xp.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        return self.xp.ascontiguousarray(x)


def shape_and_strides(x: Array) -> tuple[Shape, Shape]:
    """The shape, and the strides in numbers."""
    return x.shape, tuple(stride // x.itemsize for stride in x.strides)


CUDA_TYPE = {"float32": 0, "float16": 2, "bfloat16": 14}  # CUDA_R_32F, _16F and _16BF of cudaDataType, library_types.h
COMPUTE_32F, COMPUTE_32F_FAST_TF32, ALGORITHM = 68, 77, -1  # from cublas_api.h
SUMS_IN_FLOAT32 = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: also where a sum is added up in parts

MAX_BATCH = 1 << 15
"""Matrices of a stack in one call. With twice as many, some versions of cuBLAS are known to fail."""


NO_MEMORY = "CUBLAS_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"


ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)
ADDRESS_OF_ONE, ADDRESS_OF_ZERO = ONE.ctypes.data, ZERO.ctypes.data


class CuBlas:
    """cuBLAS on the current device. Sums are float32; with `tf32`, float32 factors are rounded to 11 bits first.

    Memory for its own use comes from CUDA, not from CuPy's pool, which keeps the memory of arrays that are gone. If
    there is none, the pool gives that back, and the product is tried once more.
    Raises MemoryError if that does not help.
    """

    def __init__(self, tf32: bool = False) -> None:
        import cupy
        from cupy.cuda import cublas, device, driver, runtime

        self.cublas, self.handle = cublas, device.get_cublas_handle
        self.errors = cublas.CUBLASError, runtime.CUDARuntimeError, driver.CUDADriverError
        self.empty_pool = cupy.get_default_memory_pool().free_all_blocks
        self.tf32 = tf32
        cublas.setMathMode(self.handle(), SUMS_IN_FLOAT32)

    def __call__(self, call: GemmCall, b: Array, a: Array, c: Array, add: bool) -> None:
        beta, is_stack = ADDRESS_OF_ONE if add else ADDRESS_OF_ZERO, call.batch_count > 1
        multiply = self.cublas.gemmStridedBatchedEx if is_stack else self.cublas.gemmEx
        sizes = int(call.b.transposed), int(call.a.transposed), call.n, call.m, call.k
        for first in range(0, call.batch_count, MAX_BATCH):
            of_b, of_a, of_c = (operand(*each, first, is_stack) for each in ((b, call.b), (a, call.a), (c, call.c)))
            count = [min(MAX_BATCH, call.batch_count - first)] if is_stack else []
            rest = *count, compute_type(a.dtype.name, self.tf32), ALGORITHM
            product = *sizes, ADDRESS_OF_ONE, *of_b, *of_a, beta, *of_c, *rest
            if not self._is_queued(multiply, product):
                self.empty_pool()
                if not self._is_queued(multiply, product):
                    raise MemoryError("no memory for the workspace of cuBLAS")

    def _is_queued(self, multiply: Callable[..., None], product: tuple) -> bool:
        """Queue a product, if there is memory for it -> whether there is."""
        try:
            multiply(self.handle(), *product)
        except self.errors as error:
            if not any(name in str(error) for name in NO_MEMORY):
                raise
            return False
        return True


def operand(x: Array, layout: Layout, first: int, is_stack: bool) -> list[int]:
    """The arguments for one operand, from matrix `first` of the stack on: address, type, leading dimension, stride."""
    address = x.data.ptr + first * layout.stride * x.itemsize
    return [address, CUDA_TYPE[x.dtype.name], layout.ld, *([layout.stride] if is_stack else [])]


def compute_type(dtype: str, tf32: bool) -> int:
    """The compute type of cuBLAS for products of this dtype."""
    return COMPUTE_32F_FAST_TF32 if tf32 and dtype == "float32" else COMPUTE_32F
