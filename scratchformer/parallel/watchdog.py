"""A timeout for each process, so that no rank hangs or waits for ever."""

from __future__ import annotations

import faulthandler
import time
from typing import Callable

SPINS = 200
"""Polls of a waiting rank before it sleeps between polls."""

MARGIN = 3.0
"""Seconds between the watchdog of a rank that hangs and those of the ranks that wait for it."""


class Watchdog:
    """Ends this process about `seconds` after the last operation with other ranks, and prints the stack of each thread.

    The timer is Python's faulthandler, whose thread keeps running even if Python code blocks. 0 seconds: no timeout.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.last_set = -1e9

    def feed(self) -> None:
        """Restart the timer: an operation with the other ranks has succeeded."""
        if self.seconds and time.monotonic() - self.last_set > self.seconds / 20:
            self.set(self.seconds)

    def may_wait(self, waited: float) -> bool:
        """Return True if a rank that has waited so many seconds for others may go on waiting."""
        if not self.seconds or waited < min(1, self.seconds):
            return True
        if time.monotonic() - self.last_set > waited:  # not set since the wait began
            self.set(self.seconds + MARGIN)
        return waited < self.seconds

    def wait_until(self, done: Callable[[], bool]) -> float:
        """Poll done() until it is true -> 0.0, or the seconds waited if that is too long"""
        spins, began = 0, time.monotonic()
        while not done():
            spins += 1
            if spins > SPINS:
                waited = time.monotonic() - began
                if not self.may_wait(waited):
                    return waited
                time.sleep(min(0.001, waited / 10))
        self.feed()
        return 0.0

    def set(self, seconds: float) -> None:
        """End this process in so many seconds, unless this is called again before."""
        self.last_set = time.monotonic()
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
