"""Messages on standard error, results on standard output, both as UTF-8."""

import io
import os
import sys
from typing import Any, TextIO

from scratchformer.errors import printable


class IgnoreUnwritable:
    """A text file that drops what cannot be written: a training goes on, for example, when its terminal is closed."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, text: str) -> int:
        try:
            self.file.write(text)
            self.file.flush()
        except OSError:
            discard(self.file)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def force_utf8() -> None:
    """Write UTF-8 whatever the locale. What is not Unicode, as in some file names, is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Discard what a stream still holds, and what follows: else Python would fail on it when it exits."""
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), stream.fileno())


def tell(line: str) -> None:
    """Print a message while a command works. Messages go to standard error, results to standard output."""
    print(printable(line), file=sys.stderr, flush=True)
