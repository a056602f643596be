"""Build the pages of the lessons and of their lab notes.

    python tools/lessons.py               run lessons/NN_*.py and lessons/lab/NN_*.py; write docs/lessons/
    python tools/lessons.py --only 05     the same for some lessons and their lab notes; other pages stay

If a lesson does not run through, the exit status is 2 and no page is written.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from lesson_run import Cell, Item, LessonError, cells_of, in_project, is_lab

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "lessons"))

from exercises.catalogue import FUNCTIONS  # noqa: E402
from exercises.hunts import HUNTS  # noqa: E402
from support.lesson import YOURS_DIFFERS  # noqa: E402

SECONDS = 300
"""A lesson that runs longer hangs."""

Outputs = list[list[Item]]
"""The outputs of each cell."""

# Sources --------------------------------------------------------------------------------------------------------------

COLUMNS = 88
"""A longer line of code has to be scrolled on a page."""

QUESTION = 100
"""Characters of the question in the header."""

HEADER = re.compile(
    r"# (?P<title>(?P<number>\d\d) · .+)\n\n"
    r"\*\*(?P<question>.+\?)\*\*\n\n"
    r"\*(?P<needs>Needs (?:.|\n(?!\n))+)\*(?:\n\n|\Z)"
)


def lessons_of(root: Path, only: Sequence[str] = ()) -> list[Path]:
    """The lessons, or those with the numbers in `only`, in order."""
    return [path for path in sorted((root / "lessons").glob("[0-9][0-9]_*.py")) if not only or path.name[:2] in only]


def lab_of(lesson: Path) -> Path:
    """The path of a lesson's lab notes, which may not exist."""
    return lesson.parent / "lab" / lesson.name


def labs_of(root: Path) -> list[Path]:
    """The lab notes, in order."""
    labs = sorted((root / "lessons" / "lab").glob("[0-9][0-9]_*.py"))
    for path in labs:
        if not (path.parents[1] / path.name).exists():
            raise LessonError(path, 1, f"there is no lesson lessons/{path.name}")
    return labs


def require_shape(path: Path) -> None:
    """Refuse a header, code or <details> that differ from those of every page."""
    cells = cells_of(path)
    if not is_lab(path):
        header(path)
    for cell in cells:
        for line, text in enumerate(cell.source.splitlines(), cell.line):
            if not cell.is_prose and len(text) > COLUMNS:
                raise LessonError(path, line, f"{len(text)} columns of code, and a page shows {COLUMNS}")
    text = "\n".join(cell.source for cell in cells if cell.is_prose)
    if text.count("<details>") != text.count("</details>"):
        raise LessonError(path, cells[-1].line, "a <details> or a </details> too many")


def header(path: Path) -> re.Match[str]:
    """The title, the question and what is needed, from a lesson's first cell."""
    cells = cells_of(path)
    found = HEADER.match(cells[0].source)
    if not found or found["number"] != path.name[:2] or len(found["question"]) > QUESTION:
        raise LessonError(
            path,
            cells[0].line,
            f"a lesson begins with a cell of prose: '# {path.name[:2]} · Title', then '**One question, in one line of"
            f" at most {QUESTION} characters?**', then '*Needs ... · you will ...*', with empty lines between them",
        )
    return found


# Running --------------------------------------------------------------------------------------------------------------


