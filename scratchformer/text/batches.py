"""Group sentence pairs of similar length into padded batches.

Every sentence of a batch is padded to the longest one, and padding costs as much computation as text. So pairs of
similar length are batched together, and a batch holds as many pairs as a budget of padded positions allows, instead of
a fixed number (paper §5.1: "batched together by approximate sequence length", about 25000 source and 25000 target
tokens a step).

    EncodedPairs  all pairs as ids, in four flat arrays
    BatchPlan     the steps of an epoch, each a set of pairs, and the micro-batches of a step, each a Batch
    Batch         the padded arrays that go into the model
    Examples      what a plan needs of pairs, or of windows of a text, images, ...

The plan is a function of (seed, epoch) without any other state: a run can resume at every step, and several processes
agree on the batches without communication. The length of a pair is always that of its longer side in tokens, with EOS.

Source: the scheme of the paper's public code (tensor2tensor, 2017-06: `data_reader.py`, `bucket_boundaries`).
"""

import zlib
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scratchformer.errors import UserError
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import BOS, EOS, PAD

CHUNK_IDS = 2**20
SENTENCES_PER_ENCODING = 10_000  # limits how many Python lists of ids exist at the same time
Encode = Callable[[list[str]], list[list[int]]]
"""Turns texts into ids without special tokens, as `Tokenizer.encode` does."""


class Batch(NamedTuple):
    """B examples as arrays: inputs and targets of the model.

    inputs           arrays that the model reads, each with B as its first axis
    targets          (B, T) int32: the token to predict at each state, PAD where there is nothing to predict
    indices          (B,) int64: the places of the examples in Examples
    n_source_tokens  real tokens of the first input, EOS included; of an image, its pixels
    n_positions      the cost of the batch: its positions, padding included

    A batch of sentence pairs is padded with PAD to its longest ones, S source and T target positions. Its inputs are
    source_ids (B, S): tokens, EOS, and target_in_ids (B, T): BOS, tokens, which the decoder reads. Its targets are
    target_out_ids (B, T): tokens, EOS, the same shifted by one position.
    """

    inputs: tuple[np.ndarray, ...]
    targets: np.ndarray
    indices: np.ndarray
    n_source_tokens: int
    n_positions: int

    @property
    def n_target_tokens(self) -> int:
        """Number of tokens to predict, EOS included: the divisor of the batch's loss."""
        return int(np.count_nonzero(self.targets != PAD))


