"""Tell a decoder that writes a tag for each word of its source which word comes next; not part of the paper's model."""

from __future__ import annotations

from typing import Any

import numpy as np

from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import PositionalEncoding
from scratchformer.nn.ops import ops_of, rows_of
from scratchformer.nn.parameter import Array, Layer

FIRST_TAG = 4
"""The ids of tags follow those of PAD, EOS, BOS and UNK: `text.tokenizer.N_SPECIALS`."""


class NextWord(Layer):
    """Add to the decoder's input the word to be tagged next: its number, and the encoder's output for it.

        y_t = x_t + memory[k_t] + PE(k_t),   k_t = number of tags among the ids 0 to t of the decoder's input

    The tags are the ids FIRST_TAG to FIRST_TAG + n_tags - 1. When all words have a tag, k stays at the last token of
    the source, its end symbol. PE are the sinusoids of §3.5. There are no parameters.

    forward(x (B, T, D), memory (B, S, D), k (B, T) int, memory_mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D), dmemory (B, S, D)

    Keeps:    which row of memory each position has read.
    Raises:   ValueError if the shapes do not fit.
    Differs:  not in the paper, whose decoder has to find with its attention how far it is. Two departures: it is told
              the number of the next word, and it reads the encoder's output for that word without attention.
    """

    def __init__(self, n_tags: int) -> None:
        self.n_tags = n_tags
        self.numbers = PositionalEncoding()

    def is_tag(self, ids: np.ndarray) -> np.ndarray:
        """True for each id of the target that is a tag."""
        return (ids >= FIRST_TAG) & (ids < FIRST_TAG + self.n_tags)

    def count(self, target_in_ids: np.ndarray) -> np.ndarray:
        """k (B, T): number of tags that the decoder has read at each position, that of the position included."""
        return np.cumsum(self.is_tag(target_in_ids), axis=1)

    def forward(
        self, x: Array, memory: Array, k: np.ndarray, memory_mask: Mask = Mask(), rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        B, S, _ = memory.shape
        if not S or k.shape != x.shape[:2] or len(x) != B:
            raise ValueError(f"x {x.shape}, memory {memory.shape} and k {k.shape} do not fit together")
        lengths = memory_mask.key_lengths
        last = S - 1 if lengths is None else np.maximum(lengths, 1)[:, None] - 1
        rows = np.arange(B)[:, None] * S + np.minimum(k, last)  # (B, T), rows of memory as a matrix
        words = memory + self.numbers.encoding(memory, first=0)  # (B, S, D)
        y = x + ops_of(x).gather_rows(words, rows.reshape(-1)).reshape(*k.shape, x.shape[-1])
        return y, (rows, memory.shape)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        rows, shape = cache
        ops = ops_of(dy)
        # y = x + words[rows]; several positions read the same row, and the scatter of an embedding takes no id 0
        dwords = ops.xp.zeros((1 + shape[0] * shape[1], shape[2]), np.promote_types(dy.dtype, np.float32))
        ops.embedding_backward(rows_of(dy), rows.reshape(-1) + 1, 1.0, dwords)
        return dy, dwords[1:].reshape(shape).astype(dy.dtype, copy=False)
