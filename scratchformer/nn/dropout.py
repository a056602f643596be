"""Random bits for dropout that depend only on a key.

A generator with a hidden state would have to be saved in checkpoints, and another device could not repeat its numbers.
A counter-based generator (Philox4x64-10, Salmon et al. 2011) has no state: it computes its bits from a key and a
counter. The same key always draws the same mask. So a resumed run repeats the interrupted one bit for bit, a gradient
check may call forward many times, and a CUDA kernel draws the same masks as NumPy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

RESOLUTION = 2**16
"""Each decision uses 16 random bits, so a probability is rounded to a multiple of 1/65536."""

CHILDREN = 1024
"""A site is the path from the model to a layer: child numbers, each plus 1, as digits in this base."""


class DropoutKey(NamedTuple):
    """The address of one dropout mask: which run, step, micro-batch and layer. Layers take it as `rng`.

    seed   of the run
    step   of the optimizer, from 1
    shard  the number of the micro-batch within the step
    site   the place in the model; a layer passes `rng.child(i)` to its i-th child
    """

    seed: int
    step: int
    shard: int = 0
    site: int = 0

    def child(self, index: int) -> DropoutKey:
        """The key for the index-th child of the layer that holds this key. Raises ValueError for too many children."""
        if not 0 <= index < CHILDREN - 1:
            raise ValueError(f"child {index}: a layer has at most {CHILDREN - 1} children that draw")
        return self._replace(site=self.site * CHILDREN + index + 1)

    def keep(self, shape: tuple[int, ...], P_drop: float) -> np.ndarray:
        """A bool array of `shape`, True where a unit is kept: independently with probability 1 - P_drop."""
        size = math.prod(shape)
        philox = np.random.Philox(
            key=np.array([self.seed, self.site], np.uint64), counter=np.array([0, self.step, self.shard, 0], np.uint64)
        )
        bits = philox.random_raw(-(-size // 4)).view(np.uint16)  # four decisions from each 64-bit word
        return (bits[:size] >= drop_threshold(P_drop)).reshape(shape)


def drop_threshold(P_drop: float) -> int:
    """A unit is dropped when its 16 random bits, read as a number, are below this."""
    return min(round(P_drop * RESOLUTION), RESOLUTION - 1)


def keep_scale(P_drop: float) -> float:
    """Kept units are multiplied by this, so that the expected sum is unchanged (inverted dropout)."""
    return RESOLUTION / (RESOLUTION - drop_threshold(P_drop))
