"""Write files atomically: a reader never sees an incomplete file, even if the writing process is killed.

Nothing is written through a link: its target may be a file of somebody else. A lock keeps two processes from training
in the same run, or from writing the same prepared corpus.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scratchformer.errors import UserError


@contextmanager
def whole_file(path: Path, complaint: str = "cannot write") -> Iterator[BinaryIO]:
    """Open a file for writing; it gets its name, and replaces an older file, when the block ends without an exception.

    Until then it is called .NAME.partial. An exception deletes it; one that a killed process has left is
    overwritten by the next attempt.

    Raises UserError, "PATH: complaint: reason", if the file cannot be written. Other exceptions of the block pass
    through: the OSError of an input has that file's name, or no number.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:  # fails if the name exists, so it follows no link
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and Path(error.filename or temporary) == temporary:
            raise UserError(f"{path}: {complaint}: {error.strerror}") from error
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text atomically."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))


def write_new_texts(texts: Mapping[Path, str]) -> None:
    """Write files of UTF-8 text, each atomically. One that exists with other content is refused."""
    for path, text in texts.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != text.encode("utf-8")):
            raise UserError(f"{path}: exists already, with other content; choose another directory")
    for path, text in texts.items():
        replace_text(path, text)


def append_line(path: Path, line: str) -> None:
    """Append a line of UTF-8 text, after a line break if a crash has cut the last line short.

    The path must be a plain file, and not a link.
    """
    with user_error(path, "cannot write"):
        if path.is_symlink() or path.exists() and not path.is_file():
            raise UserError(f"{path}: cannot write: not a plain file")
        with open(path, "a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.write(b"\n")
            file.write(line.encode("utf-8") + b"\n")


def make_directory(path: Path) -> None:
    """Make the directory and its parents, unless they exist."""
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
    """Return whether standard output or standard error of this process goes to this file."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return True
    return False


def lock(directory: Path, complaint: str) -> int:
    """Lock the directory until the file descriptor that is returned is closed; the system does so if the process dies.

    Raises UserError, "DIRECTORY: complaint", if another process holds the lock.
    """
    with user_error(directory, "cannot lock it"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"{directory}: {complaint}") from None
    except OSError:  # this file system has no locks
        pass
    return descriptor


@contextmanager
def locked(directory: Path, complaint: str) -> Iterator[None]:
    """Hold the lock for the duration of a block."""
    descriptor = lock(directory, complaint)
    try:
        yield
    finally:
        os.close(descriptor)
