"""A prepared corpus: a directory with ids on disk, which training reads without tokenizing text.

    train.en, train.de, ...      the text, one sentence on each line: cleaned for training, else (val, test) unchanged
    tokenizer.model              one vocabulary for both languages
    train.source.ids.npy         (tokens,) uint16, or int32 for a large vocabulary: all sentences, each with EOS
    train.source.offsets.npy     (pairs + 1,) int64: where in the ids each sentence begins, see `batches.Sequences`
    train.target.*.npy           the same for the other side; val.* likewise
    train.lines.npy              (pairs,) int64: the line of each pair in train.en and train.de, from 1
    manifest.json                a description of all this: it is written last, so a directory that has one is complete

The arrays are opened as memory maps: 36 million pairs take no memory except for the pages that a batch reads, which the
operating system caches. Opening checks the size of every file, and the CRC-32 of those that training reads; a run
computes that of the ids itself, in about a second for each GB.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scratchformer.errors import UserError, in_one_line
from scratchformer.text.batches import EncodedPairs, Sequences
from scratchformer.text.corpora import ParallelFiles, cannot_read
from scratchformer.text.tokenizer import Tokenizer

FORMAT = 2
MANIFEST, TOKENIZER = "manifest.json", "tokenizer.model"
UNFINISHED = ".preparing"
"""The directory inside a prepared one in which its files are made, before they are moved to their places."""

SPLITS = ("train", "val")
MADE_BY = "scratchformer data"
"""Marks our manifest; it stands at the beginning, where even a truncated file has it."""

CHUNK_BYTES = 2**24


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

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Source and target tokens in a pair, EOS included."""
        return self.source_tokens / self.pairs, self.target_tokens / self.pairs


