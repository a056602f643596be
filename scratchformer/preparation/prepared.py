"""A prepared corpus: a directory with ids on disk, which training reads without tokenizing text.

    train.en, train.de, ...      the text, one sentence on each line: cleaned for training, else (val, test) unchanged
    tokenizer.model              one vocabulary for both languages
    train.source.ids.npy         (tokens,) uint16, or int32 for a large vocabulary: all sentences, each with EOS
    train.source.offsets.npy     (pairs + 1,) int64: where in the ids each sentence begins, see `batches.Sequences`
    train.target.*.npy           the same for the other side; val.* likewise
    train.lines.npy              (pairs,) int64: the line of each pair in train.en and train.de, from 1
    manifest.json                a description of all this: it is written last, so a directory that has one is complete
    stages.json                  which stages of the preparation are done, and what they were made from (`stages`)

The arrays are opened as memory maps: 36 million pairs take no memory except for the pages that a batch reads, which the
operating system caches. Opening checks the size of every file, and the CRC-32 of those that training reads; a run
computes that of the ids itself, in about a second for each GB.

The directory may come from somebody else: only regular files under names that we write are opened.
"""

import json
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import whole_file
from scratchformer.text.batches import EncodedPairs, Sequences
from scratchformer.text.corpora import ParallelFiles, cannot_read
from scratchformer.text.tokenizer import PAD, Tokenizer

FORMAT = 1
MANIFEST, STAGES, TOKENIZER = "manifest.json", "stages.json", "tokenizer.model"
SPLITS = ("train", "val")
MADE_BY = "scratchformer data"
"""Marks our JSON files; it stands at the beginning, where even a truncated file has it."""

LANGUAGE = r"[A-Za-z0-9_-]{1,32}"
"""The pattern of a language's name, which is the ending of its files."""

OWN_NAME = re.compile(
    rf"(train|val|test)\.{LANGUAGE}|tokenizer\.model|(train|val)\.((source|target)\.(ids|offsets)|lines)\.npy"
)
"""The names of the files that a preparation writes, besides its two JSON files."""

MAX_JSON_BYTES = 2**24

HOW_TO_REPAIR = "remove it and prepare the text again"
"""For a damaged file, which must be removed first because the preparation might take it for a finished one."""