def run_lesson(path: Path, folder: Path) -> Outputs:
    """Run a lesson in full, in a process of its own, on one thread -> its outputs; the figures go into the folder."""
    folder.mkdir(parents=True)
    environment = os.environ | {"MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("SCRATCHFORMER_QUICK", None)
    command = [sys.executable, "-W", "error", str(ROOT / "tools" / "lesson_run.py"), str(path), str(folder)]
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise LessonError(path, 1, f"no end after {SECONDS} s") from None
    if not (folder / "run.json").exists():
        last_words = (ended.stderr.strip() or "no message").splitlines()[-1]
        raise LessonError(path, 1, f"the process ended with status {ended.returncode}: {last_words}")
    result = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if "message" in result:
        raise LessonError(path, result["line"], result["message"])
    return result["outputs"]


# Markdown -------------------------------------------------------------------------------------------------------------

MARK = "<!-- made by `make lessons` from"
PIECE = re.compile(
    r"(?P<literal>\\\$|^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|^(?P<indent> *)\$\$(?P<display>[^$]+)\$\$ *$"
    r"|\$(?P<inline>[^\s$](?:[^$]*[^\s$])?)\$"
    r"|(?P<stray>\$)"
    r"|\]\((?P<target>[^()\s]+)\)"
    r"|\n*(?P<details>(?:<details>\s*)?<summary>(?P<summary>.*?)</summary>|</details>)\n*",
    re.MULTILINE | re.DOTALL,
)
"""Parts that docs/lessons/ writes differently, and code, which stays as it is."""


def prose(path: Path, cell: Cell) -> str:
    """A cell's Markdown for its page in docs/lessons/."""

    def translate(piece: re.Match[str]) -> str:
        try:
            return translated(piece, posixpath.dirname(in_project(path)))
        except ValueError as error:
            line = cell.line + cell.source.count("\n", 0, piece.end() - len(piece[0].lstrip("\n")))
            raise LessonError(path, line, f"{piece[0].strip()}: {error}") from None

    return PIECE.sub(translate, cell.source).strip()


def translated(piece: re.Match[str], folder: str) -> str:
    """Maths goes between dollar and backtick or into ```math, where GitHub leaves `_`, `*`, `<` and backslashes alone.
    Links lead from the page. Blank lines stand where Markdown inside <details> needs them.
    """
    if piece["display"]:
        require_maths(piece["display"])
        lines = ["```math", *piece["display"].strip().splitlines(), "```"]
        return "\n".join(piece["indent"] + line.strip() for line in lines)
    if piece["inline"]:
        latex = " ".join(piece["inline"].split())
        require_maths(latex)
        line_start = piece.string.rfind("\n", 0, piece.start()) + 1
        if "|" in latex and piece.string[line_start] == "|":
            raise ValueError("in a table, | ends a cell; \\vert")
        return f"$`{latex}`$"
    if piece["stray"]:
        raise ValueError("no maths begins or ends here; $$ stands on a line of its own, and a price has \\$")
    if piece["target"]:
        return f"]({target_from_page(piece['target'], folder)})"
    if piece["details"]:
        if set(piece["summary"] or "") & set("$`*_"):
            raise ValueError("a <summary> is plain text")
        return f"\n\n{piece['details']}\n\n"
    return piece[0]


REFUSED = re.compile(
    r"\\(?:operatorname|mbox|phantom|bm|tag|def|newcommand)(?![A-Za-z])|\\begin\{align\*?\}|\\\\\[|\\mathbb\{1\}"
)
r"""LaTeX that GitHub or the site cannot show. They know \mathrm, \text, \boldsymbol, \mathbf{1} and aligned."""


def require_maths(latex: str) -> None:
    """Refuse a formula that GitHub or the site would show wrongly."""
    if found := REFUSED.search(latex):
        raise ValueError(f"GitHub or the site cannot show {found[0]}")
    if latex.replace(r"\{", "").count("{") != latex.replace(r"\}", "").count("}"):
        raise ValueError("a brace too many or too few")
    if len(re.findall(r"\\left(?![a-z])", latex)) != len(re.findall(r"\\right(?![a-z])", latex)):
        raise ValueError(r"\left and \right go together")
    if "&" in latex.replace(r"\&", "") and r"\begin{" not in latex:
        raise ValueError("an & outside of aligned, cases and matrices")


def target_from_page(target: str, folder: str = "lessons") -> str:
    """Turn a link of a source in lessons/ or lessons/lab/ into the link of its page."""
    if re.match(r"[a-z]+:|#", target):
        return target
    file, hash_sign, anchor = target.partition("#")
    path = posixpath.normpath(f"{folder}/{file}")
    if re.fullmatch(r"lessons/(lab/)?\d\d_\w+\.py", path):
        path = f"docs/{path.removesuffix('.py')}.md"
    return posixpath.relpath(path, f"docs/{folder}") + hash_sign + anchor


def page(path: Path, outputs: Outputs) -> str:
    """The page of a lesson, or of lab notes, that has run: docs/lessons/NN_slug.md."""
    parts = []
    numbers = count(1)
    for cell, items in zip(cells_of(path), outputs):
        parts.append(prose(path, cell) if cell.is_prose else code(cell))
        parts += [shown(path, cell, item, numbers) for item in items]
    parts = [part for part in parts if part]
    if is_lab(path):
        return assembled(path, parts)
    number = path.name[:2]
    note = f"This page was made by running [{path.name}](../../lessons/{path.name}). The code of its drawings is there."
    if any("measured" in item for items in outputs for item in items):
        note += f" ✓ marks a number that was checked; [lab notes {number}](lab/{path.stem}.md) say within which limits."
    parts.append(f"*{note}*")
    parts[0] = parts[0].replace("\n\n*Needs ", f"\n\n*{about(number, parts)} · Needs ", 1)
    return assembled(path, parts)


def assembled(path: Path, parts: Iterable[str]) -> str:
    return "\n\n".join([f"{MARK} {in_project(path)}: change that file, not this one -->", *parts]) + "\n"


def lab_page(lesson: Path, lab_outputs: Outputs | None, outputs: Outputs) -> str:
    """The page of a lesson's lab notes, if it has any, and the bands of its numbers: docs/lessons/lab/NN_slug.md."""
    measurements = [row for items in outputs for item in items for row in item.get("measured", [])]
    text = "The page has no measured numbers."
    if measurements:
        text = "When the page is built, each number is computed again. Outside its band the lesson ends with an error."
        text += "\n\n" + measured_table(measurements, with_bands=True)
    bands = f"## Numbers of the page and their bands\n\n{text}"
    if lab_outputs is not None:
        return f"{page(lab_of(lesson), lab_outputs)}\n{bands}\n"
    title, number = header(lesson)["title"], lesson.name[:2]
    title = prose(lesson, Cell(True, f"# Lab notes {title}", 1))
    return assembled(lesson, [title, f"What [lesson {number}](../{lesson.stem}.md) has measured.", bands])


def shown(path: Path, cell: Cell, item: Item, numbers: Iterator[int]) -> str:
    """One output of a cell as Markdown."""
    if str(ROOT) in json.dumps(item, ensure_ascii=False):
        raise LessonError(path, cell.line, f"the output names a directory of this machine, {ROOT}")
    if "text" in item:
        return fenced("text", item["text"])
    if "measured" in item:
        return measured_table(item["measured"], with_bands=is_lab(path))
    if "code" in item:
        return fold(item["title"], item["code"])
    if "rows" in item:
        return f"{TABLE}\n\n{table(item['columns'], item['rows'])}"
    caption = prose(path, Cell(True, item["caption"], cell.line))
    folder = "../figures" if is_lab(path) else "figures"
    return f"{image(item['figure'], item['alt'], folder)}\n\n**Figure {next(numbers)}.** {caption}"


MEASURED, TABLE = "<!-- measured -->", "<!-- table -->"
"""Marks of tables that a lesson has put out; a test ignores the values of a measured one."""


def measured_table(measurements: Iterable[Sequence[str]], with_bands: bool) -> str:
    rows = [
        [name, value, band if with_bands else "yours differs" if band == YOURS_DIFFERS else "✓"]
        for name, value, band in measurements
    ]
    return f"{MEASURED}\n\n{table(['measured', 'value', 'band' if with_bands else ''], rows, right={1})}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: set[int] | None = None) -> str:
    """A table of Markdown; the columns `right`, or else those with nothing but numbers, are aligned on the right."""
    if right is None:
        right = {i for i in range(len(columns)) if all(is_number(row[i]) for row in rows)}
    line = ["--:" if i in right else "---" for i in range(len(columns))]
    cells = [map(escaped, columns), line, *(map(escaped, row) for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def is_number(cell: str) -> bool:
    return re.fullmatch(rf"[-+−±]?\s?{NUMBER.pattern}(\s?(%|×|s|ms))?|[-–—]?", cell.strip()) is not None


def escaped(text: str) -> str:
    """Plain text as Markdown, also in a cell of a table."""
    return re.sub(r"([]\\$&*<>[_`|~])", r"\\\1", " ".join(text.split()))


def code(cell: Cell) -> str:
    """A code cell: shown, folded away if it has a title, or left out if it only quotes or its title says it draws."""
    if re.search(r"\bdrawings?\b", cell.title, re.IGNORECASE) or re.fullmatch(r"quote\([^()]*\)", cell.source):
        return ""
    return fold(cell.title, cell.source) if cell.title else fenced("python", cell.source)


def fold(title: str, source: str) -> str:
    return f"<details><summary>Code: {title}</summary>\n\n{fenced('python', source)}\n\n</details>"


def fenced(language: str, text: str) -> str:
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text}\n{fence}"


def image(name: str, alt: str, folder: str = "figures") -> str:
    return f"![{escaped(alt)}]({folder}/{name}.svg)"


# Minutes --------------------------------------------------------------------------------------------------------------

WORDS_A_MINUTE = 85
"""Of a careful reader whose third language is English."""

SECONDS_OF = {"code": 6, "folded code": 1.5, "output": 2.5, "formula": 30, "figure": 60}
"""For a line of code that is shown or folded away, a line of output or of a table, a displayed formula, a figure.

With these, the pages are given 31 minutes on average; their last readers say that they took 36
(docs/lessons/readers.md).
"""

MINUTES_OF_YOURS = 10
"""To write a function, or to solve a hunt."""


def about(number: str, parts: Sequence[str]) -> str:
    """About 24 minutes, and 30 for 2 functions and 1 hunt."""
    minutes = max(1, round(reading_seconds(parts) / 60))
    functions, hunts = (sum(each.lesson == number for each in some.values()) for some in (FUNCTIONS, HUNTS))
    yours = " and ".join(counted(n, noun) for n, noun in ((functions, "function"), (hunts, "hunt")) if n)
    also = f", and {MINUTES_OF_YOURS * (functions + hunts)} for {yours}" if yours else ""
    return f"About {counted(minutes, 'minute')}{also}"


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n > 1)}"


