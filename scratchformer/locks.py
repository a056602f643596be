"""Lock a directory, so that no two processes train in the same run or write the same prepared corpus."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scratchformer.errors import UserError


def lock(directory: Path, complaint: str) -> int:
    """Lock the directory until the file descriptor that is returned is closed; the system does so if the process dies.

    Raises UserError, "DIRECTORY: complaint", if another process holds the lock.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UserError(f"{directory}: cannot lock it: {error.strerror}") from error
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