LONGEST_REASON = 200
"""Characters of a message that is quoted in another one."""

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
    """What a prepared directory holds, and where it came from.

    dataset        the name of a public data set; "" for the user's own files
    languages      source, target
    vocab_size     pieces of the tokenizer
    byte_fallback  whether the tokenizer encodes unknown characters as bytes
    options        the other options of the preparation
    clean          the report of the cleaning: lines and reasons by part, duplicates, overlap with held-out text
    splits         "train" and, if there is validation text, "val"
    ids_crc32      CRC-32 of all ids as int32: source and target of train, then of val
    files          name -> bytes and CRC-32
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
        """Raises UserError if it has another version of the format; ValueError, TypeError, KeyError, AttributeError or
        RecursionError if it is not something that `to_json` writes."""
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise UserError(
                f"format {values['format']!r:.40}, where this version reads {FORMAT}: prepare the text again"
            )
        splits = {name: SplitCounts(**counts) for name, counts in values["splits"].items()}
        if "train" not in splits or not splits.keys() <= set(SPLITS):
            raise ValueError(f"the splits are {', '.join(splits) or 'missing'}")
        source, target = values["languages"]
        if not (re.fullmatch(LANGUAGE, source) and re.fullmatch(LANGUAGE, target)) or source == target:
            raise ValueError(f"the languages are {source!r} and {target!r}")
        needed = {TOKENIZER, *text_names(splits, (source, target)), *array_names(splits)}
        if absent := needed - values["files"].keys():
            raise ValueError(f"no {min(absent)} among the files")
        require_own_names(values["files"])
        for counts in splits.values():
            _require_counts({name: count for name, count in vars(counts).items() if name != "unk_share"})
            _require_counts({"pairs": counts.pairs, "longest": counts.longest}, least=1)
            if not (isinstance(counts.unk_share, int | float) and 0 <= counts.unk_share <= 1):
                raise ValueError(f"unk_share is {counts.unk_share!r}")
        clean = values["clean"]
        _require_counts({name: clean["total"][name] for name in ("lines", "empty", "held_out")})
        _require_counts({"repeated": clean["repeated"], "ids_crc32": values["ids_crc32"]})
        _require_counts({"vocab_size": values["vocab_size"], "max_length": values["options"]["max_length"]}, least=1)
        for kept in values["files"].values():
            _require_counts({name: kept[name] for name in ("bytes", "crc32")})
        texts = values["versions"] | {"dataset": values["dataset"]}
        texts |= {f"part {number}": part["part"] for number, part in enumerate(clean["parts"])}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise ValueError(f"{name} is {text!r}")
        if not isinstance(values["byte_fallback"], bool):
            raise ValueError(f"byte_fallback is {values['byte_fallback']!r}")
        return cls(**values | {"languages": (source, target), "splits": splits})


def _require_counts(counts: dict[str, Any], least: int = 0) -> None:
    """Raises ValueError if a count is not an integer, is less than `least`, or does not fit into 63 bits."""
    for name, count in counts.items():
        if type(count) is not int or not least <= count < 2**63:  # True is an int, too
            raise ValueError(f"{name} is {count!r}")


# Names of files -------------------------------------------------------------------------------------------------------


def text_names(splits: Iterable[str], languages: tuple[str, str]) -> list[str]:
    """Names of the text files of these splits: "train.en", "train.de", ..."""
    return [f"{split}.{language}" for split in splits for language in languages]


def array_names(splits: Iterable[str]) -> list[str]:
    """Names of the files with the ids and the line numbers of these splits."""
    arrays = ["source.ids", "source.offsets", "target.ids", "target.offsets", "lines"]
    return [f"{split}.{array}.npy" for split in splits for array in arrays]


def require_own_names(names: Iterable[str]) -> None:
    """Raises ValueError if no preparation writes a file of this name, such as one in another directory."""
    for name in names:
        if not OWN_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no file of a prepared corpus")


# Reading --------------------------------------------------------------------------------------------------------------


def is_prepared(directory: Path) -> bool:
    """Whether a preparation has made this directory, or has begun to; other programs write a manifest.json, too.

    Our mark is searched for in the bytes, so that it is found in a damaged file, too.

    Raises UserError if a file cannot be read.
    """
    for path in (directory / MANIFEST, directory / STAGES):
        try:
            if f'"{MADE_BY}"'.encode() in read_json_bytes(path):
                return True
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise cannot_read(path, error) from None
    return False


def read_json_bytes(path: Path) -> bytes:
    """Read one of our JSON files, but no more than MAX_JSON_BYTES: ours are smaller. Raises OSError."""
    if path.exists() and not path.is_file():
        raise OSError("not a regular file")
    with open(path, "rb") as file:
        return file.read(MAX_JSON_BYTES)


@dataclass(frozen=True, eq=False)
class StoredSequences(Sequences):
    """Sequences in a file. Each batch checks its ids, since a file with the right checksum may hold impossible ones."""

    path: Path
    vocab_size: int

    def padded(self, indices: np.ndarray) -> np.ndarray:
        """As `Sequences.padded`. Raises UserError if an id is not in the vocabulary, or is that of padding."""
        rows = super().padded(indices)
        n_ids = np.sum(self.offsets[indices + 1] - self.offsets[indices])
        if rows.min() < 0 or rows.max() >= self.vocab_size or np.count_nonzero(rows != PAD) != n_ids:
            raise UserError(f"{self.path}: damaged, it holds ids that cannot occur in a sentence: {HOW_TO_REPAIR}")
        return rows


class PreparedCorpus:
    """An open prepared directory.

    Raises UserError if the manifest is missing or damaged, or if a file is missing, is not a regular file or differs
    from it in size.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self.manifest = read_manifest(directory)
        for name, expected in self.manifest.files.items():
            path, n_bytes = directory / name, expected["bytes"]
            try:
                state = path.stat()
            except OSError as error:
                raise UserError(
                    f"{path}: {error.strerror}; {MANIFEST} names this file: prepare the text again"
                ) from None
            if not stat.S_ISREG(state.st_mode):
                raise UserError(f"{path}: not a regular file: {HOW_TO_REPAIR}")
            if state.st_size != n_bytes:
                raise UserError(f"{path}: {state.st_size} bytes, but {n_bytes} in {MANIFEST}: prepare the text again")

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer. Raises UserError if it is damaged."""
        return Tokenizer.load(self._unchanged(TOKENIZER))

    def has(self, split: str) -> bool:
        """Whether there is this split, "train" or "val"."""
        return split in self.manifest.splits

    def text_files(self, split: str) -> ParallelFiles:
        """The text of "train" or "val". Raises UserError if a checksum is not that in the manifest."""
        return ParallelFiles(*map(self._unchanged, text_names([split], self.manifest.languages)))

    def pairs(self, split: str, max_length: int) -> EncodedPairs:
        """Open the ids of "train" or "val" as memory maps, for batches of pairs of up to `max_length` tokens.

        The `max_length` of what is returned is that of the preparation, which has dropped the longer pairs.

        Raises UserError if a pair is longer than `max_length` tokens, if an array is damaged, or if the arrays do not
        fit together. The checksum of the ids is left to the run.
        """
        if self.manifest.longest > max_length:
            raise UserError(
                f"{self.directory}: its longest pair has {self.manifest.longest} tokens, more than max_length = "
                f"{max_length}: raise that, or prepare the text again with --max-length {max_length}"
            )
        source, target = (self._sequences(f"{split}.{side}") for side in ("source", "target"))
        line_numbers = self._array(self._unchanged(f"{split}.lines.npy"), np.int64)
        if not len(source.offsets) == len(target.offsets) == len(line_numbers) + 1:
            raise UserError(f"{self.directory}: {split}.source, {split}.target and {split}.lines differ in length")
        pairs = EncodedPairs(
            source, target, line_numbers, self.manifest.options["max_length"], self.manifest.splits[split].longer
        )
        if pairs.lengths.max() > self.manifest.longest:
            raise UserError(f"{self.directory}: a pair of {split} is longer than the longest one in {MANIFEST}")
        return pairs

    def _sequences(self, name: str) -> Sequences:
        ids = self._array(self.directory / f"{name}.ids.npy", np.uint16, np.int32)
        offsets = self._array(self._unchanged(f"{name}.offsets.npy"), np.int64)
        sequences = StoredSequences(ids, offsets, self.directory / f"{name}.ids.npy", self.manifest.vocab_size)
        if offsets[0] != 0 or offsets[-1] != len(ids) or not np.all(offsets[:-1] < offsets[1:]):
            raise UserError(
                f"{self.directory / name}.offsets.npy: damaged, it does not fit {name}.ids.npy: {HOW_TO_REPAIR}"
            )
        return sequences

    def _array(self, path: Path, *dtypes: type[np.integer]) -> np.ndarray:
        try:
            with open(path, "rb") as file:
                np.lib.format.read_magic(file)
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                begin = file.tell()
        except Exception as error:  # many kinds: a header is Python source
            raise UserError(f"{path}: damaged: {in_one_line(error)[:LONGEST_REASON]}: {HOW_TO_REPAIR}") from None
        n_bytes = self.manifest.files[path.name]["bytes"]
        # Checked before the map is made: NumPy divides by the size of the dtype.
        if dtype not in dtypes or len(shape) != 1 or not shape[0] or begin + shape[0] * dtype.itemsize != n_bytes:
            raise UserError(f"{path}: damaged: {dtype} of shape {shape}: {HOW_TO_REPAIR}")
        array = np.memmap(path, dtype, "r", begin, shape)
        return np.asarray(array)  # indexing a plain array is faster than indexing np.memmap

    def _unchanged(self, name: str) -> Path:
        """The path of a file. Raises UserError if its checksum is not that in the manifest."""
        path = self.directory / name
        try:
            found = crc32_of_file(path)
        except OSError as error:
            raise cannot_read(path, error) from None
        if found != self.manifest.files[name]["crc32"]:
            raise UserError(f"{path}: damaged, its checksum is not that in {MANIFEST}: {HOW_TO_REPAIR}")
        return path


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a directory. Raises UserError if it is missing or damaged."""
    path = directory / MANIFEST
    try:
        return Manifest.from_json(read_json_bytes(path).decode("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{directory}: its preparation is not finished, since there is no {MANIFEST}: "
            "run the scratchformer data command that began it again, or another one to its end"
        ) from None
    except OSError as error:
        raise cannot_read(path, error) from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = in_one_line(error)[:LONGEST_REASON]  # it may quote the file
        raise UserError(f"{path}: damaged: {type(error).__name__}: {reason}") from None


# Writing --------------------------------------------------------------------------------------------------------------


@contextmanager
def growing_array(path: Path, dtype: np.dtype) -> Iterator["GrowingArray"]:
    """Open a new .npy file, written atomically as by `whole_file`. Raises UserError if it cannot be written."""
    with whole_file(path) as file:
        array = GrowingArray(file, dtype)
        yield array
        array.write_header()


class GrowingArray:
    """A one-dimensional array on disk, written piece by piece; `size` counts the values so far."""

    def __init__(self, file: BinaryIO, dtype: np.dtype):
        self.file = file
        self.dtype = dtype
        self.size = 0
        self.write_header()

    def write_header(self) -> None:
        """Write or overwrite the header; NumPy pads it, so its length does not depend on the size."""
        self.file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, values: np.ndarray) -> None:
        """Write values (n,). Raises TypeError if their dtype does not fit, such as signed into unsigned."""
        self.file.write(values.astype(self.dtype, casting="same_kind").tobytes())
        self.size += values.size


class SequencesFile:
    """Sequences written block by block to NAME.ids.npy and NAME.offsets.npy, which appear when `stack` is closed."""

    def __init__(self, stack: ExitStack, out: Path, name: str, dtype: np.dtype):
        self.ids = stack.enter_context(growing_array(out / f"{name}.ids.npy", dtype))
        self.offsets = stack.enter_context(growing_array(out / f"{name}.offsets.npy", np.dtype(np.int64)))
        self.offsets.append(np.zeros(1, np.int64))

    def append(self, sequences: Sequences) -> None:
        """Write the ids and offsets of one more block."""
        self.offsets.append(self.ids.size + sequences.offsets[1:])
        self.ids.append(sequences.ids)


def crc32_of_file(path: Path) -> int:
    """Compute the CRC-32 of a file, reading it piece by piece."""
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
