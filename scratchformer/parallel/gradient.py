"""The gradient of all ranks, added up while backward is still at work."""

from __future__ import annotations

from typing import Any, Sequence

from scratchformer.parallel.communicator import Array, Communicator

BUCKET = 1 << 21
"""Numbers (8 MB in float32) that are worth a message. A layer of the paper's base model has 3 or 4 million."""


class GradientSum:
    """A flat gradient, summed over the ranks bucket by bucket, from its end to its beginning, as backward fills it.

    grad    (n_parameters,) this rank's share; in place, the sum
    begins  where each layer's part begins, rising: a bucket holds whole layers
    wire    an array type with less precision to send as; None sends float32 as it is

    All ranks have the same buckets, and send them in the same order, also those with nothing to add.
    """

    def __init__(self, ranks: Communicator, grad: Array, begins: Sequence[int], wire: Any = None) -> None:
        self.ranks, self.grad, self.wire = ranks, grad, wire
        self.buckets: list[slice] = []
        end = len(grad)
        for begin in [*reversed(begins), 0]:
            if end - begin >= BUCKET or begin == 0 < end:
                self.buckets.append(slice(begin, end))
                end = begin
        self.sent = 0
        self.rounded: list[tuple[Array, Array]] = []  # parts, and what was sent for them

    def filled(self, begin: int) -> None:
        """From this place on the gradient is complete: send what has become a bucket."""
        while self.sent < len(self.buckets) and self.buckets[self.sent].start >= begin:
            self._send(self.grad[self.buckets[self.sent]])
            self.sent += 1

    def finish(self) -> None:
        """Send the rest. What is computed from here on sees the sum."""
        self.filled(0)
        self.ranks.wait()
        for part, rounded in self.rounded:
            part[...] = rounded
        self.sent, self.rounded = 0, []

    def _send(self, part: Array) -> None:
        if self.wire is None:
            self.ranks.all_reduce_(part)
        else:
            self.rounded.append((part, part.astype(self.wire)))
            self.ranks.all_reduce_(self.rounded[-1][1])
