"""The learner's directory of exercises: laid out once, edited by the learner, checked as it stands.

Nothing is stored about progress: the state of an exercise is what a check of its file finds.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import select
import stat
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, get_args

from exercises.catalogue import EXERCISES
from exercises.checker import State, Verdict
from exercises.exercise import Exercise
from exercises.supervisor import GRACE
from scratchformer.cli import main
from scratchformer.config import nearest
from scratchformer.errors import UserError
from scratchformer.files import make_directory, replace_text, user_error

STUBS = Path(__file__).with_name("stubs")
SUPERVISOR = Path(__file__).with_name("supervisor.py")

SECONDS = 10.0
"""A check takes less than two; whatever takes this long does not end."""

LARGEST = 10**6
"""Bytes. A larger file is no exercise."""

MAIN = '`if __name__ == "__main__":`'
"""The line of a stub without which each check would begin another."""

INSIDE = "SCRATCHFORMER_CHECK"
"""The environment variable that tells the learner's code, and all that it starts, that it is being checked."""

ENVIRONMENT = {INSIDE: "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
               "PYTHONIOENCODING": "utf-8:backslashreplace"}
"""Of a check. Each thread of a matrix library would take memory. Anything can be printed, and is shown at once."""

START = """\
import sys
sys.path = [folder for folder in sys.path if folder] + sys.argv[1:4]
from exercises.runner import main
main(*sys.argv[4:])
"""
"""The program that checks a file. The current directory is not searched for modules, so that a random.py in it does not
stand in for the real one; those of scratchformer, of the lessons and of the file are, after all others."""


def stub(exercise: Exercise) -> str:
    """What the learner starts from."""
    return (STUBS / f"{exercise.id}.py").read_text("utf-8")


def file_of(exercise: Exercise, directory: Path) -> Path:
    return directory / f"{exercise.id}.py"


# Finding --------------------------------------------------------------------------------------------------------------


def usual_directory() -> Path:
    """Where the exercises are if nobody says: exercises/, or the current directory if it is the one that holds them."""
    inside = any(file_of(exercise, Path()).is_file() for exercise in EXERCISES.values())
    return Path() if inside and not Path("exercises").is_dir() else Path("exercises")


def named(name: str) -> list[Exercise]:
    """An exercise by its id or its file, or those of a lesson by its number, 1 or 01. Raises UserError for none."""
    stem = Path(name).stem if name.endswith(".py") else name
    lesson = stem.zfill(2)
    found = [exercise for exercise in EXERCISES.values() if stem == exercise.id or lesson == exercise.lesson]
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
        if not os.path.exists(name):  # Path.exists raises for a name that is too long, before Python 3.14
            raise UserError(f"{name}: no such file")
        return {one_named(name): Path(name)}
    if name and Path(name).is_dir():
        raise UserError(f"{name}: a directory; scratchformer learn check --dir {name} checks the exercises in it")
    exercises = list(EXERCISES.values()) if name is None else named(name)
    require_directory(directory)
    return {exercise: file_of(exercise, directory) for exercise in exercises}


def require_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; scratchformer learn start {directory} lays the exercises out")


# Laying out -----------------------------------------------------------------------------------------------------------


def start(directory: Path) -> list[str]:
    """Write the stubs that are missing, in the place of empty files, too. -> what was done, line by line

    Raises UserError if the directory or a stub cannot be written.
    """
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: a file, and should be a directory")
    make_directory(directory)
    done = []
    for exercise in EXERCISES.values():
        path = file_of(exercise, directory)
        if not os.path.lexists(path) or is_empty(path):
            done.append(f"{path}: {exercise.title}" + (" (the file was empty)" if path.exists() else ""))
            replace_text(path, stub(exercise))
    kept = len(EXERCISES) - len(done)
    return [*done,
            f"{directory}: {len(done)} new exercises" + (f"; {kept} were there and are as they were" if kept else "")]


def reset(exercise: Exercise, directory: Path) -> str:
    """Put the stub back and keep the learner's file as NN_slug.py.bak, .bak2, .bak3 ... -> what was done

    Raises UserError if what is there is no file, or if the stub cannot be written; then the file stays as it was.
    """
    require_directory(directory)
    path = file_of(exercise, directory)
    if not os.path.lexists(path) or is_empty(path):
        replace_text(path, stub(exercise))
        return f"{path}: new"
    if path.exists() and is_untouched(exercise, read(path)):
        return f"{path}: as it was at the beginning already"
    kept = next(backup for backup in backups(path) if not os.path.lexists(backup))
    with user_error(path, f"cannot be renamed to {kept.name}"):
        path.rename(kept)
    try:
        replace_text(path, stub(exercise))
    except BaseException:
        kept.rename(path)
        raise
    return f"{path}: as it was at the beginning; what you had written is in {kept}"


def backups(path: Path) -> Iterator[Path]:
    """Where what was written may be kept, one place after the other."""
    return (path.with_name(f"{path.name}.bak{number}") for number in itertools.chain([""], itertools.count(2)))


