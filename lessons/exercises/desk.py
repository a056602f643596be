"""The learner's directory: written once, edited by her, run as it stands.

Nothing is stored about progress: the state of a function is what a check of it finds. Only what the last training gave
is kept beside her file, in training.json.
"""

from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from exercises.catalogue import FILES, FUNCTIONS
from exercises.hunts import HUNTS, text_of
from exercises.source import LESSONS, Hers, functions_of_ours, source_of_ours, text_of_ours
from exercises.supervisor import GRACE
from scratchformer.config import nearest
from scratchformer.errors import UserError
from scratchformer.files import make_directory, replace_text, user_error

USUAL = "my_transformer"
SUPERVISOR = Path(__file__).with_name("supervisor.py")

SECONDS = 10.0
"""A check takes less than one; whatever takes this long does not end."""

LONG = 7200.0
"""Of a training."""

LARGEST = 10**6
"""Bytes. A larger file is none that was written by hand."""

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
               "PYTHONIOENCODING": "utf-8:backslashreplace"}  # fmt: skip
"""Each thread of a matrix library would take memory. Anything can be printed, and is shown at once."""

START = """\
import sys
sys.path = [folder for folder in sys.path if folder] + sys.argv[1:4]
from exercises.runner import main
main(*sys.argv[3:])
"""
"""The program that runs the learner's code. The folders of scratchformer, the lessons and the learner are searched for
modules after all others, so that a random.py of hers does not stand in for the real one."""

HEADER = {
    "transformer": '''"""My Transformer: "Attention Is All You Need" (Vaswani et al. 2017) on NumPy arrays.

Replace each `...` by code. What is not written yet is taken from the file of the course, so that
this one trains and translates from the first day.

    scratchformer learn                    what is next
    scratchformer learn check attention    what is wrong with a function, and why
    scratchformer learn hint attention     help; learn show attention: the course's own
    scratchformer learn train              then: scratchformer learn translate "The dog ate the apple."

''',
    "more": '''"""What came before and after the Transformer, to be written as transformer.py is.

    scratchformer learn check bleu

''',
}
"""Beginnings of the learner's files, up to a sentence that ours have, too."""


# Finding --------------------------------------------------------------------------------------------------------------


def find(directory: Path | None) -> Path:
    """The learner's directory: the one given, or this one or one above it, or my_transformer in one of them."""
    if directory is not None:
        if not is_desk(directory):
            raise UserError(f"{directory}: no transformer.py in it; scratchformer learn start {directory} writes it")
        return directory.absolute()
    here = Path.cwd()
    for folder in (here, *here.parents):
        for found in (folder, folder / USUAL):
            if is_desk(found):
                return found
    raise UserError(f"learn: no transformer.py of yours here; scratchformer learn start writes {USUAL}/transformer.py")


def is_desk(directory: Path) -> bool:
    return (directory / "transformer.py").exists() and directory.absolute() != LESSONS


def named(name: str) -> list[str]:
    """Find what a name means: a function or hunt, also by its file, or a lesson's number, 4 or 04. Raises UserError."""
    stem = Path(name).stem if name.endswith(".py") else name
    if stem in FUNCTIONS or stem in HUNTS:
        return [stem]
    if stem in FILES:
        return FILES[stem]
    lesson = stem.zfill(2)
    lessons = {name: one.lesson for name, one in FUNCTIONS.items()} | {name: one.lesson for name, one in HUNTS.items()}
    found = [each for each, its in lessons.items() if its == lesson]
    if not found:
        known = [*FUNCTIONS, *HUNTS]
        raise UserError(f"no function or hunt {stem!r}{nearest(stem, known)}; scratchformer learn lists them")
    return found


# Writing --------------------------------------------------------------------------------------------------------------


