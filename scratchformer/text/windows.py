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

SHORT = 2000
"""Characters. The tenth of a shorter text is too short to validate with, if there are texts enough to hold out one."""

FEWEST_TO_CUT = 50
"""Characters."""


def joined(lines: list[str]) -> str:
    """The lines as one text."""
    return "".join(f"{line}\n" for line in lines)


def hold_out(texts: list[str]) -> tuple[list[str], list[str]]:
    """Divide texts -> those to train on, about a tenth to validate with; blank texts are left out

    The last tenth of the first text validates, of the second text the last but one, and so on, because the ends of
    files may be alike, and unlike the rest. The texts before and after the held-out part become two texts. Where ten or
    more texts are shorter than SHORT, every tenth of these is held out as a whole.
    """
    texts = [text for text in texts if text.strip()]
    n_short, many_short = 0, sum(len(text) < SHORT for text in texts) >= 10
    train, val = list[str](), list[str]()
    for number, text in enumerate(texts):
        if many_short and len(text) < SHORT:
            n_short += 1
            pieces, held_out = ([], text) if n_short % 10 == 0 else ([text], "")
        else:
            pieces, held_out = hold_out_tenth(text, 9 - number % 10)
        if held_out.strip():
            train += pieces
            val.append(held_out)
        else:
            train.append(text)
    return train, val


def hold_out_tenth(text: str, part: int) -> tuple[list[str], str]:
    """Cut a text into ten parts and take out one of them, `part` from 0 to 9, unless it is shorter than FEWEST_TO_CUT.

    A part begins with a line if a line begins near enough, else with a word, else anywhere.

    -> the texts before and after the part, without blank ones; the part
    """
    written = len(text.rstrip())
    if len(text) - written > len(text) // 100:  # the last tenth would be blank
        text = text[: written + 1]
    if len(text) < FEWEST_TO_CUT:
        return [text], ""

    def beginning(part: int) -> int:
        mark = len(text) * part // 10
        earliest = max(0, mark - len(text) // 10)
        found = (text.rfind(space, earliest, mark) + 1 for space in "\n ")
        return next(filter(None, found), mark)

    begin, end = beginning(part), len(text) if part == 9 else beginning(part + 1)
    return [piece for piece in (text[:begin], text[end:]) if piece.strip()], text[begin:end]


def encode_texts(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """Each text as BOS, its tokens, EOS: (tokens,) int32."""
    return [np.array([BOS, *ids, EOS], np.int32) for ids in tokenizer.encode(texts)]


class TrainingWindows(Examples):
    """The texts one after another, in windows of equal length, which begin elsewhere in each epoch.

    The texts form a circle: their beginning follows on their end. An epoch cuts it from a place that depends on the
    seed and the epoch, and leaves out the rest that is too short for a window.

    texts   of `encode_texts`
    window  how many tokens the model reads at once
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

    Near the beginning of a text all tokens before are read. The first window of a text predicts all its tokens; a later
    window predicts those that earlier windows have not. Arguments as for TrainingWindows; a text may be shorter than a
    window.
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
