"""Which sentence pairs of a crawled corpus are worth training on?

Web text and parliament records hold pairs that are no translations: one side empty, a whole page in one line, two
sentences against ten. The paper's English-German text went through `clean-corpus-n.perl` of Moses with 1 to 80 words
and a ratio of at most 9 (google/seq2seq, wmt16_en_de.sh).

Differs: the same limits are drawn for every language, while the public code took the English-French text as it is. And
Moses counts the tokens of its tokenizer, we what a regular expression takes for a word or a punctuation mark: "3.5" and
"don't" are three of ours each, "www.statmt.org" is five, and the address of a page about twice as many as with Moses.
So more pairs are dropped as too long than Moses would drop.

Text is cleaned in blocks, each apart from the others, so that several processes can share the work.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scratchformer.text.corpora import Block, ParallelFiles, decode_lines

WORD = re.compile(r"\w+|[^\w\s]")

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Control characters, among them whatever some program or other takes for the end of a line."""

BREAKS = re.compile(f"[{CONTROL}][ {CONTROL}]*| [ {CONTROL}]+")  # all but a single space, which is what nearly all are


def normalized(line: str) -> str:
    """The line with one space for each run of spaces and control characters, and none at its ends.

    A sentence then is one line for every program, and no line end within a sentence can shift one file of a corpus
    against the other. The tokenizer makes no difference between one space and several anyway.
    """
    return BREAKS.sub(" ", line).strip()


class Limits(NamedTuple):
    """Of a pair that is kept: words of the longer side, and words of the longer side over those of the shorter."""

    max_words: int
    max_ratio: float


class Counts(NamedTuple):
    """What became of some pairs. `empty`, `too_long` and `ratio` were dropped, for the first reason that holds.

    held_out  pairs with nothing else wrong of which a side is a sentence of the validation or test text, kept or not
    """

    lines: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    held_out: int = 0
    kept: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*map(sum, zip(self, other)))


class CleanBlock(NamedTuple):
    """The pairs of a block that are kept, one a line, and the hash of each pair, (kept,) uint64."""

    source: bytes
    target: bytes
    hashes: np.ndarray
    counts: Counts


def reason_to_drop(source: str, target: str, limits: Limits) -> str:
    """The name of the count that a pair of normalized lines belongs to; "kept" if nothing is wrong with it."""
    if not source or not target:
        return "empty"
    n_source, n_target = len(WORD.findall(source)), len(WORD.findall(target))
    if max(n_source, n_target) > limits.max_words:
        return "too_long"
    if max(n_source, n_target) > limits.max_ratio * min(n_source, n_target):
        return "ratio"
    return "kept"


@dataclass(frozen=True)
class Cleaner:
    """Cleans blocks of one part of a corpus; a process can be sent it.

    files          the part's files, for messages
    held_out       normalized lines of the validation and test text
    drop_held_out  whether a pair with one of them is dropped, or only counted
    """

    files: ParallelFiles
    limits: Limits
    held_out: Collection[str]
    drop_held_out: bool

    def __call__(self, block: Block) -> CleanBlock:
        """Raises: UserError if the text is not UTF-8."""
        sources, targets = (
            [normalized(line) for line in decode_lines(data, path, block.first_line)]
            for data, path in zip((block.source, block.target), self.files)
        )
        kept: list[tuple[str, str]] = []
        reasons = {"empty": 0, "too_long": 0, "ratio": 0, "kept": 0}
        n_held_out = 0
        for source, target in zip(sources, targets, strict=True):
            reason = reason_to_drop(source, target, self.limits)
            if reason == "kept" and (source in self.held_out or target in self.held_out):
                n_held_out += 1
                if self.drop_held_out:
                    continue
            reasons[reason] += 1
            if reason == "kept":
                kept.append((source, target))
        source_text, target_text = ("".join(pair[side] + "\n" for pair in kept).encode("utf-8") for side in (0, 1))
        counts = Counts(lines=len(sources), held_out=n_held_out, **reasons)
        return CleanBlock(source_text, target_text, hashes_of(kept), counts)


def hashes_of(pairs: list[tuple[str, str]]) -> np.ndarray:
    """A hash of each pair, (pairs,) uint64: the same on every machine. Lines hold no line ends, so the join is unique.

    Of 36 million different pairs two share a hash with a probability of 4 in 100,000.
    """
    digests = (hashlib.blake2b("\n".join(pair).encode("utf-8"), digest_size=8).digest() for pair in pairs)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def n_repeated(hashes: np.ndarray) -> int:
    """How many of the values (n,) are equal to an earlier one. Sorts them in place."""
    hashes.sort()
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
