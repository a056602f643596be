"""What cuBLAS computes, as its manual defines it: matrices are read by columns, from memory, with a leading dimension."""

import numpy as np
from numpy.lib.stride_tricks import as_strided


def by_columns(memory, layout, rows, columns, count):
    """(count, rows, columns) of what is read: column j begins ld numbers after column j - 1."""
    size = memory.itemsize
    if layout.transposed:
        rows, columns = columns, rows
    assert layout.ld >= max(1, rows), "cuBLAS refuses a leading dimension below the number of rows"
    read = as_strided(memory, (count, rows, columns), (layout.step * size, size, layout.ld * size))
    return read.swapaxes(1, 2) if layout.transposed else read


def gemm(call, b, a, c, add, memory=lambda array: array):
    """c^T = b^T a^T, or added to what c holds; sums are float32 at least, as in cuBLAS."""
    b, a, c = memory(b), memory(a), memory(c)
    wide = np.promote_types(a.dtype, np.float32)
    product = (by_columns(b, call.b, call.n, call.k, call.count).astype(wide)
               @ by_columns(a, call.a, call.k, call.m, call.count).astype(wide))
    target = by_columns(c, call.c, call.n, call.m, call.count)
    target[...] = (target + product if add else product).astype(c.dtype)
