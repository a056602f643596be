"""Examples for an encoder alone: texts with hidden pieces, and pairs of segments with a label.

Source: Devlin et al. 2019, section 3. The start symbol stands for [CLS], the end symbol for [SEP].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from scratchformer.errors import UserError
from scratchformer.text.batches import Batch, Encode, Examples, Sequences, batch_of, crc32_of_ids
from scratchformer.text.tokenizer import BOS, EOS, MASK, PAD

SHARE_CHOSEN = 0.15
SHARE_HIDDEN, SHARE_RANDOM = 0.8, 0.1
"""Of the chosen pieces, 80 % become [MASK], 10 % a random piece, and 10 % stay."""


def mask_tokens(texts: Sequences, vocab_size: int, random: np.random.Generator) -> tuple[Sequences, Sequences]:
    """Choose 15 % of the pieces of each text, at least one, and hide them -> the model's inputs and targets

    texts  with special tokens, which are never chosen; each has at least one other piece

    Each chosen piece becomes [MASK] with probability 0.8, a random piece with 0.1, and stays with 0.1. The targets are
    the chosen pieces, PAD at all other places.

    Differs: BERT rounds 15 % of a text to the nearest number; here a random number decides between the two nearest, so
             that the share is right for short texts, too.
    """
    text_of, order = np.repeat(np.arange(len(texts.lengths)), texts.lengths), random.random(len(texts.ids))
    pieces = np.flatnonzero(texts.ids > MASK)
    pieces = pieces[np.lexsort((order[pieces], text_of[pieces]))]  # of each text in random order
    n_pieces = np.bincount(text_of[pieces], minlength=len(texts.lengths))
    n_chosen = np.maximum(1, (SHARE_CHOSEN * n_pieces + random.random(len(n_pieces))).astype(int))
    place = np.arange(len(pieces)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)  # 0, 1, ... in each text
    chosen = pieces[place < n_chosen[text_of[pieces]]]

    shown, targets = texts.ids.copy(), np.full_like(texts.ids, PAD)
    targets[chosen] = shown[chosen]
    fate, others = random.random(len(chosen)), random.integers(MASK + 1, vocab_size, len(chosen))
    stays = fate >= SHARE_HIDDEN + SHARE_RANDOM
    shown[chosen] = np.where(stays, shown[chosen], np.where(fate < SHARE_HIDDEN, MASK, others))
    return Sequences(shown, texts.offsets), Sequences(targets, texts.offsets)


class HiddenTexts(Examples):
    """Texts with hidden pieces.

    hidden  the model's inputs and targets; the target is PAD where nothing is hidden
    """

    def __init__(self, hidden: tuple[Sequences, Sequences], max_length: int) -> None:
        self.hidden, self.max_length = hidden, max_length
        self.lengths = hidden[0].lengths
        self.n_targets = int(np.count_nonzero(hidden[1].ids))

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        """The texts `indices` (B,): inputs (ids, token types), targets, all (B, T)."""
        shown, targets = (sequences.padded(indices) for sequences in self.hidden)
        return batch_of((shown, np.zeros_like(shown)), targets, indices)

    def checksum(self, crc: int = 0) -> int:
        return self.hidden[1].checksum(self.hidden[0].checksum(crc))


class MaskedTexts(Examples):
    """Texts as ids, from BOS to EOS. Each epoch hides other pieces of them.

    texts       each with at least one piece that is not special
    vocab_size  of the tokenizer, for random pieces
    seed        which pieces an epoch hides depends only on this and on the number of the epoch
    n_targets   the mean of an epoch
    """

    def __init__(self, texts: Sequences, vocab_size: int, seed: int, max_length: int) -> None:
        self.texts, self.vocab_size, self.seed, self.max_length = texts, vocab_size, seed, max_length
        self.lengths = texts.lengths
        n_pieces = np.add.reduceat(texts.ids > MASK, texts.offsets[:-1], dtype=int)  # that may be chosen, of each text
        self.n_targets = round(float(np.maximum(SHARE_CHOSEN * n_pieces, 1).sum()))
        self.of_epoch = lru_cache(maxsize=1)(self._of_epoch)

    def _of_epoch(self, epoch: int) -> HiddenTexts:
        # BatchPlan draws from [seed, epoch], which zeros at the end would not change: the 1 makes these others.
        random = np.random.Generator(np.random.PCG64([self.seed, epoch, 1]))
        return HiddenTexts(mask_tokens(self.texts, self.vocab_size, random), self.max_length)

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        """The texts `indices` (B,) as this epoch shows them, as `HiddenTexts.batch` gives them."""
        return self.of_epoch(epoch).batch(indices)

    def checksum(self, crc: int = 0) -> int:
        return self.texts.checksum(crc)


def each_masked_once(texts: Sequences) -> tuple[Sequences, Sequences]:
    """Copy each text once for each of its pieces, and hide that piece -> the model's inputs and targets

    They stand in the order of the text's pieces. Special tokens are not hidden.
    """
    shown, targets = [], []
    for begin, end in zip(texts.offsets, texts.offsets[1:]):
        ids = texts.ids[begin:end].tolist()
        for place, piece in enumerate(ids):
            if piece > MASK:
                shown.append([*ids[:place], MASK, *ids[place + 1 :]])
                targets.append([piece if each == place else PAD for each in range(len(ids))])
    return Sequences.of(shown), Sequences.of(targets)


def encode_texts(encode: Encode, texts: list[str], max_length: int) -> Sequences:
    """Encode texts from BOS to EOS. A long one is cut into several of at most `max_length` tokens.

    Texts of nothing but special pieces are left out.
    """
    if max_length < 3:
        raise UserError(f"max_length={max_length} must be at least 3: the start, a piece and the end of a text")
    window = max_length - 2
    pieces = [ids[start : start + window] for ids in encode(texts) for start in range(0, len(ids), window)]
    kept = [[BOS, *ids, EOS] for ids in pieces if max(ids) > MASK]
    if not kept:
        raise UserError(f"none of the {len(texts)} texts has a piece that can be hidden")
    return Sequences.of(kept)


class LabelledPairs(Examples):
    """Pairs of segments with a class: BOS first EOS second EOS.

    pairs          the ids of both segments
    first_lengths  (pairs,) tokens of the first segment with BOS and EOS: they have type 0, those after them type 1
    labels         (pairs,) int from 1: 0 would be no label
    """

    def __init__(self, pairs: Sequences, first_lengths: np.ndarray, labels: np.ndarray, max_length: int) -> None:
        self.pairs, self.first_lengths, self.labels = pairs, first_lengths, labels
        self.lengths, self.max_length, self.n_targets = pairs.lengths, max_length, len(labels)

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        """The pairs `indices` (B,): inputs (ids, token types) (B, T), targets (B, 1)."""
        ids = self.pairs.padded(indices)
        types = (np.arange(ids.shape[1]) >= self.first_lengths[indices, None]) & (ids != PAD)
        targets = self.labels[indices, None]
        return batch_of((ids, types.astype(ids.dtype)), targets, indices)

    def checksum(self, crc: int = 0) -> int:
        return crc32_of_ids(self.labels, self.pairs.checksum(crc))


def labelled_pairs(
    encode: Encode, first: list[str], second: list[str], labels: Sequence[int], max_length: int
) -> LabelledPairs:
    """Encode pairs of segments, of at most `max_length` tokens together."""
    sides = encode(first), encode(second)
    pairs = Sequences.of([BOS, *ids, EOS, *others, EOS] for ids, others in zip(*sides, strict=True))
    if n_long := int(np.sum(pairs.lengths > max_length)):
        raise UserError(f"max_length={max_length}: {n_long} pairs of segments are longer")
    first_lengths = np.array([len(ids) + 2 for ids in sides[0]], np.int32)
    return LabelledPairs(pairs, first_lengths, np.array(labels, np.int32), max_length)
