"""Check one file in a process of its own, so that nothing in it can hang, end or confuse the command that asked.

`workbook.checking` starts it, as the leader of a process group. What the learner's code prints goes where printing
goes; the verdict is written into a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np

from exercises.catalogue import EXERCISES
from exercises.checker import Crashed, Verdict, check
from exercises.exercise import Exercise

FRAMES = 4
"""How many calls of a traceback are shown at most; a recursion without end has a thousand."""

MODULE = "_answer"
"""What the learner's file is called as a module; no file beside it that it imports is called so."""

HEARTBEAT = 0.2
"""Seconds between two looks whether the command that asked is still there."""


def main(exercise: str, path: str, verdict_file: str, asked_by: str, seconds: str) -> None:
    """Check and leave, whatever threads the learner's code has started."""
    signal.alarm(int(seconds))                                                     # ends what lets no thread run, too
    threading.Thread(target=end_with, args=[int(asked_by)], daemon=True).start()
    verdict = verdict_on(EXERCISES[exercise], Path(path))
    for stream in (sys.stdout, sys.__stdout__):                                    # the learner may have replaced it
        with suppress(Exception):
            stream.flush()                                                         # type: ignore[union-attr]
    Path(verdict_file).write_text(json.dumps(verdict), encoding="utf-8")
    os._exit(0)


def end_with(parent: int) -> None:
    """When that process has ended, in whatever way, end this one and all that it has started."""
    while os.getppid() == parent:
        time.sleep(HEARTBEAT)
    os.killpg(os.getpid(), signal.SIGKILL)


def verdict_on(exercise: Exercise, path: Path) -> Verdict:
    """Load the file, and check the function of the exercise in it. Whatever goes wrong is a verdict."""
    try:
        module = loaded(path)
    except BaseException as error:
        return Verdict("not yet", f"the file cannot be loaded:\n{own_traceback(error, path)}")
    try:
        answer = getattr(module, exercise.function, None)
        if not callable(answer):
            return Verdict("not yet", f"the file defines no function {exercise.function}")
        return check(exercise, answer)
    except Crashed as crash:
        return Verdict("not yet", f"{crash}\n{own_traceback(crash.__cause__, path)}")
    except Exception as error:                                                     # no check foresees every value
        return Verdict("not yet", "what your function returns is nothing that the check can compare:\n"
                                  f"{own_traceback(error, path)}")


def loaded(path: Path) -> ModuleType:
    """The file as a module, compiled from its text as it is now: bytecode on disk may be that of an earlier one."""
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module                                                   # dataclasses look there
    with np.errstate():                                                            # what it sets is not for the check
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    return module


def own_traceback(error: BaseException | None, path: Path) -> str:
    """The message of an error, and the lines of the learner's file that led to it."""
    assert error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)][-FRAMES:]
    lines = [f"{path.name}, line {frame.lineno}, in {frame.name}\n    {frame.line}" for frame in frames]
    what = "".join(traceback.format_exception_only(error)).replace(str(path), path.name).rstrip()
    return "\n".join([*lines, what])
