"""A file is there whole, or not at all: whoever reads it never meets half of one, whatever kills the process."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from scratchformer.errors import UserError


@contextmanager
def whole_file(path: Path, complaint: str = "cannot write") -> Iterator[BinaryIO]:
    """A file to write, which takes its name, and the place of an older one, when the block ends without an exception.

    Until then it is .NAME.partial, which goes with any exception; what a killed process has left, the next overwrites.

    Raises: UserError, "PATH: complaint: reason", if it cannot be written. Other exceptions of the block pass as they
        are, so that a file that cannot be read is not taken for one that cannot be written.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with io.BufferedWriter(_RawFile(temporary, path, complaint)) as file:
            yield file
            file.flush()
            with _told(path, complaint):
                os.fsync(file.fileno())
        with _told(path, complaint):
            os.replace(temporary, path)
            _flush_names(path.parent)
    finally:
        with suppress(OSError):  # whatever is wrong has been said
            temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text whole or not at all. Raises: UserError if it cannot be written."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))


def make_directory(path: Path) -> None:
    """Make it, and those above it, unless it is there. Raises: UserError if that is impossible."""
    with _told(path, "cannot make the directory"):
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def _told(path: Path, complaint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {complaint}: {error.strerror or error}") from error


class _RawFile(io.FileIO):
    """The unbuffered file; what goes wrong in it is told with the name that it will have."""

    def __init__(self, temporary: Path, path: Path, complaint: str):
        self.path = path
        self.complaint = complaint
        with _told(path, complaint):
            super().__init__(str(temporary), "wb")

    def write(self, data: Any) -> int:  # the buffer's only way to the disk
        with _told(self.path, self.complaint):
            return super().write(data)


def _flush_names(directory: Path) -> None:
    """Return when the names in the directory would survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
