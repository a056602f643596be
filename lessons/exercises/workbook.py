"""The learner's directory of exercises: laid out once, edited by the learner, checked as it stands.

Nothing is stored about progress: the state of an exercise is what a check of its file finds.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from exercises.catalogue import EXERCISES
from exercises.checker import State, Verdict
from exercises.exercise import Exercise
from scratchformer.config import nearest
from scratchformer.errors import UserError

STUBS = Path(__file__).with_name("stubs")

SECONDS = 10.0
"""A check takes less than two; whatever takes this long does not end."""

GRACE = 5
"""So many seconds later a check ends by itself, should the command that asked have failed to end it."""

MAIN = '`if __name__ == "__main__":`'
"""The line of a stub without which each check would begin another."""

INSIDE = "SCRATCHFORMER_CHECK"
"""The environment variable that tells the learner's code, and all that it starts, that it is being checked."""

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
        if not Path(name).exists():
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
    """Put the stub back and keep the learner's file as NN_slug.py.bak, .bak2, .bak3 ... -> what was done"""
    require_directory(directory)
    path = file_of(exercise, directory)
    if not path.exists():
        path.write_text(stub(exercise), encoding="utf-8")
        return f"{path}: new"
    if path.is_dir():
        raise UserError(f"{path}: a directory, and should be a file")
    if is_untouched(exercise, path):
        return f"{path}: as it was at the beginning already"
    kept = next(backup for backup in backups(path) if not backup.exists())
    path.replace(kept)
    path.write_text(stub(exercise), encoding="utf-8")
    return f"{path}: as it was at the beginning; what you had written is in {kept}"


def backups(path: Path) -> Iterator[Path]:
    """Where what was written may be kept, one place after the other."""
    return (path.with_name(f"{path.name}.bak{number}") for number in itertools.chain([""], itertools.count(2)))


def is_untouched(exercise: Exercise, path: Path) -> bool:
    return path.read_bytes().replace(b"\r\n", b"\n") == stub(exercise).encode()


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
    with tempfile.TemporaryDirectory() as folder:
        verdict_file, deadline = Path(folder) / "verdict.json", time.monotonic() + seconds
        process = begin(exercise, path, verdict_file, quiet, seconds)
        try:
            yield lambda: outcome(process, verdict_file, deadline, seconds)
        finally:
            if process.returncode is None:
                end(process)


def verdict_unchecked(exercise: Exercise, path: Path) -> Verdict | None:
    """On what need not run to be judged."""
    if path.is_dir():
        return Verdict("not yet", f"{path}: a directory, and should be a file")
    if not path.exists():
        return Verdict("not yet", f"{path}: no such file; scratchformer learn reset {exercise.id} --dir {path.parent} "
                                  "writes it anew")
    return Verdict("not written", "not written yet") if is_untouched(exercise, path) else None


def begin(exercise: Exercise, path: Path, verdict_file: Path, quiet: bool, seconds: float) -> subprocess.Popen:
    """The process leads a group of its own: Ctrl-C is for us, and `end` reaches all that the learner's code starts."""
    path = path.absolute()
    lessons = Path(__file__).parents[1]
    output = subprocess.DEVNULL if quiet else None
    print(end="", flush=True)
    return subprocess.Popen(
        [sys.executable, "-c", START, lessons.parent, lessons, path.parent, exercise.id, path, verdict_file,
         str(os.getpid()), str(math.ceil(seconds) + GRACE)],
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, INSIDE: "1"}, start_new_session=True)


def outcome(process: subprocess.Popen, verdict_file: Path, deadline: float, seconds: float) -> Verdict:
    """Wait for the process, end it if it does not end by itself, and read what it has found."""
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        end(process)
    if verdict_file.exists():
        return Verdict(*json.loads(verdict_file.read_text(encoding="utf-8")))
    if code is None:
        return Verdict("not yet", f"stopped after {seconds:g} seconds: a loop that does not end?")
    return Verdict("not yet", f"the process ended with code {code} before the check was through")


def end(process: subprocess.Popen) -> None:
    """The process, and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):                            # none of them is there any more
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
        say(as_text(exercise, verdicts[-1]))
    return all(verdict.state == "passed" for verdict in verdicts)


def say(text: str) -> None:
    """Print what may hold any character, whatever standard output can show."""
    if sys.stdout is None:  # closed
        return
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def as_text(exercise: Exercise, verdict: Verdict) -> str:
    """A verdict as the learner reads it: one line if there is nothing to mend."""
    if verdict.state == "passed":
        return f"{exercise.id}: passed. {verdict.message}"
    if verdict.state == "not written":
        return f"{exercise.id}: not written yet"
    return "\n".join([f"{exercise.id}: not yet", textwrap.indent(verdict.message, "  "),
                      f"  for help: scratchformer learn hint {exercise.id}"])


def check_file(path: str) -> int:
    """What an exercise that is run as a script does: check itself.

    -> exit code 0 passed, 1 not yet, 2 unknown name or unreadable, 130 interrupted
    """
    try:
        return 0 if check_files({one_named(Path(path).name): Path(path)}) else 1
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


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