def reading_seconds(parts: Iterable[str]) -> float:
    """Seconds to read a page once, with its folded parts, without what is yours to write."""
    seconds, words, block = 0.0, 0, ""
    folded = False
    for line in "\n\n".join(parts).splitlines():
        fence = re.match(r" *`{3,}(\w*)", line)
        if fence:
            kinds = {"python": "folded code" if folded else "code", "math": "math"}
            block = "" if block else kinds.get(fence[1], "output")
            seconds += SECONDS_OF["formula"] * (block == "math")
        elif block:
            seconds += SECONDS_OF.get(block, 0) * bool(line.strip())
        elif line.startswith("|"):
            seconds += SECONDS_OF["output"] * ("--" not in line)
        elif line.startswith("!["):
            seconds += SECONDS_OF["figure"]
        else:
            folded = line.startswith("<details><summary>Code: ") or folded and line != "</details>"
            words += len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)|<[^>]*>", " ", line)))
    return seconds + 60 * words / WORDS_A_MINUTE


# The index ------------------------------------------------------------------------------------------------------------

PARTS = {
    0: "I · The whole game",
    2: "II · Why attention",
    8: "III · The rest of the block",
    14: "IV · Learning",
    22: "V · After the paper",
}
"""The number of its first lesson -> the name of a part."""

