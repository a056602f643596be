"""A model of cuBLAS, after its manual: matrices are column-major, with a leading dimension."""

import numpy as np
from numpy.lib.stride_tricks import as_strided


def column_major_view(memory, layout, rows, columns, count):
    """The matrices that cuBLAS reads, (count, rows, columns): column j begins ld numbers after column j - 1."""
    size = memory.itemsize
    if layout.transposed:
        rows, columns = columns, rows
    assert layout.ld >= max(1, rows), "cuBLAS refuses a leading dimension below the number of rows"
    read = as_strided(memory, (count, rows, columns), (layout.stride * size, size, layout.ld * size))
    return read.swapaxes(1, 2) if layout.transposed else read


def gemm(call, b, a, c, add, memory=lambda array: array, bits=24):
    """c^T = b^T a^T, or added to what c holds; sums are float32 at least, as in cuBLAS.

    memory  returns the NumPy array inside an array of another library
    bits    to which float32 factors are rounded
    """
    b, a, c = memory(b), memory(a), memory(c)
    factors = (
        column_major_view(b, call.b, call.n, call.k, call.batch_count),
        column_major_view(a, call.a, call.k, call.m, call.batch_count),
    )
    if bits < 24 and a.dtype == np.float32:
        factors = (rounded(x, bits) for x in factors)
    wide = np.promote_types(a.dtype, np.float32)
    product = np.matmul(*(x.astype(wide) for x in factors))
    target = column_major_view(c, call.c, call.n, call.m, call.batch_count)
    target[...] = (target + product if add else product).astype(c.dtype)


def rounded(x, bits):
    """To so many significant bits."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(x.dtype)
