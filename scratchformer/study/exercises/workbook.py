"""The learner's directory of exercises: laid out once, edited by the learner, checked as it stands.

Nothing is stored about progress: the state of an exercise is what a check of its file finds.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

from scratchformer.config import nearest
from scratchformer.errors import UserError
from scratchformer.study.exercises.catalogue import EXERCISES
from scratchformer.study.exercises.checker import State, Verdict
from scratchformer.study.exercises.exercise import Exercise

SECONDS = 10.0
"""A check takes less than two; whatever takes this long does not end."""


def stub(exercise: Exercise) -> str:
    """What the learner starts from."""
    return (resources.files("scratchformer.study.exercises") / "stubs" / f"{exercise.id}.py").read_text("utf-8")


def file_of(exercise: Exercise, directory: Path) -> Path:
    return directory / f"{exercise.id}.py"


# Finding --------------------------------------------------------------------------------------------------------------


def named(name: str) -> list[Exercise]:
    """An exercise by its id or its file, or those of a lesson by its number. Raises UserError for none."""
    stem = Path(name).stem if name.endswith(".py") else name
    found = [exercise for exercise in EXERCISES.values() if stem in (exercise.id, exercise.lesson)]
    if not found:
        raise UserError(f"no exercise {stem!r}{nearest(stem, list(EXERCISES))}; there are {', '.join(EXERCISES)}")
    return found


def one_named(name: str) -> Exercise:
    """Raises UserError unless the name means a single exercise."""
    found = named(name)
    if len(found) > 1:
        raise UserError(f"lesson {name} has several exercises: {', '.join(exercise.id for exercise in found)}")
    return found[0]


def files(name: str | None, directory: Path) -> dict[Exercise, Path]:
    """What a name means: an exercise's id or a lesson's number, in the directory; a file; None for all exercises."""
    if name is not None and name.endswith(".py"):
        if not Path(name).is_file():
            raise UserError(f"{name}: no such file")
        return {one_named(name): Path(name)}
    exercises = list(EXERCISES.values()) if name is None else named(name)
    require_directory(directory)
    return {exercise: file_of(exercise, directory) for exercise in exercises}


def require_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; scratchformer learn start {directory} lays the exercises out")


# Laying out -----------------------------------------------------------------------------------------------------------


def start(directory: Path) -> list[str]:
    """Write the stubs that are not there yet. -> what was done, line by line"""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: a file, and should be a directory")
    directory.mkdir(parents=True, exist_ok=True)
    new = [exercise for exercise in EXERCISES.values() if not file_of(exercise, directory).exists()]
    for exercise in new:
        file_of(exercise, directory).write_text(stub(exercise), encoding="utf-8")
    kept = len(EXERCISES) - len(new)
    return [*(f"{file_of(exercise, directory)}: {exercise.title}" for exercise in new),
            f"{directory}: {len(new)} new exercises" + (f"; {kept} were there and are as they were" if kept else "")]


def reset(exercise: Exercise, directory: Path) -> str:
    """Put the stub back and keep the learner's file as NN_slug.py.bak. -> what was done"""
    require_directory(directory)
    path = file_of(exercise, directory)
    if not path.exists():
        path.write_text(stub(exercise), encoding="utf-8")
        return f"{path}: new"
    if is_untouched(exercise, path):
        return f"{path}: as it was at the beginning already"
    kept = path.with_name(path.name + ".bak")
    path.replace(kept)
    path.write_text(stub(exercise), encoding="utf-8")
    return f"{path}: as it was at the beginning; what you had written is in {kept}"


def is_untouched(exercise: Exercise, path: Path) -> bool:
    return path.read_bytes().replace(b"\r\n", b"\n") == stub(exercise).encode()


# Checking -------------------------------------------------------------------------------------------------------------


