"""A prepared corpus: a directory with ids on disk, which training reads without tokenizing text.

    train.en, train.de, ...      the text, one sentence on each line: cleaned for training, else (val, test) unchanged
    tokenizer.model              one vocabulary for both languages
    train.source.ids.bin         (tokens,) uint16, or int32 for a large vocabulary: all sentences, each with EOS
    train.source.offsets.bin     (pairs + 1,) int64: where in the ids each sentence begins, see `batches.Sequences`
    train.target.*.bin           the same for the other side; val.* likewise
    train.lines.bin              (pairs,) int64: the line of each pair in train.en and train.de, from 1
    manifest.json                a description of all this: it is written last, so a directory that has one is complete

The arrays are the plain values, without a header. They are opened as memory maps: 36 million pairs take no memory
except for the pages that a batch reads, which the operating system caches. Opening checks the size of every file, and
the CRC-32 of those that training reads; a run computes that of the ids itself, in about a second for each GB.
"""

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scratchformer.errors import UserError
from scratchformer.preparation import MADE_BY, MANIFEST
from scratchformer.text.batches import EncodedPairs, Sequences
from scratchformer.text.corpora import ParallelFiles
from scratchformer.text.tokenizer import Tokenizer

FORMAT = 3
TOKENIZER = "tokenizer.model"

CHUNK_BYTES = 2**24


@dataclass(frozen=True)
class Options:
    """The way to prepare a corpus; every option changes the result.

    dataset        the name of a public data set, for the manifest; "" for the user's own files
    languages      source, target: the suffixes of the files
    vocab_size     exact number of pieces in the vocabulary
    max_words, max_ratio    limits for a pair, see `cleaning`
    max_length     longer pairs (tokens of the longer side, EOS included) are not encoded
    sample         pairs from which the vocabulary is learnt, evenly spread over the training text. A million of them,
                   together with their distinct words, take about 1.5 GB of memory
    byte_fallback  encode characters that are not in the sample as bytes; otherwise they become UNK
    drop_overlap   drop training pairs that share a sentence with the validation or test text; otherwise only count them
    """

    dataset: str = ""
    languages: tuple[str, str] = ("en", "de")
    vocab_size: int = 37_000
    max_words: int = 80
    max_ratio: float = 9.0
    max_length: int = 256
    sample: int = 1_000_000
    byte_fallback: bool = False
    drop_overlap: bool = False

    def __post_init__(self) -> None:
        source, target = self.languages
        if source == target or not all(re.fullmatch("[A-Za-z0-9_-]+", language) for language in self.languages):
            raise UserError(f"--languages {source} {target}: not two different words of letters, as in: en de")


