"""Write files atomically: a reader never sees an incomplete file, even if the writing process is killed.

Nothing is written through a link: its target may be a file of somebody else.
"""

import fcntl
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from scratchformer.errors import UserError


@contextmanager
def whole_file(path: Path, complaint: str = "cannot write") -> Iterator[BinaryIO]:
    """Open a file for writing; it gets its name, and replaces an older file, when the block ends without an exception.

    Until then it is called .NAME.partial. An exception deletes it; one that a killed process has left is
    overwritten by the next attempt.

    Raises UserError, "PATH: complaint: reason", if the file cannot be written, or another process is writing it. Other
    exceptions of the block pass through, so that a failure to read an input is not reported as a failure to write.
    """
    temporary = path.with_name(f".{path.name}.partial")
    raw = _RawFile(temporary, path, complaint)
    try:
        with io.BufferedWriter(raw) as file:
            yield file
            file.flush()
            with user_error(path, complaint):
                os.fsync(file.fileno())
        with user_error(path, complaint):
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text atomically. Raises UserError if it cannot be written."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))


def write_new_texts(texts: Mapping[Path, str]) -> None:
    """Write files of UTF-8 text, each atomically. Raises UserError if one exists with other content, or as above."""
    for path, text in texts.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != text.encode("utf-8")):
            raise UserError(f"{path}: exists already, with other content; choose another directory")
    for path, text in texts.items():
        replace_text(path, text)


def append_line(path: Path, line: str) -> None:
    """Append a line of UTF-8 text, after a line break if a crash has cut the last line short.

    Raises UserError if it cannot be written, or if the path is a link or anything else but a plain file.
    """
    with user_error(path, "cannot write"):
        if path.is_symlink() or path.exists() and not path.is_file():
            raise UserError(f"{path}: cannot write: not a plain file")
        with open(path, "a+b", opener=open_plainly) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.write(b"\n")
            file.write(line.encode("utf-8") + b"\n")


def make_directory(path: Path) -> None:
    """Make the directory and its parents, unless they exist. Raises UserError if that fails."""
    with user_error(path, "cannot make the directory"):
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def user_error(path: Path, complaint: str) -> Iterator[None]:
    """Turn an OSError or a MemoryError of the block into a UserError, "PATH: complaint: reason"."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {complaint}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"{path}: {complaint}: too large for the memory") from error


def is_our_output(path: Path) -> bool:
    """Whether standard output or standard error of this process goes to this file."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return True
    return False


def open_plainly(path: str, flags: int) -> int:
    """Open a file as `open` does, but follow no link and do not wait for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _try_lock(descriptor: int) -> bool:
    """Lock an open file -> whether no other process has locked it. The system unlocks it when the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
        pass
    return True


def _remove_abandoned(temporary: Path, path: Path) -> None:
    """Remove the temporary file that a killed process has left. Raises UserError if a process is still writing it."""
    with suppress(FileNotFoundError):
        if not temporary.is_symlink():
            descriptor = os.open(temporary, os.O_RDONLY | os.O_NONBLOCK)
            is_free = _try_lock(descriptor)
            os.close(descriptor)
            if not is_free:
                raise UserError(f"{path}: another process is writing it")
        temporary.unlink()


class _RawFile(io.FileIO):
    """The unbuffered file; its errors name the path that the file will have in the end."""

    def __init__(self, temporary: Path, path: Path, complaint: str):
        self.path = path
        self.complaint = complaint
        with user_error(path, complaint):
            _remove_abandoned(temporary, path)
            super().__init__(str(temporary), "xb")  # fails if the name exists, so it follows no link
            _try_lock(self.fileno())

    def write(self, data: Any) -> int:  # called whenever the buffer is full or flushed
        with user_error(self.path, self.complaint):
            return super().write(data)
