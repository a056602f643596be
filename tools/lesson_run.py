"""Run one lesson, or its lab notes, cell by cell, and keep what each cell prints, measures and draws.

    python -W error tools/lesson_run.py lessons/05_scaling.py FOLDER

writes FOLDER/run.json, what the cells put out or what is wrong in which line, and the figures beside it. A process of
its own, because a lesson may change whatever a process has: random states, matplotlib's settings, imported modules.
"""

from __future__ import annotations

import io
import json
import linecache
import re
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "lessons"))

import lesson_figures  # noqa: E402

from support import lesson  # noqa: E402


class LessonError(Exception):
    """A mistake in a lesson, with its line."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        self.line, self.message = line, " ".join(message.split())
        super().__init__(f"{in_project(path)}, line {line}: {self.message}")


def is_lab(path: Path) -> bool:
    """Return True for lab notes, False for a lesson."""
    return path.parent.name == "lab"


def in_project(path: Path) -> str:
    """The name of a lesson or of lab notes, from the root of the project."""
    return f"lessons/lab/{path.name}" if is_lab(path) else f"lessons/{path.name}"


class Cell(NamedTuple):
    """A part of a lesson between two marks `# %%`."""

    is_prose: bool
    source: str
    """Markdown without its comment signs, or Python."""
    line: int
    """First line in the file, counted from 1."""
    title: str = ""
    """Of code that is not what the lesson is about, reading a file, drawing a figure: a page shows it folded away."""


MARK = re.compile(r"# %%(?P<markdown> \[markdown\])?(?: (?P<title>[A-Z][^\[\]<>]*))?")


def cells_of(path: Path) -> list[Cell]:
    """The cells of a lesson, without the empty ones."""
    cells: list[tuple[re.Match[str], int, list[str]]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# %%"):
            mark = MARK.fullmatch(line)
            if not mark or (mark["markdown"] and mark["title"]):
                raise LessonError(path, number, f"a cell begins with # %%, # %% Title or # %% [markdown], not {line!r}")
            cells.append((mark, number + 1, []))
        elif cells:
            cells[-1][2].append(line)
        elif line:
            raise LessonError(path, number, "a lesson begins with the mark of a cell")
    found = []
    for mark, first, lines in cells:
        while lines and not lines[-1].strip():
            lines.pop()
        if mark["markdown"]:
            for number, line in enumerate(lines, first):
                if line != "#" and not line.startswith("# "):
                    raise LessonError(path, number, f"a line of prose begins with '# ', not like {line[:20]!r}")
            lines = [line[2:] for line in lines]
        if lines:
            found.append(Cell(bool(mark["markdown"]), "\n".join(lines), first, mark["title"] or ""))
    return found


Item = dict[str, Any]
"""One output of a cell:

{"text": lines}
{"figure": name, "alt": ..., "caption": ...}
{"measured": [[name, value, band], ...]}
{"columns": [...], "rows": [[...], ...]}
{"code": lines, "title": ...}
"""


class Output(io.StringIO):
    """Standard output of a cell that also takes figures, measurements and tables, and keeps the order of all."""

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__()
        self.path, self.folder = path, folder
        self.items: list[Item] = []

    def end_text(self) -> None:
        """Make one item of the text printed so far, without blank lines around it and spaces at the ends of lines."""
        lines = [line.rstrip() for line in self.getvalue().strip("\n").splitlines()]
        if any(lines):
            self.items.append({"text": "\n".join(lines)})
        self.seek(0)
        self.truncate()

    def display(self, figure: lesson.Picture, name: str, alt: str, caption: str) -> None:
        beginning = self.path.name[:3] + "lab_" * is_lab(self.path)
        if not name.startswith(beginning):
            raise ValueError(f"the name of figure {name} does not begin with {beginning}")
        if (self.folder / f"{name}.svg").exists():
            raise ValueError(f"there are two figures {name}")
        self.end_text()
        (self.folder / f"{name}.svg").write_text(lesson_figures.svg(figure, alt), encoding="utf-8")
        self.items.append({"figure": name, "alt": alt, "caption": caption})

    def record(self, measurement: lesson.Measurement) -> None:
        self.end_text()
        if not self.items or "measured" not in self.items[-1]:
            self.items.append({"measured": []})
        self.items[-1]["measured"].append(list(measurement))

    def tabulate(self, columns: list[str], rows: list[list[str]]) -> None:
        self.end_text()
        self.items.append({"columns": columns, "rows": rows})

    def cite(self, title: str, source: str) -> None:
        self.end_text()
        self.items.append({"code": source, "title": title})


def run(path: Path, folder: Path) -> list[list[Item]]:
    """Run the lesson as Python would run the script -> the outputs of each cell, in order."""
    module = ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"], sys.path[0], sys.argv = module, str(path.parent), [str(path)]
    outputs = []
    for cell in cells_of(path):
        output = Output(path, folder)
        if not cell.is_prose:
            lesson.display, lesson.record = output.display, output.record
            lesson.tabulate, lesson.cite = output.tabulate, output.cite
            try:
                code = compile("\n" * (cell.line - 1) + cell.source, str(path), "exec", dont_inherit=True)
                with redirect_stdout(output):
                    exec(code, module.__dict__)
            except (Exception, SystemExit) as error:
                line = line_of(error, path)
                message = str(error) or linecache.getline(str(path), line)
                raise LessonError(path, line, f"{type(error).__name__}: {message}") from error
            output.end_text()
        outputs.append(output.items)
    return outputs


def line_of(error: BaseException, path: Path) -> int:
    """The line of the lesson from which an exception came."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return lines[-1] or 1


def main() -> None:
    path, folder = map(Path, sys.argv[1:])
    result: dict[str, object]
    try:
        result = {"outputs": run(path, folder)}
    except LessonError as error:
        result = {"line": error.line, "message": error.message}
    (folder / "run.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
