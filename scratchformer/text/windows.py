"""Cut texts into windows that a language model reads: in each, it predicts every token from those before it.

A text is BOS, its tokens, EOS. `TrainingWindows` cut one long sequence, the texts one after another.
`ValidationWindows` predict each token of each text exactly once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from scratchformer.errors import UserError
from scratchformer.text.batches import Batch, Examples, batch_of
from scratchformer.text.tokenizer import BOS, EOS, PAD, Tokenizer


def hold_out_tenth(text: str, part: int) -> tuple[list[str], str]:
    """Cut a text into ten parts, which begin with a line, and take out one of them, `part` from 0 to 9.

    -> what stands before it and what stands after it, unless that is blank; the part
    """
    begin, end = (text.rfind("\n", 0, len(text) * tenth // 10) + 1 for tenth in (part, part + 1))
    if part == 9:
        end = len(text)
    return [piece for piece in (text[:begin], text[end:]) if piece.strip()], text[begin:end]


def encode_texts(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """Each text as BOS, its tokens, EOS: (tokens,) int32."""
    return [np.array([BOS, *ids, EOS], np.int32) for ids in tokenizer.encode(texts)]


class TrainingWindows(Examples):
    """The texts one after another, in windows of equal length, which begin elsewhere in each epoch.

    The texts form a circle: their beginning follows on their end. An epoch cuts it from a place that depends on the
    seed and the epoch, and leaves out what is too short for a window.

    texts   of `encode_texts`
    window  how many tokens the model reads at once
    Raises UserError if the texts are shorter than a window.
    """

    def __init__(self, texts: Sequence[np.ndarray], window: int, seed: int) -> None:
        self.tokens, self.seed, self.max_length = np.concatenate(texts), seed, window
        n_windows = len(self.tokens) // window
        if not n_windows:
            raise UserError(
                f"the text has {len(self.tokens)} tokens, fewer than the window of data.max_length={window}"
            )
        self.lengths = np.full(n_windows, window, np.int32)
        self.n_targets = n_windows * window

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        first = np.random.default_rng([self.seed, epoch, 2]).integers(len(self.tokens))
        positions = first + indices[:, None] * self.max_length + np.arange(self.max_length + 1)
        ids = self.tokens[positions % len(self.tokens)]  # (B, window + 1)
        return batch_of((ids[:, :-1],), ids[:, 1:], indices)

    def checksum(self, crc: int = 0) -> int:
        return zlib.crc32(self.tokens.tobytes(), crc)


class ValidationWindows(Examples):
    """Each text in windows that overlap by half, so that a token is predicted from at least the half window before it.

    Near its beginning a text has fewer tokens than that: they are all read. The first window of a text predicts all its
    tokens; a later one those that the windows before it have not. Arguments as for TrainingWindows; a text may be
    shorter than a window.
    """

    def __init__(self, texts: Sequence[np.ndarray], window: int) -> None:
        self.tokens, self.max_length = np.concatenate(texts), window
        cut, begin = [], 0
        for text in texts:
            end = begin + len(text) - 1  # of the inputs
            start = done = begin
            while done < end:
                stop = min(start + window, end)
                cut.append((start, stop - start, done - start))
                done, start = stop, stop - window // 2
            begin = end + 1
        self.starts, self.lengths, self.n_done = np.array(cut, np.int64).T  # n_done: predicted by earlier windows
        self.n_targets = int((self.lengths - self.n_done).sum())

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        columns = np.arange(self.lengths[indices].max())
        real = columns < self.lengths[indices, None]  # (B, longest)
        positions = np.where(real, self.starts[indices, None] + columns, 0)
        inputs = np.where(real, self.tokens[positions], PAD)
        targets = np.where(real & (columns >= self.n_done[indices, None]), self.tokens[positions + 1], PAD)
        return batch_of((inputs,), targets, indices)

    def checksum(self, crc: int = 0) -> int:
        return zlib.crc32(self.tokens.tobytes(), crc)