PAGE_HEADER = re.compile(
    r"^# (?P<title>.+)\n\n"
    r"\*\*(?P<question>.+\?)\*\*\n\n"
    r"\*About (?P<reading>\d+) minutes?(?:, and (?P<yours>\d+) for)?(?P<needs>(?:.|\n(?!\n))+)",
    re.MULTILINE,
)


def index(pages: dict[str, str]) -> str:
    """The table of contents, docs/lessons/README.md, of the pages: name -> text."""
    parts = [
        f"{MARK} lessons/*.py: change those files, not this one -->",
        "# The lessons",
        "`scratchformer learn start` makes the files that you write, [function by function]"
        "(../using.md#lessons-and-a-transformer-of-your-own): `transformer.py`, and `more.py` from lesson 17 on.\n"
        "The minutes are those of reading and of writing. Each page is made by a script, `python lessons/NN_slug.py`.\n"
        "Controls, further seeds and the band of every number are in the *lab notes*, to which each lesson links.",
    ]
    for first, names in by_part(pages).items():
        rows = [index_row(name, pages[name]) for name in names]
        parts += [f"## {PARTS[first]}", "\n".join(["| | lesson | minutes |", "|---|---|--:|", *rows])]
    parts.append("What readers who had not seen a page before said of it: [readers](readers.md).")
    return "\n\n".join(parts) + "\n"


