"""Sums the gradient over all ranks while backward is still running."""

from __future__ import annotations

from typing import Any, Sequence

from scratchformer.parallel.communicator import Array, Communicator

BUCKET_SIZE = 1 << 21
"""Smallest bucket, in numbers (8 MB in float32). A layer of the paper's base model has 3 or 4 million."""


class GradientSum:
    """Replaces a flat gradient by its sum over the ranks, one bucket at a time from its end, as backward completes it.

    grad           (n_parameters,) of this rank; overwritten by the sum
    layer_offsets  where each layer begins in grad, ascending; a bucket holds whole layers
    dtype          the dtype gradients are sent in, such as bfloat16; None sends float32 as it is

    All ranks have the same buckets and send them in the same order, even a rank whose gradient is zero.
    """

    def __init__(self, ranks: Communicator, grad: Array, layer_offsets: Sequence[int], dtype: Any = None) -> None:
        self.ranks, self.grad, self.dtype = ranks, grad, dtype
        self.buckets: list[slice] = []
        end = len(grad)
        for offset in [*reversed(layer_offsets), 0]:
            if end - offset >= BUCKET_SIZE or offset == 0 < end:
                self.buckets.append(slice(offset, end))
                end = offset
        self.n_sent = 0
        self.rounded: list[tuple[Array, Array]] = []  # buckets, and their copies in self.dtype

    def complete_from(self, offset: int) -> None:
        """Send every bucket that lies in grad[offset:], which backward has completed."""
        while self.n_sent < len(self.buckets) and self.buckets[self.n_sent].start >= offset:
            bucket = self.grad[self.buckets[self.n_sent]]
            self.n_sent += 1
            if self.dtype is not None:
                self.rounded.append((bucket, bucket.astype(self.dtype)))
                bucket = self.rounded[-1][1]
            self.ranks.all_reduce_inplace(bucket)

    def finish(self) -> None:
        """Send the remaining buckets. Computations that follow see the sum."""
        self.complete_from(0)
        self.ranks.wait()
        for bucket, rounded in self.rounded:
            bucket[...] = rounded
        self.n_sent, self.rounded = 0, []
