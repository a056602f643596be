"""A directory that one process has for itself: no two shall train in one run, or write one preparation."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scratchformer.errors import UserError


def lock(directory: Path, complaint: str) -> int:
    """A file descriptor; as long as it is open, others get the complaint. The system closes it if the process dies.

    Raises: UserError, "DIRECTORY: complaint", if another process has the directory.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"{directory}: {complaint}") from None
    except OSError:  # a file system without locks
        pass
    return descriptor


@contextmanager
def alone_in(directory: Path, complaint: str) -> Iterator[None]:
    """`lock` for the time of a block."""
    descriptor = lock(directory, complaint)
    try:
        yield
    finally:
        os.close(descriptor)
