"""Drop the sentence pairs of a crawled corpus that are probably not translations.

Web text and parliament records contain pairs with one side empty, with a whole page in one line, or with two sentences
against ten. The paper's English-German text was cleaned by `clean-corpus-n.perl` of Moses with 1 to 80 words and a
length ratio of at most 9 (google/seq2seq, wmt16_en_de.sh).

Differs: we use the same limits for every language, while the public code did not clean the English-French text. And
Moses counts the tokens of its tokenizer, we count what a regular expression finds as a word or a punctuation mark:
"3.5" and "don't" count as three each, "www.statmt.org" as five, and a web address as about twice as many as with Moses.
So we drop more pairs as too long than Moses would.

Text is cleaned in independent blocks, so that several processes can share the work.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from scratchformer.preparation.prepared import Options
from scratchformer.text.corpora import Block

WORD = re.compile(r"\w+|[^\w\s]")

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Control characters; they include everything that some program might take for the end of a line."""

BREAKS = re.compile(f"[{CONTROL}][ {CONTROL}]*| [ {CONTROL}]+")  # not a single space, which nearly all are


def normalized(line: str) -> str:
    """Replace each run of spaces and control characters by one space, and remove those at both ends.

    Then every program sees the sentence as one line, and no line end within a sentence can misalign the two files. The
    tokenizer treats several spaces as one anyway.
    """
    return BREAKS.sub(" ", line).strip()


COUNTS = ("lines", "empty", "too_long", "ratio", "held_out", "kept")
"""The counts of a cleaning: pairs read, dropped for one of three reasons (the first that applies), and kept.

held_out are otherwise good pairs of which a side is a sentence of the validation or test text, kept or dropped.
"""


class CleanBlock(NamedTuple):
    """The pairs of a block that are kept, one on each line, and the hash of each pair, (kept,) uint64."""

    source: bytes
    target: bytes
    hashes: np.ndarray
    counts: Counter[str]


def reason_to_drop(source: str, target: str, options: Options) -> str:
    """Return which of COUNTS a pair of normalized lines belongs to; "kept" if nothing is wrong with it."""
    if not source or not target:
        return "empty"
    n_source, n_target = len(WORD.findall(source)), len(WORD.findall(target))
    if max(n_source, n_target) > options.max_words:
        return "too_long"
    if max(n_source, n_target) > options.max_ratio * min(n_source, n_target):
        return "ratio"
    return "kept"


def clean_block(block: Block, options: Options, held_out: Collection[str]) -> CleanBlock:
    """Clean one block of a part of a corpus.

    held_out  normalized lines of the validation and test text: pairs with one of them are counted, or dropped
    """
    sources, targets = (list(map(normalized, lines)) for lines in block.lines())
    kept: list[tuple[str, str]] = []
    counts = Counter(dict.fromkeys(COUNTS, 0) | {"lines": len(sources)})
    for source, target in zip(sources, targets, strict=True):
        reason = reason_to_drop(source, target, options)
        if reason == "kept" and (source in held_out or target in held_out):
            counts["held_out"] += 1
            if options.drop_overlap:
                continue
        counts[reason] += 1
        if reason == "kept":
            kept.append((source, target))
    source_text, target_text = ("".join(pair[side] + "\n" for pair in kept).encode("utf-8") for side in (0, 1))
    return CleanBlock(source_text, target_text, hashes_of(kept), counts)


def hashes_of(pairs: list[tuple[str, str]]) -> np.ndarray:
    """Return a hash of each pair, (pairs,) uint64, the same on every machine.

    Among 36 million different pairs, two have the same hash with a probability of 4 in 100,000.
    """
    digests = (hashlib.blake2b("\n".join(pair).encode("utf-8"), digest_size=8).digest() for pair in pairs)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def count_repeated_inplace(hashes: np.ndarray) -> int:
    """Count the values (n,) that equal an earlier one. Sorts them in place."""
    hashes.sort()
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
