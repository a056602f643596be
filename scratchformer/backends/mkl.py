"""Matrix products by Intel's MKL, called through `ctypes`, instead of those of NumPy's library.

On some Intel processors MKL's products are faster than those of OpenBLAS, which NumPy brings: by 10 to 25 % in the
shapes of a Transformer's layers on a Xeon with AVX-512. And it has products that NumPy has no function for: it adds to
a matrix without a temporary array, lays out a weight once for all products to come, and multiplies bfloat16 matrices.

`pip install 'scratchformer[mkl]'` brings the library. `backends/products.py` decides whether it is used.
"""

from __future__ import annotations

import ctypes
import platform
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.stride_tricks import as_strided
from threadpoolctl import threadpool_limits

from scratchformer.backends.cpu import BLOCK, FastOps, ones_like_rows
from scratchformer.errors import UserError, in_one_line
from scratchformer.nn.ops import chunks, rows_of
from scratchformer.nn.parameter import Array, ParameterStore

FLOAT32 = np.dtype("float32")
BFLOAT16 = np.dtype("uint16")
"""NumPy has no bfloat16: the upper halves of float32 numbers stand for it."""

SMALLEST = 1 << 15
"""A product of fewer multiplications stays with NumPy: a call through ctypes takes some microseconds more."""

TYPICAL_ROWS = 64
"""Weights are packed for products with so many rows, and serve those with any other number."""

# from mkl_cblas_64.h
ROWS_FIRST, PLAIN, TRANSPOSED, PACKED, RIGHT_MATRIX = 101, 111, 112, 151, 162
ENUM, SIZE, FACTOR, POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
MATRIX = [POINTER, SIZE]
SAME_BITS = 2
"""MKL_CBWR_AUTO: the bits of a product do not depend on where its matrices lie, so that runs can be repeated."""

NAMES = {FLOAT32: "sgemm", BFLOAT16: "gemm_bf16bf16f32"}
"""What the functions for matrices of a dtype are called. Their results are float32."""


class Mkl:
    """The library at this path. Raises UserError if it cannot be loaded, or lacks a function."""

    def __init__(self, path: Path | str) -> None:
        try:
            self.library = ctypes.CDLL(str(path))
            if self.library.MKL_CBWR_Set(SAME_BITS):  # before any other call
                raise OSError("it does not compute the same bits in every run")
            self.library.MKL_Set_Dynamic(0)
            self.set_threads(1)
            text = ctypes.create_string_buffer(200)
            self.library.MKL_Get_Version_String(text, len(text))
            self.gemm, self.packed_size, self.pack, self.compute = {}, {}, {}, {}
            for dtype, name in NAMES.items():
                in_pack, in_compute = ([FACTOR], []) if dtype == FLOAT32 else ([], [FACTOR])
                sizes = [SIZE] * 3
                self.gemm[dtype] = self._function(name, [ENUM] * 3 + sizes + [FACTOR] + 2 * MATRIX + [FACTOR] + MATRIX)
                self.packed_size[dtype] = self._function(f"{name}_pack_get_size", [ENUM] + sizes, ctypes.c_size_t)
                self.pack[dtype] = self._function(f"{name}_pack", [ENUM] * 3 + sizes + in_pack + MATRIX + [POINTER])
                to_compute = [ENUM, SIZE, SIZE] + sizes + in_compute + 2 * MATRIX + [FACTOR] + MATRIX
                self.compute[dtype] = self._function(f"{name}_compute", to_compute)
        except (OSError, AttributeError) as error:
            raise UserError(f"{path}: MKL cannot be used: {in_one_line(error)}") from None
        self.version = text.value.decode("ascii", "replace")

    def set_threads(self, n: int) -> None:
        """Let each product use n cores, in all threads of this process that have no number of their own."""
        self.threads = n
        self.library.MKL_Set_Num_Threads(n)

    def _function(self, name: str, arguments: list, result: Any = None) -> Any:
        function = getattr(self.library, f"cblas_{name}_64")
        function.argtypes, function.restype = arguments, result
        return function

    def multiply(self, a: Array, b: Array, y: Array, keep: float) -> bool:
        """y = a b + keep y, for matrices -> whether it was done: BLAS cannot read every layout."""
        (m, k), n = a.shape, b.shape[1]
        of_a, of_b, of_y = layout(a), layout(b), layout(y)
        if of_a is None or of_b is None or of_y is None or of_y[0] != PLAIN or len(b) != k or y.shape != (m, n):
            return False
        self.gemm[a.dtype](
            ROWS_FIRST, of_a[0], of_b[0], m, n, k,
            1.0, a.ctypes.data, of_a[1], b.ctypes.data, of_b[1], keep, y.ctypes.data, of_y[1],
        )  # fmt: skip
        return True

    def packed(self, W: Array) -> Array:
        """A weight (k, n) in the layout that products read fastest. It must be one that `layout` knows."""
        (k, n), (way, distance) = W.shape, layout(W)  # type: ignore[misc]
        one = (1.0,) if W.dtype == FLOAT32 else ()
        packed = aligned(self.packed_size[W.dtype](RIGHT_MATRIX, TYPICAL_ROWS, n, k))
        self.pack[W.dtype](
            ROWS_FIRST, RIGHT_MATRIX, way, TYPICAL_ROWS, n, k, *one, W.ctypes.data, distance, packed.ctypes.data
        )
        return packed

    def multiply_packed(self, a: Array, packed: Array, y: Array, keep: float) -> None:
        """y = a W + keep y with a packed weight W; a and y are stored by rows without gaps."""
        (m, k), n = a.shape, y.shape[1]
        one = () if a.dtype == FLOAT32 else (1.0,)
        self.compute[a.dtype](
            ROWS_FIRST, PLAIN, PACKED, m, n, k, *one, a.ctypes.data, k, packed.ctypes.data, n, keep, y.ctypes.data, n
        )


