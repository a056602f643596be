"""No rank waits for ever: a clock that ends the process if nothing happens for too long."""

from __future__ import annotations

import faulthandler
import time

MARGIN = 3.0
"""Seconds by which a rank that hangs speaks up before those that wait for it."""


class Watchdog:
    """Ends this process, printing what each of its threads is at, about `seconds` after its last sign of life.

    Python's own faulthandler does it, from a thread that nothing in Python can block. 0 seconds: never.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.fed = -1e9

    def feed(self) -> None:
        """A sign of life: an operation with the other ranks is done."""
        if self.seconds and time.monotonic() - self.fed > self.seconds / 20:
            self._set(self.seconds)

    def is_patient(self, seconds: float) -> bool:
        """Whether this rank, which has been waiting for others so long, should go on. To wait is not to hang."""
        if not self.seconds or seconds < min(1, self.seconds):
            return True
        if time.monotonic() - self.fed > seconds:  # not fed since it waits
            self._set(self.seconds + MARGIN)
        return seconds < self.seconds

    def _set(self, seconds: float) -> None:
        self.fed = time.monotonic()
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
