"""Check one file in a process of its own, so that nothing in it can hang, end or confuse the command that asked.

`supervisor.py` starts it, as the leader of a process group, and reads what it prints and the verdict from pipes.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import traceback
from collections import deque
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from exercises.checker import Crashed, Verdict, check
from exercises.exercise import Exercise
from exercises.supervisor import FILE, MEMORY

FRAMES = 4
"""How many calls of a traceback are shown at most; a recursion without end has a thousand."""

MODULE = "_answer"
"""What the learner's file is called as a module; no file beside it that it imports is called so."""

LONGEST = 5000
"""Characters of a message at most: the learner's code may raise an error whose text has millions."""


def main(exercise: str, path: str, answer: str) -> None:
    """Check, write the verdict as a line of JSON to a file descriptor, and leave, whatever threads still run."""
    os.set_inheritable(int(answer), False)
    lesson = import_module(f"exercises.lesson_{exercise[:2]}")  # all others would take a second more
    verdict = verdict_on(next(each for each in lesson.EXERCISES if each.id == exercise), Path(path))
    for stream in (sys.stdout, sys.__stdout__):  # the learner may have replaced it
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    texts = [text if len(text) <= LONGEST else text[:LONGEST] + " ..." for text in verdict]
    with suppress(OSError):  # the learner's code has closed it
        os.write(int(answer), json.dumps(texts).encode() + b"\n")
    os._exit(0)


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
    except BaseException as error:  # no check foresees every value
        return Verdict(
            "not yet",
            "what your function returns is nothing that the check can compare:\n" f"{own_traceback(error, path)}",
        )


def loaded(path: Path) -> ModuleType:
    """The file as a module, compiled from its text as it is now: bytecode on disk may be that of an earlier one."""
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module  # dataclasses look there
    with np.errstate():  # what it sets is not for the check
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    return module


def own_traceback(error: BaseException | None, path: Path) -> str:
    """The message of an error, and the lines of the learner's file that led to it."""
    assert error
    use_reserve()
    own = (step for step in traceback.walk_tb(error.__traceback__) if step[0].f_code.co_filename == str(path))
    frames = traceback.StackSummary.extract(iter(deque(own, maxlen=FRAMES)))
    lines = [f"{path.name}, line {frame.lineno}, in {frame.name}\n    {frame.line}" for frame in frames]
    what = "".join(traceback.format_exception_only(error)).replace(str(path), path.name).rstrip()
    return "\n".join([*lines, what, *limits_hit(error, what)])


def limits_hit(error: BaseException, text: str) -> list[str]:
    """The limit of the check that explains the error of this text, as a line, if one does."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "can't start new thread" in text:
        return [f"(a check may use {MEMORY / 2**30:g} GiB of memory)"]
    if number == errno.EFBIG:
        return [f"(a file that is written in a check may have {FILE // 10**6} MB)"]
    return []


def use_reserve() -> None:
    """From now on the memory that is left for the check itself may be used, too."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(ValueError, OSError):  # macOS does not limit the memory
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
