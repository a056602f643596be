"""What a person at a terminal reads, and types."""

import os
import sys
from pathlib import Path
from typing import Any, Iterator

from scratchformer.errors import UserError
from scratchformer.text.corpora import read_lines


def to_nowhere(descriptor: int) -> None:
    """Let what is written to it from now on vanish, be it open or closed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:  # as it is if that was the next free
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    os.set_inheritable(descriptor, True)


class UnheardStream:
    """A text file that does not mind if nobody reads it any more: training goes on, and the log has everything."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, text: str) -> int:
        try:
            self.file.write(text)
            self.file.flush()
        except OSError:  # from here on it goes nowhere
            to_nowhere(self.file.fileno())
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def tell(line: str) -> None:
    """What happens while a command works; its result goes to standard output."""
    print(line, file=sys.stderr, flush=True)


def is_typed(files: list[Path]) -> bool:
    """Whether the lines come from a person who types them, and waits for each translation."""
    return not files and sys.stdin is not None and sys.stdin.isatty()


def input_lines(files: list[Path]) -> Iterator[str]:
    """The lines of the files, or of standard input as they come."""
    for path in files:
        yield from read_lines(path)
    if not files:
        if sys.stdin is None:
            raise UserError("standard input is closed")
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise UserError(f"standard input, line {number}: not UTF-8") from None