@dataclass(frozen=True)
class Manifest:
    """The content of a prepared directory, and its origin.

    dataset        the name of a public data set; "" for the user's own files
    languages      source, target
    vocab_size     pieces of the tokenizer
    byte_fallback  whether the tokenizer encodes unknown characters as bytes
    options        the other options of the preparation
    clean          the report of the cleaning: lines and reasons by part, duplicates, overlap with held-out text
    splits         "train" and, if there is validation text, "val"
    ids_crc32      CRC-32 of all ids as int32: source and target of train, then of val
    files          name -> bytes and CRC-32
    made_from      name, size and time of each text file that was read, and everything else that the result depends on
    versions       of the packages that made the files
    format, made_by    `FORMAT`, `MADE_BY`
    """

    dataset: str
    languages: tuple[str, str]
    vocab_size: int
    byte_fallback: bool
    options: dict[str, Any]
    clean: dict[str, Any]
    splits: dict[str, SplitCounts]
    ids_crc32: int
    files: dict[str, dict[str, int]]
    made_from: dict[str, Any]
    versions: dict[str, str]
    format: int = FORMAT
    made_by: str = MADE_BY

    @property
    def longest(self) -> int:
        """Tokens of the longest pair in all splits."""
        return max(split.longest for split in self.splits.values())

    def summary(self) -> str:
        """Two or three lines for the user."""
        total, train = self.clean["total"], self.splits["train"]
        mean_source, mean_target = train.mean_lengths
        lines = [
            f"{train.pairs:,} training pairs of {total['lines']:,}, {train.source_tokens:,} {self.languages[0]} and "
            f"{train.target_tokens:,} {self.languages[1]} tokens ({mean_source:.1f} and {mean_target:.1f} a sentence), "
            f"{train.unk_share:.4%} unknown",
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
        return json.dumps({"made_by": self.made_by} | asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read what `to_json` has written."""
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise UserError(f"format {values['format']}, where this version reads {FORMAT}: prepare the text again")
        splits = {name: SplitCounts(**counts) for name, counts in values["splits"].items()}
        source, target = values["languages"]
        return cls(**values | {"languages": (source, target), "splits": splits})


def text_names(splits: Iterable[str], languages: tuple[str, str]) -> list[str]:
    """Names of the text files of these splits: "train.en", "train.de", ..."""
    return [f"{split}.{language}" for split in splits for language in languages]


def array_names(splits: Iterable[str]) -> list[str]:
    """Names of the files with the ids and the line numbers of these splits."""
    arrays = ["source.ids", "source.offsets", "target.ids", "target.offsets", "lines"]
    return [f"{split}.{array}.npy" for split in splits for array in arrays]


def is_prepared(directory: Path) -> bool:
    """Recognize a directory of a preparation, finished or not; other programs write a manifest.json, too.

    The mark is searched for in the bytes, and the ids count too, so that a damaged directory is not taken for text.
    """
    if (directory / UNFINISHED).is_dir() or (directory / "train.source.ids.npy").exists():
        return True
    path = directory / MANIFEST
    try:
        return path.is_file() and f'"{MADE_BY}"'.encode() in path.read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from None


class PreparedCorpus:
    """An open prepared directory; each file that it hands out is as the preparation has left it."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.manifest = read_manifest(directory)
        for name, expected in self.manifest.files.items():
            path = directory / name
            if not path.is_file():
                raise UserError(f"{path}: No such file, but {MANIFEST} names it: prepare the text again")
            if path.stat().st_size != expected["bytes"]:
                raise UserError(
                    f"{path}: {path.stat().st_size} bytes, but {expected['bytes']} in {MANIFEST}: "
                    "prepare the text again"
                )

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer."""
        return Tokenizer.load(self._unchanged(TOKENIZER))

    def has(self, split: str) -> bool:
        """Say if the corpus has a split, "train" or "val"."""
        return split in self.manifest.splits

    def text_files(self, split: str) -> ParallelFiles:
        """The text of "train" or "val"."""
        return ParallelFiles(*map(self._unchanged, text_names([split], self.manifest.languages)))

    def pairs(self, split: str, max_length: int) -> EncodedPairs:
        """Open the ids of "train" or "val" as memory maps, for batches of pairs of up to `max_length` tokens.

        The `max_length` of what is returned is that of the preparation, which has dropped the longer pairs. The
        checksum of the ids is left to the run.
        """
        if self.manifest.longest > max_length:
            raise UserError(
                f"{self.directory}: its longest pair has {self.manifest.longest} tokens, more than max_length = "
                f"{max_length}: raise that, or prepare the text again with --max-length {max_length}"
            )
        source, target = (self._sequences(f"{split}.{side}") for side in ("source", "target"))
        line_numbers = open_array(self._unchanged(f"{split}.lines.npy"))
        return EncodedPairs(
            source, target, line_numbers, self.manifest.options["max_length"], self.manifest.splits[split].longer
        )

    def _sequences(self, name: str) -> Sequences:
        offsets = open_array(self._unchanged(f"{name}.offsets.npy"))
        return Sequences(open_array(self.directory / f"{name}.ids.npy"), offsets)

    def _unchanged(self, name: str) -> Path:
        """The path of a file whose checksum is that in the manifest."""
        path = self.directory / name
        if not self.is_unchanged(name):
            raise UserError(f"{path}: damaged, its checksum is not that in {MANIFEST}: prepare the text again")
        return path

    def is_unchanged(self, name: str) -> bool:
        """Compare the checksum of a file with the manifest."""
        try:
            return crc32_of_file(self.directory / name) == self.manifest.files[name]["crc32"]
        except OSError as error:
            raise cannot_read(self.directory / name, error) from None


def open_array(path: Path) -> np.ndarray:
    """Open an array as a memory map."""
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged ({in_one_line(error)}): prepare the text again") from None
    return np.asarray(array)  # indexing a plain array is faster than indexing np.memmap


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
    except OSError as error:
        raise cannot_read(path, error) from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: damaged ({type(error).__name__}): prepare the text again") from None


class GrowingArray:
    """A new .npy file of one dimension, written block by block in a with statement; `size` counts the values so far."""

    def __init__(self, path: Path, dtype: np.dtype | type):
        self.dtype = np.dtype(dtype)
        self.size = 0
        self.file = open(path, "wb")
        self._write_header()

    def __enter__(self) -> "GrowingArray":
        return self

    def __exit__(self, *exception: object) -> None:
        with self.file:
            self._write_header()

    def _write_header(self) -> None:
        """Write or overwrite the header; NumPy pads it, so its length does not depend on the size."""
        self.file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, values: np.ndarray) -> None:
        """Write values (n,), which must fit the dtype."""
        self.file.write(values.astype(self.dtype).tobytes())
        self.size += values.size


def crc32_of_file(path: Path) -> int:
    """Compute the CRC-32 of a file, reading it chunk by chunk."""
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