def batch_of(inputs: tuple[np.ndarray, ...], targets: np.ndarray, indices: np.ndarray) -> Batch:
    """A batch of examples with one sequence each, whose ids are the first of the inputs."""
    ids = inputs[0]
    return Batch(inputs, targets, indices.astype(np.int64), int(np.count_nonzero(ids != PAD)), ids.size)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Many sequences of ids in one flat array: sequence i is `ids[offsets[i]:offsets[i + 1]]`.

    The arrays may be memory maps: `padded` reads only the sequences it is asked for.
    """

    ids: np.ndarray  # (tokens of all sequences,) int32, or uint16 in files
    offsets: np.ndarray  # (sequences + 1,) int64

    @classmethod
    def of(cls, rows: Iterable[list[int]]) -> "Sequences":
        """Lists of ids as one flat array."""
        ids, ends = array("i"), array("q", [0])  # of the standard library, because they grow
        for row in rows:
            ids.extend(row)
            ends.append(len(ids))
        return cls(np.array(ids, np.int32), np.array(ends, np.int64))

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sequence, (sequences,) int32."""
        lengths = np.empty(len(self.offsets) - 1, np.int32)  # no int64 copy: a corpus may have 36 million pairs
        return np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")

    def checksum(self, crc: int = 0) -> int:
        """CRC-32 of the ids and of the lengths, which continues `crc`."""
        return crc32_of_ids(self.lengths, crc32_of_ids(self.ids, crc))

    def select(self, keep: np.ndarray) -> "Sequences":
        """Return the sequences where `keep`, (sequences,) bool, is True."""
        lengths = self.lengths
        return Sequences(self.ids[np.repeat(keep, lengths)], np.concatenate([[0], np.cumsum(lengths[keep])]))

    def padded(self, indices: np.ndarray) -> np.ndarray:
        """Return the sequences `indices` (B,) as rows, padded with PAD to the longest of them: (B, longest) int32."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        columns = np.arange(lengths.max())
        is_real = columns < lengths[:, None]  # (B, longest)
        rows = np.full(is_real.shape, PAD, dtype=np.int32)
        rows[is_real] = self.ids[(starts[:, None] + columns)[is_real]]
        return rows


class Examples(ABC):
    """Examples to train or validate a model with.

    lengths     (examples,) int32: positions of each example
    max_length  the largest length allowed
    n_dropped   number of examples that were longer and are left out
    n_targets   number of tokens to predict in an epoch
    """

    lengths: np.ndarray
    max_length: int
    n_dropped: int = 0
    n_targets: int

    def __len__(self) -> int:
        return len(self.lengths)

    @abstractmethod
    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        """Return the examples `indices` (B,) as one batch, in that order.

        Random choices depend only on the example, the epoch, and a seed that the examples hold.
        """

    @abstractmethod
    def checksum(self, crc: int = 0) -> int:
        """CRC-32 of all examples, which continues `crc`."""

    def describe(self, index: int) -> str:
        """An example in a message, such as "the pair on line 5"."""
        return f"example {index + 1}"

    def by_length(self, indices: np.ndarray) -> np.ndarray:
        """Sort `indices`: the shortest example first, examples of equal length in the order of the corpus."""
        return indices[np.lexsort((indices, self.lengths[indices]))]

    def require_fit(self, tokens_per_batch: int) -> None:
        """Refuse an example that does not fit into a batch of `tokens_per_batch` positions per side."""
        longest = int(np.argmax(self.lengths))
        length = self.lengths[longest]
        if length > tokens_per_batch:
            raise UserError(
                f"{self.describe(longest)} has {length} tokens and does not fit into a batch of "
                f"tokens_per_batch = {tokens_per_batch}: raise tokens_per_batch to {length}, or lower "
                f"max_length = {self.max_length}"
            )


class EncodedPairs(Examples):
    """A parallel corpus as ids, with EOS at the end of every sequence; `encode_pairs` makes it.

    line_numbers  (pairs,) in the corpus files
    lengths       (pairs,) int32: tokens of the longer side
    """

    def __init__(self, source: Sequences, target: Sequences, line_numbers: np.ndarray, max_length: int, n_dropped: int):
        self.source, self.target, self.line_numbers = source, target, line_numbers
        self.max_length, self.n_dropped = max_length, n_dropped
        self.lengths = source.lengths
        np.maximum(self.lengths, target.lengths, out=self.lengths)
        self.n_targets = target.ids.size

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        """Return the pairs `indices` (B,) as one batch, in that order. Nothing is drawn at random."""
        target_out_ids = self.target.padded(indices)
        target_in_ids = np.full_like(target_out_ids, BOS)
        # Where the output is a real token, the input is the token before it: shorter rows lose their EOS, too.
        target_in_ids[:, 1:] = np.where(target_out_ids[:, 1:] != PAD, target_out_ids[:, :-1], PAD)
        source_ids = self.source.padded(indices)
        return Batch(
            (source_ids, target_in_ids),
            target_out_ids,
            indices.astype(np.int64),
            int(np.count_nonzero(source_ids != PAD)),
            source_ids.size + target_out_ids.size,
        )

    def checksum(self, crc: int = 0) -> int:
        return crc32_of_ids(self.target.ids, crc32_of_ids(self.source.ids, crc))

    def describe(self, index: int) -> str:
        return f"the pair on line {self.line_numbers[index]}"


def crc32_of_ids(ids: np.ndarray, crc: int = 0) -> int:
    """Continue the CRC-32 `crc` over ids (tokens,) as int32, converting them piece by piece."""
    for start in range(0, len(ids), CHUNK_IDS):
        crc = zlib.crc32(np.ascontiguousarray(ids[start : start + CHUNK_IDS], dtype=np.int32).data, crc)
    return crc


def encode_pairs(
    encode: Encode, pairs: Pairs, max_length: int, tokens_per_batch: int, encode_target: Encode | None = None
) -> EncodedPairs:
    """Encode a corpus for batches of `tokens_per_batch` positions per side, see `encode_and_filter`."""
    encoded = encode_and_filter(encode, pairs, max_length, encode_target)
    if not len(encoded):
        raise UserError(f"none of the {len(pairs.source)} sentence pairs has at most max_length = {max_length} tokens")
    encoded.require_fit(tokens_per_batch)
    return encoded


def encode_and_filter(
    encode: Encode, pairs: Pairs, max_length: int, encode_target: Encode | None = None
) -> EncodedPairs:
    """Encode pairs, append EOS to both sides, and drop (and count) the pairs of more than `max_length` tokens.

    encode_target: for the target side, if it has a vocabulary of its own
    """
    source, target = encode_sequences(encode, pairs.source), encode_sequences(encode_target or encode, pairs.target)
    keep = np.maximum(source.lengths, target.lengths) <= max_length
    line_numbers = np.array(pairs.line_numbers, np.int64)[keep]
    return EncodedPairs(source.select(keep), target.select(keep), line_numbers, max_length, int(np.sum(~keep)))


def encode_sequences(encode: Encode, sentences: list[str]) -> Sequences:
    """Encode sentences as ids, each with EOS at its end."""
    chunks = (sentences[i : i + SENTENCES_PER_ENCODING] for i in range(0, len(sentences), SENTENCES_PER_ENCODING))
    return Sequences.of([*ids, EOS] for chunk in chunks for ids in encode(chunk))


def bucket_boundaries(max_length: int, fineness: int = 1) -> list[int]:
    """Return the largest length of each bucket: from 8 in steps that grow with the length, up to `max_length`.

    Fineness 1 gives 8, 12, 16, 24, 32, 48, ... (two buckets for each doubling, as for the paper's base model); each
    further unit doubles the number of buckets, which means less padding but more buckets to fill.
    """
    boundaries = []
    boundary = 8
    while boundary < max_length:
        boundaries.append(boundary)
        power = boundary.bit_length() - 1  # floor(log2(boundary))
        boundary += 2 ** max(0, power - fineness)
    return boundaries + [max_length]


class BatchPlan:
    """The batches of a training run.

    tokens_per_batch  the budget of one micro-batch in padded positions, for each side separately
    accumulation      micro-batches whose gradients one optimizer step adds up; on several devices, those of all devices
    seed              the order of the pairs depends only on this and on the epoch
    fineness          of the buckets, see `bucket_boundaries`
    """

    def __init__(self, encoded: Examples, tokens_per_batch: int, accumulation: int, seed: int, fineness: int = 1):
        encoded.require_fit(tokens_per_batch)
        self.encoded = encoded
        self.accumulation = accumulation
        self.seed = seed
        boundaries = np.array(bucket_boundaries(encoded.max_length, fineness))
        # The last bucket can reach beyond the budget though no pair does: then a micro-batch is a single pair.
        self._pairs_per_step = np.maximum(tokens_per_batch // boundaries, 1) * accumulation  # (buckets,)
        bucket_of_length = np.searchsorted(boundaries, np.arange(encoded.lengths.max() + 1))  # first boundary >= length
        self._bucket_of = bucket_of_length.astype(np.min_scalar_type(len(boundaries)))[encoded.lengths]  # (pairs,)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the steps of one epoch, each as the indices of its pairs. Every pair is in exactly one step.

        The pairs of each bucket are shuffled and cut into steps as large as the budget allows; the last step of a
        bucket may be smaller. Then the steps are shuffled, so that the model does not see the short sentences first.
        """
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        n_pairs = len(self.encoded)
        shuffled = np.arange(n_pairs, dtype=np.int32 if n_pairs < 2**31 else np.int64)  # both give the same order
        rng.shuffle(shuffled)
        bucket_of = self._bucket_of[shuffled]
        bucket_by_bucket = []
        for bucket, pairs_per_step in enumerate(self._pairs_per_step):
            members = shuffled[bucket_of == bucket]
            bucket_by_bucket += [members[i : i + pairs_per_step] for i in range(0, len(members), pairs_per_step)]
        return [bucket_by_bucket[i] for i in rng.permutation(len(bucket_by_bucket))]

    def micro_batches(self, indices: np.ndarray, epoch: int = 0) -> list[Batch]:
        """Cut a step's pairs into `accumulation` batches, or into fewer if there are fewer pairs.

        Pairs of similar length go together, which keeps padding low. The largest batch, in padded positions, is as
        small as possible, so that devices or threads that take one batch each finish at about the same time. Which
        batch a pair lands in depends on the set of pairs, not on their order.
        """
        longest_first = self.encoded.by_length(indices)[::-1]
        lengths = self.encoded.lengths[longest_first]
        n_batches = min(self.accumulation, len(indices))
        return [self.encoded.batch(longest_first[part], epoch) for part in even_parts(lengths, n_batches)]


def even_parts(lengths: np.ndarray, n: int) -> list[slice]:
    """Cut descending lengths (pairs,) into n parts, none empty, so that the largest area, pairs x longest, is minimal.

    The smallest area that suffices is found by bisection.
    """

    def ends(area: int) -> list[int]:
        """Return the end of each part, if each takes as many pairs as fit into `area`, and leaves one for each later
        part."""
        end, found = 0, []
        for left in range(n - 1, -1, -1):
            end = min(end + max(1, area // int(lengths[end])), len(lengths) - left)
            found.append(end)
        return found

    areas = range(int(lengths[0]) * len(lengths))
    smallest = bisect_left(areas, True, key=lambda area: ends(area)[-1] == len(lengths))
    reached = ends(smallest)
    return [slice(start, end) for start, end in zip([0, *reached], reached)]


def steps(plan: BatchPlan, epoch: int = 0, first: int = 0) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (epoch, index of the step in its epoch, pair indices) forever, from any step that an earlier run reached.

    `first` may be the number of steps of its epoch: then the next epoch begins.
    """
    while True:
        steps_of_epoch = plan.epoch(epoch)
        if not 0 <= first <= len(steps_of_epoch):
            raise UserError(
                f"cannot start at step {first} of epoch {epoch}, which has {len(steps_of_epoch)} steps: "
                "was this run begun with other data or other batches?"
            )
        for index in range(first, len(steps_of_epoch)):
            yield epoch, index, steps_of_epoch[index]
        epoch, first = epoch + 1, 0


def batches_in_order(encoded: Examples, tokens_per_batch: int) -> Iterator[Batch]:
    """Yield all pairs once, the shortest first, as many to a batch as the budget (padded positions per side) allows.

    This is for validation: nothing is random, and `Batch.indices` leads back to the order of the corpus.
    """
    encoded.require_fit(tokens_per_batch)
    order = encoded.by_length(np.arange(len(encoded)))
    start = 0
    for end, length in enumerate(encoded.lengths[order]):
        if (end + 1 - start) * length > tokens_per_batch:
            yield encoded.batch(order[start:end])
            start = end
    yield encoded.batch(order[start:])
