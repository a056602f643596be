"""Check one file in a process of its own, so that nothing in it can hang, end or confuse the command that asked.

    python -m scratchformer.study.exercises.runner ID FILE VERDICT.json

What the learner's code prints goes where printing goes; the verdict is written into a file.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType

from scratchformer.study.exercises.catalogue import EXERCISES
from scratchformer.study.exercises.checker import Crashed, Verdict, check
from scratchformer.study.exercises.exercise import Exercise

FRAMES = 4
"""How many calls of a traceback are shown at most; a recursion without end has a thousand."""


def main() -> None:
    exercise, path, verdict_file = sys.argv[1:]
    verdict = verdict_on(EXERCISES[exercise], Path(path))
    Path(verdict_file).write_text(json.dumps(verdict), encoding="utf-8")


def verdict_on(exercise: Exercise, path: Path) -> Verdict:
    """Load the file, and check the function of the exercise in it."""
    try:
        module = loaded(path)
    except (Exception, SystemExit) as error:
        return Verdict("not yet", f"the file cannot be loaded:\n{own_traceback(error, path)}")
    answer = getattr(module, exercise.function, None)
    if not callable(answer):
        return Verdict("not yet", f"the file defines no function {exercise.function}")
    try:
        return check(exercise, answer)
    except Crashed as crash:
        return Verdict("not yet", f"{crash}\n{own_traceback(crash.__cause__, path)}")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("answer", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own_traceback(error: BaseException | None, path: Path) -> str:
    """The message of an error, and the lines of the learner's file that led to it."""
    assert error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)][-FRAMES:]
    lines = [f"{path.name}, line {frame.lineno}, in {frame.name}\n    {frame.line}" for frame in frames]
    what = "".join(traceback.format_exception_only(error)).replace(str(path), path.name).rstrip()
    return "\n".join([*lines, what])


if __name__ == "__main__":
    main()