def by_part(pages: Iterable[str]) -> dict[int, list[str]]:
    """The names of the pages of each part that has some, by the number of its first lesson."""
    parts: dict[int, list[str]] = {}
    for name in sorted(pages):
        parts.setdefault(max(first for first in PARTS if first <= int(name[:2])), []).append(name)
    return parts


def index_row(name: str, text: str) -> str:
    """Picture, title, question and minutes of a lesson, as they are on its page, and whether it is a side trip."""
    found = PAGE_HEADER.search(text)
    assert found, name
    figure = re.search(r"^!\[.*\]\((figures/[^)]+)\)$", text, re.MULTILINE)
    picture = f'<img src="{figure[1]}" width="160" alt=""> ' if figure else ""
    minutes = " + ".join(filter(None, [found["reading"], found["yours"]]))
    aside = " (side trip)" * ("**side trip**" in found["needs"])
    return f"| {picture}| [{found['title']}]({name}){aside}<br>{found['question']} | {minutes} |"


# Building ------------------------------------------------------------------------------------------------------------


def made(lesson: Path, folder: Path) -> dict[str, str]:
    """Run a lesson and its lab notes. -> their two pages; the figures are in the folder"""
    lab = lab_of(lesson)
    for path in [lesson, lab]:
        if path.exists():
            require_shape(path)
    outputs = run_lesson(lesson, folder / "lesson")
    lab_outputs = run_lesson(lab, folder / "lab") if lab.exists() else None
    return {f"{lesson.stem}.md": page(lesson, outputs), f"lab/{lesson.stem}.md": lab_page(lesson, lab_outputs, outputs)}


def build(root: Path, only: Sequence[str] = ()) -> None:
    """Run the lessons, two at a time, and write docs/lessons/; if a lesson fails, write nothing.

    Pages and figures that no lesson makes any more are removed.
    """
    docs, paths = root / "docs" / "lessons", lessons_of(root, only)
    labs_of(root)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        results = list(pool.map(made, paths, [Path(folder) / path.stem for path in paths]))
        pages = {name: text for result in results for name, text in result.items()}
        names = {f"{path.stem}.md" for path in lessons_of(root)}
        of_lessons = {name: text for name, text in (committed_pages(docs) | pages).items() if name in names}
        pages["README.md"] = index(of_lessons)
        figures = sorted(Path(folder).glob("*/*/*.svg"))
        for name in "figures", "lab":
            (docs / name).mkdir(parents=True, exist_ok=True)
        kept = {*(docs / name for name in pages), *(docs / "figures" / figure.name for figure in figures)}
        for kind in "[0-9][0-9]_*.md", "lab/*.md", "figures/*":
            for path in docs.glob(kind):
                if path not in kept and (not only or path.name[:2] in only):
                    path.unlink()
        for name, text in pages.items():
            (docs / name).write_text(text, encoding="utf-8")
        for figure in figures:
            shutil.copyfile(figure, docs / "figures" / figure.name)


def committed_pages(docs: Path) -> dict[str, str]:
    """The pages of the lessons in docs/lessons/: name -> text."""
    return {path.name: path.read_text(encoding="utf-8") for path in docs.glob("[0-9][0-9]_*.md")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NN", help="the numbers of some lessons")
    arguments = parser.parse_args()
    try:
        build(ROOT, arguments.only)
    except LessonError as error:
        print(f"lessons.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
