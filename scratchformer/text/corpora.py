"""Read a parallel corpus: two text files of equal length, where line i of one translates line i of the other.

Everything that can be wrong with such files (one is missing, a damaged archive, another encoding) is found here and
becomes a UserError that names the file.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from scratchformer.errors import UserError, in_one_line

READ_ERRORS = (OSError, EOFError, zlib.error, MemoryError)
"""Exceptions of reading a text: EOFError and zlib.error for a truncated and a damaged archive, MemoryError for a text,
or a line, that does not fit into memory."""


class Pairs(NamedTuple):
    """The sentence pairs of a parallel corpus, without those of which a side is blank.

    `target[i]` translates `source[i]`; both come from line `line_numbers[i]` (counted from 1) of their files.
    `n_empty` is the number of pairs left out because a side, or both, was blank.
    """

    source: list[str]
    target: list[str]
    line_numbers: list[int]
    n_empty: int


class ParallelFiles(NamedTuple):
    """Two text files of equal length: line i of one translates line i of the other."""

    source: Path
    target: Path


class CorpusFiles(NamedTuple):
    """The files of a corpus; training text may come in several parts, validation and test text may be missing."""

    train: list[ParallelFiles]
    val: ParallelFiles | None
    test: ParallelFiles | None

    @property
    def held_out(self) -> dict[str, ParallelFiles]:
        """The files of "val" and "test", if there are any."""
        return {split: files for split, files in (("val", self.val), ("test", self.test)) if files}

    @property
    def paths(self) -> list[Path]:
        """All files, each source before its target."""
        return [path for files in (*self.train, *self.held_out.values()) for path in files]

    @property
    def roles(self) -> list[tuple[str, Path]]:
        """All files, each with its role, such as "train source", as `require_distinct` takes them."""
        splits = [*(("train", part) for part in self.train), *self.held_out.items()]
        return [(f"{split} {side}", path) for split, files in splits for side, path in files._asdict().items()]


def require_distinct(roles: Iterable[tuple[str, Path]]) -> None:
    """Refuse one file in two roles, under one name or under several."""
    seen: dict[Path, tuple[str, Path]] = {}
    for role, path in roles:
        file = (plain_or_gz(path) or path).resolve()
        other_role, other = seen.setdefault(file, (role, path))
        if other_role != role:
            same = "" if other == path else f"the same file as {other}, "
            raise UserError(f"{path}: {same}named as {other_role} and as {role}; these must be two files")


def read_lines(path: Path) -> list[str]:
    r"""Read the lines of a UTF-8 file, plain or gzipped, without their line ends and without a byte order mark.

    Only "\n" and "\r\n" end a line; in a file without "\n", "\r" does, as on an old Mac. `str.splitlines` would also
    cut at U+2028, "\x0b" and others, which occur inside the sentences of web corpora: after one such cut every later
    pair is misaligned.

    If `path` does not exist but `path`.gz does, that file is read.
    """
    try:
        with open_stream(path) as file:
            data = file.read().removeprefix(codecs.BOM_UTF8)
        return decode_lines(data if b"\n" in data else data.replace(b"\r", b"\n"), path)
    except READ_ERRORS as error:
        raise cannot_read(path, error) from error


class Block(NamedTuple):
    """Some successive lines of two parallel files, as bytes with their line ends; `first_line` counts from 1."""

    files: ParallelFiles
    source: bytes
    target: bytes
    first_line: int

    def lines(self) -> tuple[list[str], list[str]]:
        """The decoded lines of both sides."""
        source, target = (decode_lines(data, path, self.first_line) for data, path in zip(self[1:3], self.files))
        return source, target

    def pairs(self) -> Pairs:
        """The pairs without a blank side."""
        return nonblank_pairs(*self.lines(), self.first_line)


def stream_blocks(files: ParallelFiles, n_lines: int) -> Iterator[Block]:
    """Read two parallel files, plain or gzipped, in blocks of `n_lines` lines (the last may be shorter).

    A file is never in memory as a whole. Lines end as in `read_lines`; bytes are not decoded.
    """
    sides = [_stream_lines(path, n_lines) for path in files]
    n_read = 0
    for source, target in zip_longest(*sides, fillvalue=[]):
        if len(source) != len(target):
            counts = [n_read + len(lines) + sum(map(len, side)) for lines, side in zip((source, target), sides)]
            raise _not_parallel(files, *counts)
        yield Block(files, b"".join(source), b"".join(target), n_read + 1)
        n_read += len(source)


def _stream_lines(path: Path, n_lines: int) -> Iterator[list[bytes]]:
    """Read the lines of one file in lists of `n_lines`, without the byte order mark."""
    mark = codecs.BOM_UTF8
    try:
        with open_stream(path) as file:
            while lines := list(islice(file, n_lines)):
                yield [lines[0].removeprefix(mark), *lines[1:]]
                mark = b""
    except READ_ERRORS as error:
        raise cannot_read(path, error) from error


def decode_lines(data: bytes, path: Path, first_line: int = 1) -> list[str]:
    """Decode UTF-8 text, which begins at line `first_line` of the file `path`, into lines without their line ends."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_number = first_line + data.count(b"\n", 0, error.start)
        raise UserError(f"{path}, line {line_number}: not valid UTF-8 ({error.reason})") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # what follows the last line end is not a line
    return [line.removesuffix("\r") for line in lines]


