"""The entry point of `python -m scratchformer` and of the command `scratchformer`.

All other modules are imported inside its guard, so that Ctrl-C ends the program with one line from the first moment on.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def main() -> int:
    """Run the command -> its exit code, 130 if it is interrupted"""
    os.environ["MPLBACKEND"] = "Agg"  # figures go into files; a notebook's backend may not be installed here
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise Ctrl-C is to be ignored
            signal.signal(signal.SIGINT, interrupt)
        from scratchformer.cli import main as run

        return run()
    except KeyboardInterrupt:
        say_interrupted()
        return 130


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: raise KeyboardInterrupt, as usual; but while a module is imported, end the process.

    There the exception could get lost: Python ignores exceptions in callbacks of its import system, and some extension
    modules make an ImportError of every exception.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            say_interrupted()
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def say_interrupted() -> None:
    try:
        os.write(2, b"scratchformer: interrupted\n")
    except OSError:  # nobody can read it
        pass


if __name__ == "__main__":
    sys.exit(main())