def is_empty(path: Path) -> bool:
    """Whether it is a file of no bytes, as a full disk may leave it, and no link to one."""
    with user_error(path, "cannot read"):
        status = path.lstat()
    return stat.S_ISREG(status.st_mode) and not status.st_size


def read(path: Path) -> bytes:
    """The learner's file. Raises UserError if it cannot be read or is no exercise, as a pipe or a large file."""
    with user_error(path, "cannot read"):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UserError(f"{path}: {'a directory' if stat.S_ISDIR(mode) else 'no plain file'}, and should be a file")
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise UserError(f"{path}: larger than {LARGEST // 10**6} MB, and should be an exercise")
    return text


def is_untouched(exercise: Exercise, text: bytes) -> bool:
    return text.replace(b"\r\n", b"\n") == stub(exercise).encode()


# Checking -------------------------------------------------------------------------------------------------------------


def verdict_on(exercise: Exercise, path: Path, seconds: float = SECONDS) -> Verdict:
    with checking(exercise, path, seconds=seconds) as verdict:
        return verdict()


@contextmanager
def checking(exercise: Exercise, path: Path, quiet: bool = False, seconds: float = SECONDS,
             ) -> Iterator[Callable[[], Verdict]]:
    """Inside, a file is being checked in another process, and the function waits for the verdict; afterwards nothing is
    left of it. What the learner's code prints is shown, unless `quiet`.
    """
    if INSIDE in os.environ:
        raise RuntimeError(f"a check within a check: keep the line {MAIN}, and what stands below it indented")
    known = verdict_unchecked(exercise, path)
    if known:
        yield lambda: known
        return
    supervisor, answer = begin(exercise, path, quiet, seconds)
    try:
        yield lambda: outcome(answer, seconds)
    finally:
        answer.close()
        end(supervisor)


def verdict_unchecked(exercise: Exercise, path: Path) -> Verdict | None:
    """On what need not run to be judged."""
    if not path.exists() or is_empty(path):
        return Verdict("not yet", f"{path}: {'an empty' if path.exists() else 'no such'} file; "
                                  f"scratchformer learn reset {exercise.id} --dir {path.parent} writes it anew")
    try:
        text = read(path)
    except UserError as error:
        return Verdict("not yet", str(error))
    return Verdict("not written", "not written yet") if is_untouched(exercise, text) else None


def begin(exercise: Exercise, path: Path, quiet: bool, seconds: float) -> tuple[subprocess.Popen, BinaryIO]:
    """-> the supervisor, which works as long as its standard input is open, and the pipe for its answer

    It leads a session of its own: Ctrl-C is for us.
    """
    path = path.absolute()
    lessons = Path(__file__).parents[1]
    answer, answer_of_supervisor = os.pipe()
    print(end="", flush=True)
    try:
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, str(seconds), str(answer_of_supervisor),
             sys.executable, "-c", START, lessons.parent, lessons, path.parent, exercise.id, path],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if quiet or sys.stdout is None else None,
            pass_fds=[answer_of_supervisor], env={**os.environ, **ENVIRONMENT}, start_new_session=True)
    finally:
        os.close(answer_of_supervisor)
    return supervisor, open(answer, "rb")


def outcome(answer: BinaryIO, seconds: float) -> Verdict:
    """What the supervisor answers. The learner's code may have written to the pipe, too, or have killed it."""
    text = answer.read() if select.select([answer], [], [], seconds + 2 * GRACE)[0] else b""
    try:
        state, message, diagnosis = map(str, json.loads(text))
        if state in get_args(State):
            return Verdict(state, message, diagnosis)                              # type: ignore[arg-type]
    except (ValueError, TypeError):
        pass
    return Verdict("not yet", "the check was disturbed: does your code end other processes, or write to files that it "
                              "did not open?")


def end(supervisor: subprocess.Popen) -> None:
    """The supervisor, which ends all that the check has started."""
    assert supervisor.stdin
    supervisor.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        supervisor.wait(2 * GRACE)
    supervisor.kill()                                                              # should the code have stopped it
    supervisor.wait()


def states(directory: Path) -> Iterator[tuple[Exercise, State]]:
    """How far the learner is with every exercise, in order; as many are checked at once as there are processors."""
    require_directory(directory)
    with ExitStack() as stack:
        verdicts = (stack.enter_context(checking(exercise, file_of(exercise, directory), quiet=True))
                    for exercise in EXERCISES.values())
        begun = deque(itertools.islice(verdicts, os.cpu_count()))
        for exercise in EXERCISES.values():
            yield exercise, begun.popleft()().state
            begun.extend(itertools.islice(verdicts, 1))


def check_files(files: dict[Exercise, Path]) -> bool:
    """Check and print, one after the other. -> whether all have passed"""
    verdicts = []
    for exercise, path in files.items():
        verdicts.append(verdict_on(exercise, path))
        print(as_text(exercise, verdicts[-1]), flush=True)
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
    """What an exercise that is run as a script does: check itself as the command does. -> exit code"""
    return main(["learn", "check", path])


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
    file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    package = Path(__file__).parents[2]
    return f"{file.relative_to(package)}, line {inspect.getsourcelines(function)[1]}: {function.__qualname__}"