def read_pairs(source_path: Path, target_path: Path) -> Pairs:
    """Read the sentence pairs of two parallel files; pairs with a blank side are left out and counted."""
    source_lines, target_lines = read_lines(source_path), read_lines(target_path)
    if len(source_lines) != len(target_lines):
        raise _not_parallel(ParallelFiles(source_path, target_path), len(source_lines), len(target_lines))
    pairs = nonblank_pairs(source_lines, target_lines)
    if not pairs.source:
        raise UserError(f"no sentence pairs in {source_path} and {target_path}: every line is blank on one side")
    return pairs


def nonblank_pairs(source_lines: list[str], target_lines: list[str], first_line: int = 1) -> Pairs:
    """Pair up equally many lines and leave out the pairs with a blank side."""
    pairs = Pairs([], [], [], n_empty=0)
    for line_number, (source, target) in enumerate(zip(source_lines, target_lines, strict=True), first_line):
        if source.strip() and target.strip():
            pairs.source.append(source)
            pairs.target.append(target)
            pairs.line_numbers.append(line_number)
    return pairs._replace(n_empty=len(source_lines) - len(pairs.source))


def find_split(directory: Path, split: str, source_language: str, target_language: str) -> ParallelFiles:
    """Find the source and the target file of one split, such as train.en and train.de.gz; plain files come first."""
    names = [f"{split}.{language}" for language in (source_language, target_language)]
    return ParallelFiles(*(find_file(directory, name) for name in names))


def find_file(directory: Path, name: str) -> Path:
    """Find a file, plain or gzipped; the plain one comes first."""
    path = plain_or_gz(directory / name)
    if path is None or not path.is_file():  # a pipe would be waited for
        place = directory if directory.is_dir() else f"{directory}, which is not a directory"
        found = sorted(each.name for each in directory.glob("*.*"))[:6] if directory.is_dir() else []
        raise UserError(f"neither {name} nor {name}.gz in {place}{'; it has ' * bool(found)}{', '.join(found)}")
    return path


def plain_or_gz(path: Path) -> Path | None:
    """Return `path` if it exists, else `path`.gz if that exists, else None."""
    return next((each for each in (path, path.with_name(path.name + ".gz")) if each.exists()), None)


def open_stream(path: Path) -> BinaryIO:
    """Open a file, plain or gzipped, to read its uncompressed bytes; the plain one comes first."""
    path = plain_or_gz(path) or path
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else open(path, "rb")


def cannot_read(path: Path, error: BaseException) -> UserError:
    """Make the UserError for a file that could not be read."""
    reason = "too large for the memory" if isinstance(error, MemoryError) else getattr(error, "strerror", None)
    return UserError(f"cannot read {path}: {reason or in_one_line(error)}")


def _not_parallel(files: ParallelFiles, n_source: int, n_target: int) -> UserError:
    return UserError(f"not parallel: {files.source} has {n_source} lines, {files.target} has {n_target}")
