"""Products with a bias by cuBLASLt, which adds the bias to each number before it writes it.

A kernel of its own for the bias would read and write the whole product once more. CuPy has no function for this, so
ctypes calls the library.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from scratchformer.backends.cuda.gemm import ADDRESS_OF_ONE, ADDRESS_OF_ZERO, CUDA_TYPE, GemmCall, Layout, compute_type
from scratchformer.nn.parameter import Array

# From cublasLt.h and library_types.h.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
MOST_WORKSPACE, ALIGNMENT_OF_A = 1, 5  # cublasLtMatmulPreferenceAttributes_t; those of B, C and D follow
BIAS = 4  # cublasLtEpilogue_t
RESULT_BYTES = 96  # of a cublasLtMatmulHeuristicResult_t, which begins with the algorithm
R_32F = CUDA_TYPE["float32"]

WORKSPACE_BYTES = 32 << 20
"""What NVIDIA recommends for an H100."""

BEST_ALIGNMENT = 256
"""In bytes. cuBLASLt has no use for a better one."""


class Plan(NamedTuple):
    """A product with a bias, of matrices of given sizes: cuBLASLt's descriptions of it, and the algorithm."""

    operation: c_void_p
    b: c_void_p
    a: c_void_p
    c: c_void_p
    algorithm: Any


class CublasLt:
    """cuBLASLt on the current device. Sums are float32; with `tf32`, float32 factors are rounded to 11 bits first.

    library  None where libcublasLt is not found: then there are no products with a bias
    """

    def __init__(self, tf32: bool = False) -> None:
        import cupy
        from cupy.cuda import cublas, device, runtime

        self.cupy, self.handle, self.error, self.tf32 = cupy, device.get_cublas_handle, cublas.CUBLASError, tf32
        self.library = find(f"libcublasLt.so.{runtime.runtimeGetVersion() // 1000}")
        self.plan = lru_cache(maxsize=1 << 14)(self.new_plan)

    @cached_property
    def workspace(self) -> Array:
        return self.cupy.empty(WORKSPACE_BYTES, "uint8")

    def __call__(self, call: GemmCall, b: Array, a: Array, bias: Array, c: Array) -> bool:
        """c = a b + bias, for one matrix c of the dtype of a, b and bias -> False if there is no kernel for it."""
        if self.library is None or call.batch_count != 1:
            return False
        of_b, of_a, of_bias, of_c = b.data.ptr, a.data.ptr, bias.data.ptr, c.data.ptr
        plan = self.plan(call, a.dtype, alignment_of(of_b, of_a, of_bias, of_c))
        if plan is None:
            return False
        operation, b_layout, a_layout, c_layout, algorithm = plan
        self._set(self.library.cublasLtMatmulDescSetAttribute, operation, BIAS_POINTER, c_void_p(of_bias))
        space, stream = self.workspace, self.cupy.cuda.get_current_stream().ptr
        factors = of_b, b_layout, of_a, a_layout
        arguments = ADDRESS_OF_ONE, *factors, ADDRESS_OF_ZERO, of_c, c_layout, of_c, c_layout, algorithm
        self._check(
            self.library.cublasLtMatmul(self.handle(), operation, *arguments, space.data.ptr, space.size, stream)
        )
        return True

    def new_plan(self, call: GemmCall, dtype: np.dtype, alignment: int) -> Plan | None:
        """None if cuBLASLt knows no algorithm for it. All arrays begin at a multiple of the alignment."""
        library, stored = self.library, CUDA_TYPE[dtype.name]
        operation = self._new(library.cublasLtMatmulDescCreate, compute_type(dtype.name, self.tf32), R_32F)
        values = (TRANSPOSE_A, call.b.transposed), (TRANSPOSE_B, call.a.transposed), (EPILOGUE, BIAS)
        for attribute, value in values:
            self._set(library.cublasLtMatmulDescSetAttribute, operation, attribute, c_int(value))
        self._set(library.cublasLtMatmulDescSetAttribute, operation, BIAS_POINTER, c_void_p(alignment))
        matrices = (call.b, call.n, call.k), (call.a, call.k, call.m), (call.c, call.n, call.m)
        of_b, of_a, of_c = (self._layout(stored, *matrix) for matrix in matrices)
        preference = self._new(library.cublasLtMatmulPreferenceCreate)
        set_preference = library.cublasLtMatmulPreferenceSetAttribute
        self._set(set_preference, preference, MOST_WORKSPACE, c_size_t(WORKSPACE_BYTES))
        for place in range(4):
            self._set(set_preference, preference, ALIGNMENT_OF_A + place, c_int(alignment))
        found, best = c_int(), (c_char * RESULT_BYTES)()
        status = library.cublasLtMatmulAlgoGetHeuristic(
            self.handle(), operation, of_b, of_a, of_c, of_c, preference, 1, best, byref(found)
        )
        return None if status or not found.value else Plan(operation, of_b, of_a, of_c, best)

    def _layout(self, stored: int, layout: Layout, rows: int, columns: int) -> c_void_p:
        as_stored = (columns, rows) if layout.transposed else (rows, columns)
        return self._new(self.library.cublasLtMatrixLayoutCreate, stored, *as_stored, layout.ld)

    def _new(self, create: Any, *arguments: int) -> c_void_p:
        made = c_void_p()
        self._check(create(byref(made), *arguments))
        return made

    def _set(self, set_attribute: Any, of: c_void_p, attribute: int, value: Any) -> None:
        self._check(set_attribute(of, attribute, byref(value), ctypes.sizeof(value)))

    def _check(self, status: int) -> None:
        if status:
            raise self.error(status)


def alignment_of(b: int, a: int, bias: int, c: int) -> int:
    """The largest power of two that divides all these addresses, at most BEST_ALIGNMENT."""
    together = b | a | bias | c | BEST_ALIGNMENT
    return together & -together


def find(name: str) -> Any:
    """The library with this name, which cuBLAS itself has loaded, with the types of its arguments; None if it is not
    there."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    p, new = c_void_p, POINTER(c_void_p)
    library.cublasLtMatmulDescCreate.argtypes = new, c_int, c_int
    library.cublasLtMatmulDescSetAttribute.argtypes = p, c_int, p, c_size_t
    library.cublasLtMatrixLayoutCreate.argtypes = new, c_int, c_uint64, c_uint64, c_int64
    library.cublasLtMatmulPreferenceCreate.argtypes = (new,)
    library.cublasLtMatmulPreferenceSetAttribute.argtypes = p, c_int, p, c_size_t
    library.cublasLtMatmulAlgoGetHeuristic.argtypes = p, p, p, p, p, p, p, c_int, p, POINTER(c_int)
    library.cublasLtMatmul.argtypes = *13 * [p], p, c_size_t, p
    return library