def stub(file: str) -> str:
    """A file of the course with its functions emptied."""
    text, lines = text_of_ours(file), text_of_ours(file).splitlines()
    for name, node in reversed(functions_of_ours(file).items()):
        if name in FILES[file]:
            lines[node.lineno - 1 : node.end_lineno] = emptied(name).splitlines()
    text = "\n".join(lines) + "\n"
    start = text.index('"""\n')
    after = text.find("\nEvery gradient is written by hand.", 0, start)
    text = HEADER[file] + text[(after + 1 if after >= 0 else start) :]
    corpus = 'Path(__file__).parent.parent / "data" / "tiny"'
    return text.replace(corpus, f"Path({str(LESSONS.parent / 'data' / 'tiny')!r})")


def emptied(name: str) -> str:
    """Signature and docstring of a function, comments with its shapes, and `...`"""
    function = FUNCTIONS[name]
    node = functions_of_ours(function.file)[name]
    lines = text_of_ours(function.file).splitlines()
    shapes = ", ".join(f"{one} ({', '.join(axes)})" for one, axes in function.shapes.items())
    comments = textwrap.wrap("; ".join(filter(None, (shapes, function.note))), 94)
    kept = lines[node.lineno - 1 : node.body[0].end_lineno]
    return "\n".join([*kept, *(f"    # {line}" for line in comments), "    ..."])


def start(directory: Path) -> list[str]:
    """Write the files that are missing, and add the functions that are missing in those that are there -> what was done

    Raises UserError if something cannot be written.
    """
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: a file, and should be a directory")
    if directory.absolute() == LESSONS:
        raise UserError(f"{directory}: the course's own files are there; choose another directory")
    make_directory(directory / "hunts")
    done = []
    for file, names in FILES.items():
        path = directory / f"{file}.py"
        if is_new(path):
            replace_text(path, stub(file))
            lessons = sorted({FUNCTIONS[name].lesson for name in names})
            done.append(f"{path}: {len(names)} functions to write, of lessons {', '.join(lessons)}")
        else:
            done.append(completed(path, names))
    new = [hunt for hunt in HUNTS if is_new(directory / "hunts" / f"{hunt}.py")]
    for hunt in new:
        replace_text(directory / "hunts" / f"{hunt}.py", text_of(hunt))
    done.append(f"{directory / 'hunts'}: {len(new)} new bug hunts and puzzles, for when you like")
    return done


def is_new(path: Path) -> bool:
    """Tell whether nothing is there, or a file of no bytes, as a full disk may leave it."""
    if not os.path.lexists(path):
        return True
    with user_error(path, "cannot read"):
        status = path.lstat()
    return stat.S_ISREG(status.st_mode) and not status.st_size


def completed(path: Path, names: list[str]) -> str:
    """Add functions that are missing, before the lines that run the file, and leave the rest -> what was done"""
    text, hers = read(path), parsed(path, names)
    if not hers.missing:
        return f"{path}: kept as it is"
    lines = text.splitlines(keepends=True)
    last = next((n for n, line in enumerate(lines) if line.startswith("if __name__")), len(lines))
    added = [f"{decorators(name)}{emptied(name)}\n\n\n" for name in hers.missing]
    before = "".join(lines[:last]).rstrip("\n") + "\n\n\n"
    replace_text(path, before + "".join([*added, *lines[last:]]).rstrip("\n") + "\n")
    return f"{path}: kept, and added {', '.join(hers.missing)}"


def decorators(name: str) -> str:
    return "@differentiable\n" if source_of_ours(FUNCTIONS[name].file, name).startswith("@") else ""


def read(path: Path) -> str:
    """Read the learner's file. Raises UserError for what is not a text file, as a pipe, or too large."""
    with user_error(path, "cannot read"):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UserError(f"{path}: {'a directory' if stat.S_ISDIR(mode) else 'no plain file'}, and should be a file")
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path}: larger than {LARGEST // 10**6} MB, and should be a file of yours")
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path}: no UTF-8 text") from None


def parsed(path: Path, names: Iterable[str]) -> Hers:
    """Parse a file. Raises UserError for what is not Python."""
    read(path)
    try:
        return Hers(path, names)
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.msg}; mend it first") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: {error or 'too deeply nested'}; mend it first") from None