def verdict_on(exercise: Exercise, path: Path, quiet: bool = False, seconds: float = SECONDS) -> Verdict:
    """Check a file in another process. What the learner's code prints is shown, unless `quiet`."""
    if not path.is_file():
        return Verdict("not yet", f"{path}: no such file; scratchformer learn reset {exercise.id} writes it anew")
    if is_untouched(exercise, path):
        return Verdict("not written", "not written yet")
    output = subprocess.DEVNULL if quiet else None
    with tempfile.TemporaryDirectory() as folder:
        verdict_file = Path(folder) / "verdict.json"
        command = [sys.executable, "-m", "scratchformer.study.exercises.runner", exercise.id, str(path.resolve()),
                   str(verdict_file)]
        print(end="", flush=True)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=seconds,
                                  start_new_session=True)                          # Ctrl-C is for us; it ends both
        except subprocess.TimeoutExpired:
            return Verdict("not yet", f"stopped after {seconds:g} seconds: a loop that does not end?")
        if not verdict_file.exists():
            return Verdict("not yet", f"the process ended with code {done.returncode} before the check was through")
        return Verdict(*json.loads(verdict_file.read_text(encoding="utf-8")))


def states(directory: Path) -> Iterator[tuple[Exercise, State]]:
    """How far the learner is with every exercise, some of them checked at the same time."""
    require_directory(directory)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = pool.map(lambda exercise: verdict_on(exercise, file_of(exercise, directory), quiet=True),
                            EXERCISES.values())
        yield from ((exercise, verdict.state) for exercise, verdict in zip(EXERCISES.values(), verdicts))


def check_files(files: dict[Exercise, Path]) -> bool:
    """Check and print, one after the other. -> whether all have passed"""
    verdicts = []
    for exercise, path in files.items():
        verdicts.append(verdict_on(exercise, path))
        print(as_text(exercise, verdicts[-1]))
    return all(verdict.state == "passed" for verdict in verdicts)


def as_text(exercise: Exercise, verdict: Verdict) -> str:
    """A verdict as the learner reads it: one line if there is nothing to mend."""
    if verdict.state == "passed":
        return f"{exercise.id}: passed. {verdict.message}"
    if verdict.state == "not written":
        return f"{exercise.id}: not written yet"
    return "\n".join([f"{exercise.id}: not yet", textwrap.indent(verdict.message, "  "),
                      f"  for help: scratchformer learn hint {exercise.id}"])


def check_file(path: str) -> int:
    """What an exercise that is run as a script does: check itself. -> exit code 0 passed, 1 not yet, 2 unknown name"""
    try:
        exercise = one_named(Path(path).name)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if check_files({exercise: Path(path)}) else 1


# Helping --------------------------------------------------------------------------------------------------------------

HINT_NAMES = ("shapes", "the rule in words", "the formula")


def hint(exercise: Exercise, number: int) -> str:
    """The hint of this number, from 1, and how to get the next."""
    text = textwrap.fill(exercise.hints[number - 1], 100, break_long_words=False, break_on_hyphens=False)
    after = (f"the next one, {HINT_NAMES[number]}: scratchformer learn hint {exercise.id} {number + 1}"
             if number < len(HINT_NAMES) else f"the answer: scratchformer learn solution {exercise.id}")
    return f"{exercise.id}, hint {number} of {len(HINT_NAMES)}, {HINT_NAMES[number - 1]}:\n{text}\n({after})"


def solution(exercise: Exercise) -> str:
    """The source of the library's functions, and of the one that maps the exercise onto them."""
    return "\n".join([f"# The answer to {exercise.id} by means of the library, which the tests check:",
                      source(exercise.solution),
                      *(source(function) for function in exercise.library if function is not exercise.solution)])


def source(function: Callable) -> str:
    return f"# {place(function)}\n{textwrap.dedent(inspect.getsource(function))}"


def place(function: Callable) -> str:
    """Where a function stands: its file in the package, the line, its name."""
    file = Path(inspect.getsourcefile(function) or "")
    package = next(parent for parent in file.parents if parent.name == "scratchformer").parent
    return f"{file.relative_to(package)}, line {inspect.getsourcelines(function)[1]}: {function.__qualname__}"
