"""Products with a bias by cuBLASLt, which adds the bias to each number before it writes it.

A kernel of its own for the bias would read and write the whole product once more. CuPy has no function for this, so
ctypes calls the library.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scratchformer.backends.cuda.gemm import ADDRESS_OF_ONE, ADDRESS_OF_ZERO, CUDA_TYPE, GemmCall, Layout, compute_type
from scratchformer.nn.parameter import Array

# From cublasLt.h and library_types.h.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
MOST_WORKSPACE, REDUCTIONS, ALIGNMENT_OF_A = 1, 3, 5  # cublasLtMatmulPreferenceAttributes_t; those of B, C, D follow
BIAS = 4  # cublasLtEpilogue_t
IN_FLOAT32 = 2  # cublasLtReductionScheme_t: the parts of a sum are float32, and added in a separate step
R_32F = CUDA_TYPE["float32"]

WORKSPACE_BYTES = 32 << 20
"""What NVIDIA recommends for an H100."""

BEST_ALIGNMENT = 256
"""In bytes. cuBLASLt has no use for a better one."""

MOST_PLANS = 1 << 14
"""Batches of other sizes need other plans, so the known ones are forgotten when there are so many."""


class Description(c_void_p):
    """What cuBLASLt knows an operation, a layout or a preference by."""


class Suggestion(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


class Plan(NamedTuple):
    """A product with a bias, of matrices of given sizes: cuBLASLt's descriptions of it, and the algorithm."""

    operation: Description
    b: Description
    a: Description
    c: Description
    suggestion: Suggestion


class CublasLt:
    """cuBLASLt on the current device. Sums are float32; with `tf32`, float32 factors are rounded to 11 bits first.

    It is for one thread and one stream, since all products use the same workspace.

    library  None where libcublasLt is not found: then there are no products with a bias
    """

    def __init__(self, tf32: bool = False) -> None:
        import cupy
        from cupy.cuda import cublas, device, runtime  # `find` relies on this import

        self.cupy, self.handle, self.error, self.tf32 = cupy, device.get_cublas_handle, cublas.CUBLASError, tf32
        self.library = find(f"libcublasLt.so.{runtime.runtimeGetVersion() // 1000}")
        self.plans: dict[tuple, Plan | None] = {}

    @cached_property
    def workspace(self) -> Array:
        return self.cupy.empty(WORKSPACE_BYTES, "uint8")

    def __call__(self, call: GemmCall, b: Array, a: Array, bias: Array, c: Array) -> bool:
        """c = a b + bias, for one matrix c of the dtype of a, b and bias -> False if cuBLASLt cannot do it.

        It may lack a kernel, or memory for one: then cuBLAS should try the product, which knows what to do.
        """
        if self.library is None or call.batch_count != 1:
            return False
        of_b, of_a, of_bias, of_c = b.data.ptr, a.data.ptr, bias.data.ptr, c.data.ptr
        plan = self.plan(call, a.dtype, alignment_of(of_b, of_a, of_bias, of_c))
        if plan is None:
            return False
        operation, b_layout, a_layout, c_layout, suggestion = plan
        self._set(self.library.cublasLtMatmulDescSetAttribute, operation, BIAS_POINTER, c_void_p(of_bias))
        space, stream = self.workspace, self.cupy.cuda.get_current_stream().ptr
        factors = of_b, b_layout, of_a, a_layout
        arguments = ADDRESS_OF_ONE, *factors, ADDRESS_OF_ZERO, of_c, c_layout, of_c, c_layout, byref(suggestion)
        multiply = self.library.cublasLtMatmul
        return multiply(self.handle(), operation, *arguments, space.data.ptr, space.size, stream) == 0

    def plan(self, *key: Any) -> Plan | None:
        """`new_plan`, or what it was for the same arguments."""
        try:
            return self.plans[key]
        except KeyError:
            pass
        if len(self.plans) == MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan = self.new_plan(*key)
        return plan

    def new_plan(self, call: GemmCall, dtype: np.dtype, alignment: int) -> Plan | None:
        """None if cuBLASLt knows no algorithm for it. All arrays begin at a multiple of the alignment."""
        library, stored = self.library, CUDA_TYPE[dtype.name]
        operation = self._new("MatmulDesc", compute_type(dtype.name, self.tf32), R_32F)
        values = (TRANSPOSE_A, call.b.transposed), (TRANSPOSE_B, call.a.transposed), (EPILOGUE, BIAS)
        for attribute, value in values:
            self._set(library.cublasLtMatmulDescSetAttribute, operation, attribute, c_int(value))
        self._set(library.cublasLtMatmulDescSetAttribute, operation, BIAS_POINTER, c_void_p(alignment))
        matrices = (call.b, call.n, call.k), (call.a, call.k, call.m), (call.c, call.n, call.m)
        of_b, of_a, of_c = (self._layout(stored, *matrix) for matrix in matrices)
        preference = self._new("MatmulPreference")
        set_preference = library.cublasLtMatmulPreferenceSetAttribute
        self._set(set_preference, preference, MOST_WORKSPACE, c_size_t(WORKSPACE_BYTES))
        self._set(set_preference, preference, REDUCTIONS, c_int(IN_FLOAT32))
        for place in range(4):
            self._set(set_preference, preference, ALIGNMENT_OF_A + place, c_int(alignment))
        found, best = c_int(), Suggestion()
        status = library.cublasLtMatmulAlgoGetHeuristic(
            self.handle(), operation, of_b, of_a, of_c, of_c, preference, 1, byref(best), byref(found)
        )
        return None if status or not found.value or best.state else Plan(operation, of_b, of_a, of_c, best)

    def _layout(self, stored: int, layout: Layout, rows: int, columns: int) -> Description:
        as_stored = (columns, rows) if layout.transposed else (rows, columns)
        return self._new("MatrixLayout", stored, *as_stored, layout.ld)

    def _new(self, kind: str, *arguments: int) -> Description:
        made = Description()
        self._check(getattr(self.library, f"cublasLt{kind}Create")(byref(made), *arguments))
        weakref.finalize(made, getattr(self.library, f"cublasLt{kind}Destroy"), made.value).atexit = False
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
    """The library with this name, with the types of its arguments; None if it is not there. If cuBLAS has been loaded,
    so has this library, and the name leads to the same copy."""
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
    for kind in "MatmulDesc", "MatrixLayout", "MatmulPreference":
        getattr(library, f"cublasLt{kind}Destroy").argtypes = (p,)
    library.cublasLtMatmul.argtypes = *13 * [p], p, c_size_t, p
    return library