# What is written ------------------------------------------------------------------------------------------------------


def begun(directory: Path) -> list[str]:
    """The functions that have been written in some way, and the hunts that are not as they were, in order."""
    written = [
        name
        for file, names in FILES.items()
        if (directory / f"{file}.py").exists()
        for name in parsed(directory / f"{file}.py", names).written
    ]
    hunts = [hunt for hunt in HUNTS if is_touched(directory / "hunts" / f"{hunt}.py", hunt)]
    return [*(name for name in FUNCTIONS if name in written), *hunts]


def is_touched(path: Path, hunt: str) -> bool:
    return path.exists() and not is_new(path) and read(path) != text_of(hunt)


# Running --------------------------------------------------------------------------------------------------------------

Answer = tuple[str, str, Any]
"""A state, a message, a diagnosis or data."""


def check(names: list[str], directory: Path, quiet: bool = False) -> Iterator[tuple[str, Answer]]:
    """Check functions and hunts -> name and verdict of each. One that has to be stopped does not stop the others."""
    rest = list(names)
    while rest:
        with running(directory, SECONDS, len(rest), "check", *rest, quiet=quiet) as answers:
            for state, message, data in answers:
                yield rest.pop(0), ("not yet" if state == "stopped" else state, message, data)
                if state == "stopped" or not rest:
                    break


def act(directory: Path, action: str, *arguments: str) -> Answer:
    """Train, translate or finish."""
    with running(directory, LONG, 1, action, *arguments) as answers:
        return next(answers)


@contextmanager
def running(
    directory: Path, seconds: float, count: int, action: str, *arguments: str, quiet: bool = False
) -> Iterator[Iterator[Answer]]:
    """Run an action in another process, whose answers come inside the block; afterwards nothing is left of it.

    What the learner's code prints is shown, unless `quiet`. Raises UserError if a file of hers is not Python.
    """
    for file, names in FILES.items():
        if (directory / f"{file}.py").exists():
            parsed(directory / f"{file}.py", names)
    supervisor, pipe = begin(directory, seconds, count, [action, *arguments], quiet)
    try:
        yield answers(pipe, seconds)
    finally:
        pipe.close()
        end(supervisor)


def begin(
    directory: Path, seconds: float, count: int, command: list[str], quiet: bool
) -> tuple[subprocess.Popen, BinaryIO]:
    """-> the supervisor, which works as long as its standard input is open, and the pipe for its answers

    It leads a session of its own: Ctrl-C is for us.
    """
    answer, answer_of_supervisor = os.pipe()
    print(end="", flush=True)
    program = [sys.executable, "-c", START, *map(str, (LESSONS.parent, LESSONS, directory))]
    try:
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), str(seconds), str(count), str(answer_of_supervisor), *program]
            + command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if quiet or sys.stdout is None else None,
            pass_fds=[answer_of_supervisor],
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
    finally:
        os.close(answer_of_supervisor)
    return supervisor, open(answer, "rb", buffering=0)


def answers(pipe: BinaryIO, seconds: float) -> Iterator[Answer]:
    """Read what the supervisor answers, line by line. The learner's code may have written to the pipe, or killed it."""
    text = b""
    while True:
        line, newline, rest = text.partition(b"\n")
        if newline:
            text = rest
            try:
                state, message, data = json.loads(line)
                yield str(state), str(message), data
                continue
            except (ValueError, TypeError):
                break
        more = pipe.read(2**16) if select.select([pipe], [], [], seconds + 2 * GRACE)[0] else b""
        if not more:
            break
        text += more
    yield (
        "stopped",
        "the check was disturbed: does your code end other processes, or write to files that it did not open?",
        "",
    )


def end(supervisor: subprocess.Popen) -> None:
    """The supervisor, which ends all that the check has started."""
    assert supervisor.stdin
    supervisor.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        supervisor.wait(2 * GRACE)
    supervisor.kill()  # should the code have stopped it
    supervisor.wait()