@dataclass(frozen=True)
class SplitCounts:
    """Counts of the encoded pairs of one split.

    empty, longer     pairs left out because a side is blank, or because they are too long
    ..._tokens        EOS included
    longest           tokens of the longest side of a pair
    unk_share         share of UNK among the tokens other than EOS
    """

    pairs: int
    empty: int
    longer: int
    source_tokens: int
    target_tokens: int
    longest: int
    unk_share: float


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a prepared directory, and its origin.

    options        of the preparation
    clean          the report of the cleaning: lines and reasons by part, duplicates, overlap with held-out text
    splits         "train" and, if there is validation text, "val"
    ids_crc32      CRC-32 of all ids as int32: source and target of train, then of val
    files          name -> bytes and CRC-32
    made_from      what the result depends on besides the options: name, size and time of each text file that was read,
                   and the version of sentencepiece
    """

    made_by: str = MADE_BY
    format: int = FORMAT
    options: Options
    clean: dict[str, Any]
    splits: dict[str, SplitCounts]
    ids_crc32: int
    files: dict[str, dict[str, int]]
    made_from: dict[str, Any]

    @property
    def longest(self) -> int:
        """Tokens of the longest pair in all splits."""
        return max(split.longest for split in self.splits.values())

    def summary(self) -> str:
        """Two or three lines for the user."""
        total, train, (source, target) = self.clean["total"], self.splits["train"], self.options.languages
        lines = [
            f"{train.pairs:,} training pairs of {total['lines']:,}, {train.source_tokens:,} {source} and "
            f"{train.target_tokens:,} {target} tokens ({train.source_tokens / train.pairs:.1f} and "
            f"{train.target_tokens / train.pairs:.1f} a sentence), {train.unk_share:.4%} unknown",
            f"{self.clean['repeated']:,} repeated pairs, {total['held_out']:,} with a sentence of the val or test text",
        ]
        if "val" in self.splits:
            val = self.splits["val"]
            lines.append(
                f"{val.pairs:,} validation pairs ({val.empty} blank, {val.longer} too long), "
                f"{val.unk_share:.4%} of their tokens unknown"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """The text of manifest.json, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read what `to_json` has written."""
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, not {FORMAT}")
        options = Options(**values["options"] | {"languages": tuple(values["options"]["languages"])})
        splits = {name: SplitCounts(**counts) for name, counts in values["splits"].items()}
        return cls(**values | {"options": options, "splits": splits})


def text_names(splits: Iterable[str], languages: tuple[str, str]) -> list[str]:
    """Names of the text files of these splits: "train.en", "train.de", ..."""
    return [f"{split}.{language}" for split in splits for language in languages]


def array_names(split: str) -> list[str]:
    """Names of the files with the ids and the line numbers of a split."""
    arrays = ["source.ids", "source.offsets", "target.ids", "target.offsets", "lines"]
    return [f"{split}.{array}.bin" for array in arrays]


class PreparedCorpus:
    """An open prepared directory; each file that it hands out is as the preparation has left it."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.manifest = read_manifest(directory)
        for name, expected in self.manifest.files.items():
            path = directory / name
            if not path.is_file() or path.stat().st_size != expected["bytes"]:
                raise UserError(f"{path}: missing, or not as long as {MANIFEST} says: prepare the text again")

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer."""
        return Tokenizer.load(self.intact(TOKENIZER))

    def text_files(self, split: str) -> ParallelFiles:
        """The text of "train" or "val"."""
        return ParallelFiles(*map(self.intact, text_names([split], self.manifest.options.languages)))

    def pairs(self, split: str, max_length: int) -> EncodedPairs:
        """Open the ids of "train" or "val" as memory maps, for batches of pairs of up to `max_length` tokens.

        The `max_length` of what is returned is that of the preparation, which has dropped the longer pairs. The
        checksum of the ids is left to the run.
        """
        options, longest = self.manifest.options, self.manifest.longest
        if longest > max_length:
            raise UserError(
                f"{self.directory}: its longest pair has {longest} tokens, more than max_length = {max_length}: "
                f"raise that, or prepare the text again with --max-length {max_length}"
            )
        source_ids, source_offsets, target_ids, target_offsets, lines = array_names(split)
        dtype = dtype_of_ids(options.vocab_size)
        return EncodedPairs(
            Sequences(opened(self.directory / source_ids, dtype), opened(self.intact(source_offsets))),
            Sequences(opened(self.directory / target_ids, dtype), opened(self.intact(target_offsets))),
            opened(self.intact(lines)),
            options.max_length,
            self.manifest.splits[split].longer,
        )

    def intact(self, name: str) -> Path:
        """The path of a file whose checksum is that in the manifest."""
        path = self.directory / name
        if crc32_of_file(path) != self.manifest.files[name]["crc32"]:
            raise UserError(f"{path}: damaged, its checksum is not that in {MANIFEST}: prepare the text again")
        return path


def dtype_of_ids(vocab_size: int) -> np.dtype:
    """The smallest that holds every id: uint16 or int32."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


def opened(path: Path, dtype: np.dtype = np.dtype(np.int64)) -> np.ndarray:
    """Open an array as a memory map."""
    return np.asarray(np.memmap(path, dtype, mode="r"))  # indexing a plain array is faster than indexing np.memmap


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a directory."""
    path = directory / MANIFEST
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{directory}: its preparation is not finished, since there is no {MANIFEST}: "
            "run the scratchformer data command that began it again, or another one to its end"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: damaged, or of another version ({error!r:.60}): prepare the text again") from None


def crc32_of_file(path: Path) -> int:
    """Compute the CRC-32 of a file, reading it chunk by chunk."""
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
