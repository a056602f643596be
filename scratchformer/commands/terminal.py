"""Messages on standard error, and streams that cannot be written."""

import errno
import io
import os
import sys
from typing import Any

from scratchformer.errors import printable


class ClosedOutput(io.TextIOBase):
    """Stands for a standard output that is closed: results that are written to it must not get lost without a word."""

    def write(self, text: str) -> int:
        if text:
            raise OSError(errno.EBADF, "closed", "standard output")
        return 0


def speak_utf8() -> None:
    """Write UTF-8 to the terminal, a file or a pipe, whatever the locale: translations are UTF-8, as all text is.

    What is not Unicode, as in a file name of other bytes, is written as an escape.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def redirect_to_null(descriptor: int) -> None:
    """Discard what is written to a file descriptor from now on, whether it is open or closed."""
    null = os.open(os.devnull, os.O_WRONLY)
    if null != descriptor:  # equal if the descriptor was closed and the lowest free one
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)


class SilencedWhenUnread:
    """A text file that discards its output once it cannot be written, so that no message decides what a command does.

    A training goes on, for example, when its terminal is closed. Its log has the same numbers.
    """

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, text: str) -> int:
        try:
            self.file.write(text)
            self.file.flush()
        except OSError:
            redirect_to_null(self.file.fileno())
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def is_unread(error: OSError) -> bool:
    """Whether this error says that nobody reads standard output: `... | head` has ended, or the terminal is closed.

    A closed terminal and a broken disk both give EIO; only the terminal gives it for an empty write.
    """
    if isinstance(error, BrokenPipeError):
        return True
    try:
        os.write(1, b"")
    except OSError as answer:
        return error.errno == answer.errno == errno.EIO
    return False


def tell(line: str) -> None:
    """Print a message while a command works. Messages go to standard error, results to standard output."""
    print(printable(line), file=sys.stderr, flush=True)