@lru_cache(maxsize=1)
def load() -> Mkl:
    """MKL, loaded once for the process. Raises UserError if it is not installed or cannot be used."""
    return Mkl(library_path())


def library_path() -> Path:
    """The file that loads all others. Raises UserError if MKL is not installed, or not as a whole."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UserError(f"MKL needs Linux on x86-64, and this is {platform.system()} on {platform.machine()}")
    found = [path for path in installed_libraries() if path.name.startswith("libmkl_rt.so")]
    if not found:
        raise UserError("MKL is not installed; pip install 'scratchformer[mkl]' brings it")
    for path in installed_libraries():
        if not path.exists():  # MKL would end the process
            raise UserError(f"{path}: MKL cannot be used: this file is missing")
    return found[0]


@contextmanager
def product_threads(n: int) -> Iterator[None]:
    """Let each matrix product of a block of code use n cores, whichever library computes it, in whichever thread.

    Blocks may be nested, but two threads must not be in such blocks at the same time.
    """
    with threadpool_limits(n, "blas"):  # this limits MKL in the calling thread only
        if not load.cache_info().currsize:
            yield
            return
        library = load()
        before = library.threads
        library.set_threads(n)
        try:
            yield
        finally:
            library.set_threads(before)


def installed_version() -> str:
    """The version of the package mkl; "" if it is not installed."""
    try:
        return metadata.version("mkl")
    except metadata.PackageNotFoundError:
        return ""


def installed_libraries() -> list[Path]:
    """The shared libraries of MKL that pip has installed; none if it has not."""
    files = (metadata.files("mkl") if installed_version() else None) or []
    return [Path(str(file.locate())).resolve() for file in files if file.name.startswith("libmkl_")]


def layout(x: Array) -> tuple[int, int] | None:
    """How BLAS reads a matrix that is stored by rows, or the transposed view of one -> PLAIN or TRANSPOSED, and the
    distance of its rows in elements; None if it cannot."""
    (n_rows, n_columns), (by_row, by_column), size = x.shape, x.strides, x.itemsize
    if by_column == size and by_row % size == 0 and by_row >= size * n_columns:
        return PLAIN, by_row // size
    if by_row == size and by_column % size == 0 and by_column >= size * n_rows:
        return TRANSPOSED, by_column // size
    return None


def aligned(n_bytes: int) -> Array:
    """A buffer that begins at a multiple of 64 bytes, the length of a line of the cache."""
    buffer = np.empty(n_bytes + 64, np.uint8)
    return buffer[-buffer.ctypes.data % 64 :][:n_bytes]


class MklOps(FastOps):
    """The fast operations, with the products of single matrices by MKL.

    The small products of attention, one for each sentence and head, stay with NumPy, which is faster at those.
    """

    def __init__(self, mkl: Mkl) -> None:
        super().__init__(np, (FLOAT32,))
        self.mkl = mkl

    def __repr__(self) -> str:
        return f"{super().__repr__()}, with products by MKL"

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        if a.ndim == b.ndim == 2 and is_large(a, b):
            y = np.empty((len(a), b.shape[1]), FLOAT32) if out is None else out
            if self.multiply(a, b, y, 0.0):
                return y
        return super().matmul(a, b, out)

    def add_product_inplace(self, total: Array, a: Array, b: Array) -> None:
        if not self.multiply(a, b, total, 1.0):
            super().add_product_inplace(total, a, b)

    def linear(self, x: Array, W: Array, b: Array | None) -> Array:
        """The product is added to the bias, which takes one pass less over y than to add the bias to the product."""
        if is_large(rows_of(x), W):
            y = filled(x, W, b)
            if self.multiply(rows_of(x), W, rows_of(y), float(b is not None)):
                return y
        return super().linear(x, W, b)

    def multiply(self, a: Array, b: Array, y: Array, keep: float) -> bool:
        """y = a b + keep y -> whether it was done; otherwise NumPy must do it."""
        return is_large(a, b) and a.dtype == b.dtype == y.dtype == FLOAT32 and self.mkl.multiply(a, b, y, keep)


def is_large(a: Array, b: Array) -> bool:
    """Whether the product of two matrices takes long enough for a call through ctypes."""
    return a.size * b.shape[1] >= SMALLEST


def filled(x: Array, W: Array, b: Array | None) -> Array:
    """A new array for x W + b that holds b, or anything if b is None."""
    y = np.empty((*x.shape[:-1], W.shape[1]), FLOAT32)
    if b is not None:
        y[...] = b
    return y


class Bf16Ops(MklOps):
    """Products of bfloat16 matrices, summed in float32. Everything else is float32.

    Weights are rounded once a step: `hold` a model before its layers run. The input of an affine map is rounded once
    for its products in forward and backward, and so is the gradient of its output. What else there is to multiply is
    rounded for each product.
    """

    def __init__(self, mkl: Mkl) -> None:
        super().__init__(mkl)
        self.held: WeakKeyDictionary[ParameterStore, HeldWeights] = WeakKeyDictionary()
        self.inputs: dict[int, tuple[weakref.ref, Array]] = {}  # id of an array -> this array, and the same rounded

    def __repr__(self) -> str:
        return f"{super().__repr__()} in bfloat16"

    def hold(self, store: ParameterStore) -> None:
        """Round the weights of a model when they are first used, and again when they have changed."""
        weights = HeldWeights(store.data)
        store.hold(store.data, store.grad, after_change=weights.forget)
        self.held[store] = weights

    def multiply(self, a: Array, b: Array, y: Array, keep: float) -> bool:
        fits = is_large(a, b) and y.dtype == FLOAT32 and {a.dtype, b.dtype} <= {FLOAT32, BFLOAT16}
        return fits and self.mkl.multiply(self.rounded(a), self.rounded(b), y, keep)

    def linear(self, x: Array, W: Array, b: Array | None) -> Array:
        fits = is_large(rows_of(x), W) and layout(W) is not None
        return super().linear(self.rounded_input(x) if fits else x, W, b)

    def linear_backward(self, dy: Array, x: Array, W: Array, dW: Array, db: Array | None) -> Array:
        """As in `FastOps`, but x and dy are rounded once."""
        rows, dx = rows_of(dy), np.empty(x.shape, FLOAT32)
        if not is_large(rows, W.T) or (layout(dW) or (None,))[0] != PLAIN or layout(W) is None:
            return super().linear_backward(dy, x, W, dW, db)
        x_bits, bits = rows_of(self.rounded_input(x)), self.rounded(rows)
        self.multiply(x_bits.T, bits, dW, 1.0)
        self.multiply(bits, W.T, rows_of(dx), 0.0)
        if db is not None:
            db += ones_like_rows(rows) @ rows
        return dx

    def rounded_input(self, x: Array) -> Array:
        """The input (..., d) of a layer in bfloat16, kept as long as there is x, which nobody may change meanwhile."""
        key = id(x)
        known, bits = self.inputs.get(key, (None, x))
        if known is None or known() is not x:
            bits = in_bfloat16(rows_of(x)).reshape(x.shape)
            self.inputs[key] = weakref.ref(x, lambda _: self.inputs.pop(key, None)), bits
        return bits

    def for_products(self, x: Array) -> Array:
        return self.rounded(x) if x.size >= SMALLEST else x

    def rounded(self, x: Array) -> Array:
        """A matrix in bfloat16. For a weight of a model that is held it is a view of the rounded weights."""
        if x.dtype == BFLOAT16:
            return x
        for weights in self.held.values():
            offset = x.ctypes.data - weights.data.ctypes.data
            if 0 <= offset < weights.data.nbytes:
                bits = weights.rounded()[offset // x.itemsize :]
                return as_strided(bits, x.shape, [step // 2 for step in x.strides])
        return in_bfloat16(x)


class HeldWeights:
    """The flat weights (n,) of a model, and the same rounded. Threads may ask at the same time: then more than one
    rounds, to the same bits."""

    def __init__(self, data: Array) -> None:
        self.data, self.bits, self.is_rounded = data, np.empty(data.shape, BFLOAT16), False

    def forget(self) -> None:
        """The weights have changed."""
        self.is_rounded = False

    def rounded(self) -> Array:
        if not self.is_rounded:
            round_into(self.bits, self.data)
            self.is_rounded = True
        return self.bits


def in_bfloat16(x: Array) -> Array:
    """A matrix, or the transposed view of one, rounded to bfloat16 and stored in the same order."""
    if x.strides[0] < x.strides[1]:
        return in_bfloat16(x.T).T
    bits = np.empty(x.shape, BFLOAT16)
    round_into(bits, x)
    return bits


def round_into(bits: Array, x: Array) -> None:
    """bits = x in bfloat16, for float32 x of the same shape: the nearest number. A tie goes away from zero.

    Infinities stay what they are, and so does NumPy's NaN.
    """
    flat_bits, flat = bits.reshape(-1), x.reshape(-1)
    for block in chunks(flat.size, BLOCK):
        flat_bits[block] = (flat[block].view("uint32") + HALF).view(BFLOAT16)[1::2]


HALF = np.uint32(1 << 15)
"""Half of the last digit that stays."""


class PackedOps(MklOps):
    """For weights that do not change any more, as in translation: each is packed when it has served some products.

    Other products copy the whole weight into the layout that MKL needs, which takes as long as a product with 64 rows.
    A packed weight takes at least some megabytes.

    bf16  round weights, and what is multiplied by them, to bfloat16
    """

    def __init__(self, mkl: Mkl, bf16: bool = False) -> None:
        super().__init__(mkl)
        self.dtype = BFLOAT16 if bf16 else FLOAT32
        self.weights: dict[tuple, Frozen] = {}
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{super().__repr__()}, of weights that stay the same" + " in bfloat16" * (self.dtype == BFLOAT16)

    def linear(self, x: Array, W: Array, b: Array | None) -> Array:
        frozen = self.frozen(W) if is_large(rows_of(x), W) and x.shape[-1] == len(W) else None
        if frozen is None:
            return super().linear(x, W, b)
        y, rows = filled(x, W, b), np.ascontiguousarray(rows_of(x))
        if self.dtype == BFLOAT16:
            rows = in_bfloat16(rows)
        if frozen.packed is None:
            self.mkl.multiply(rows, frozen.weight, rows_of(y), float(b is not None))
        else:
            self.mkl.multiply_packed(rows, frozen.packed, rows_of(y), float(b is not None))
        return y

    def frozen(self, W: Array) -> Frozen | None:
        """The weight in this dtype, packed if that is worth it; None if BLAS cannot read it."""
        if layout(W) is None or W.dtype != FLOAT32:
            return None
        key = (W.ctypes.data, W.shape, W.strides)
        with self.lock:
            if key not in self.weights:
                self.weights[key] = Frozen(W, in_bfloat16(W) if self.dtype == BFLOAT16 else W)
            frozen = self.weights[key]
            frozen.uses += 1
            if frozen.uses == USES_BEFORE_PACKING:
                frozen.packed = self.mkl.packed(frozen.weight)
            return frozen


@dataclass
class Frozen:
    """A weight that does not change: as it was given, so that no other array takes its address; in the dtype of the
    products; how many it has served; and packed."""

    given: Array
    weight: Array
    uses: int = 0
    packed: Array | None = None


USES_BEFORE_PACKING = 32
"""A weight that serves fewer products is not packed: that would slow down the translation of a single sentence."""
