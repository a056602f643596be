"""Build the pages of the lessons, or check that the committed ones are what the lessons say today.

    python tools/lessons.py               run lessons/NN_*.py; write docs/lessons/ for GitHub and site/ as HTML
    python tools/lessons.py --only 05     the same for some lessons; the other pages stay as they are
    python tools/lessons.py --check       run them, write nothing, print where the pages in docs/lessons/ differ

Prose and code must be equal. Of what a lesson prints, a measured number may be any in its band, which the lesson itself
checks, and other numbers may differ by 5 %, from one machine to another; times, rounding errors and whatever says that
yours may differ, by any amount. The exit status is 1 if --check found something, and 2 if a lesson did not run through:
then no page is written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

from lesson_run import Cell, LessonError, cells_of
from lesson_site import mathml, write_site

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300
"""A lesson that runs longer hangs."""

# Running --------------------------------------------------------------------------------------------------------------


def lessons_of(root: Path, only: Sequence[str] = ()) -> list[Path]:
    """The lessons, or those with the numbers in `only`, in order."""
    return [path for path in sorted((root / "lessons").glob("[0-9][0-9]_*.py")) if not only or path.name[:2] in only]


def run_lesson(path: Path, folder: Path) -> list[list[dict[str, str]]]:
    """Run a lesson in full, in a process of its own, on one thread. -> for each cell its texts and figures

    The figures are written into the folder. Raises LessonError if the lesson ends with an error, or does not end.
    """
    folder.mkdir()
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
"""What is said otherwise in docs/lessons/, and code, in which nothing is."""

BACKSLASHED = r"\\\1"


def prose(path: Path, cell: Cell) -> str:
    """A cell's Markdown for docs/lessons/.

    Raises LessonError for what GitHub or the site would show wrongly.
    """

    def translate(piece: re.Match[str]) -> str:
        try:
            return translated(piece)
        except ValueError as error:
            line = cell.line + cell.source.count("\n", 0, piece.end() - len(piece[0].lstrip("\n")))
            raise LessonError(path, line, f"{piece[0].strip()}: {error}") from None

    return PIECE.sub(translate, cell.source).strip()


def translated(piece: re.Match[str]) -> str:
    """Maths goes between dollar and backtick or into ```math, where GitHub leaves `_`, `*`, `<` and backslashes alone.
    Links lead from docs/lessons/. Blank lines stand where Markdown inside <details> needs them.

    Raises ValueError for what would be shown wrongly.
    """
    if piece["display"]:
        mathml(piece["display"], display=True)
        lines = [piece["indent"] + line.strip() for line in ["```math", *piece["display"].strip().splitlines(), "```"]]
        return "\n".join(lines)
    if piece["inline"]:
        latex = " ".join(piece["inline"].split())
        mathml(latex)
        line_start = piece.string.rfind("\n", 0, piece.start()) + 1
        if "|" in latex and piece.string[line_start] == "|":
            raise ValueError("in a table, | ends a cell; \\vert")
        return f"$`{latex}`$"
    if piece["stray"]:
        raise ValueError("no maths begins or ends here; $$ stands on a line of its own, and a price has \\$")
    if piece["target"]:
        return f"]({target_from_page(piece['target'])})"
    if piece["details"]:
        if set(piece["summary"] or "") & set("$`*_"):
            raise ValueError("a <summary> is plain text")
        return f"\n\n{piece['details']}\n\n"
    return piece[0]


def target_from_page(target: str) -> str:
    """What a lesson links to, relative to lessons/ -> relative to docs/lessons/."""
    if re.match(r"[a-z]+:|#", target):
        return target
    file, hash_sign, anchor = target.partition("#")
    lesson = re.fullmatch(r"(\d\d_\w+)\.py", file)
    return (f"{lesson[1]}.md" if lesson else os.path.relpath(f"lessons/{file}", "docs/lessons")) + hash_sign + anchor


def page(path: Path, outputs: list[list[dict[str, str]]]) -> str:
    """The page of a lesson that has run: docs/lessons/NN_slug.md."""
    parts = [f"{MARK} lessons/{path.name}: change that file, not this one -->"]
    for cell, items in zip(cells_of(path), outputs):
        parts.append(prose(path, cell) if cell.is_prose else code(cell))
        for item in items:
            if str(ROOT) in item.get("text", ""):
                raise LessonError(path, cell.line, f"the output names a directory of this machine, {ROOT}")
            parts.append(fenced("text", item["text"]) if "text" in item else image(item["figure"], item["alt"]))
    return "\n\n".join(parts) + "\n"


def code(cell: Cell) -> str:
    block = fenced("python", cell.source)
    return f"<details><summary>Code: {cell.title}</summary>\n\n{block}\n\n</details>" if cell.title else block


def fenced(language: str, text: str) -> str:
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text}\n{fence}"


def image(name: str, alt: str) -> str:
    return f"![{re.sub(r'([]$&*<[_`])', BACKSLASHED, alt)}](figures/{name}.png)"


def title_and_question(path: Path) -> tuple[str, str]:
    """The lesson's first heading, and the first paragraph under its second.

    Raises LessonError if there are none.
    """
    text = "\n\n".join(prose(path, cell) for cell in cells_of(path) if cell.is_prose)
    found = re.match(r"# (.+)\n(?s:.*?)^## .+\n\s*(?s:(.+?))(?:\n\n|\Z)", text, re.MULTILINE)
    if not found:
        raise LessonError(path, 1, "a lesson begins with '# title', and later '## Question' and a paragraph")
    return found[1], " ".join(found[2].replace("**", "").split())


def index(root: Path) -> str:
    """The table of contents: docs/lessons/README.md."""
    parts = [
        f"{MARK} lessons/*.py: change those files, not this one -->",
        "# The lessons",
        "Each page is made by running a script: `python lessons/NN_name.py` shows its numbers and figures again.\n"
        "The scripts also open as notebooks.",
    ]
    for path in lessons_of(root):
        title, question = title_and_question(path)
        parts.append(f"- [{title}]({path.stem}.md)<br>\n  {question}")
    if (root / "docs" / "lessons" / "rubric.md").exists():
        parts.append("How good each page is, in twelve scores: [the rubric](rubric.md).")
    return "\n\n".join(parts) + "\n"


# Building and checking ------------------------------------------------------------------------------------------------


def make(root: Path, only: Sequence[str], folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Run the lessons, two at a time. -> the text of each page of docs/lessons/, the figures (in folder)

    Raises LessonError of the first lesson that failed.
    """
    paths = lessons_of(root, only)
    pages = {"README.md": index(root)}
    with ThreadPoolExecutor(2) as pool:
        outputs = pool.map(run_lesson, paths, [folder / path.stem for path in paths])
        pages |= {f"{path.stem}.md": page(path, items) for path, items in zip(paths, outputs)}
    return pages, sorted(folder.glob("*/*.png"))


def left_over(root: Path, only: Sequence[str], made: set[str]) -> list[Path]:
    """Pages and figures that no lesson makes any more."""
    docs = root / "docs" / "lessons"
    there = [*sorted(docs.glob("[0-9][0-9]_*.md")), *sorted(docs.glob("figures/*.png"))]
    return [path for path in there if path.name not in made and (not only or path.name[:2] in only)]


def build(root: Path, only: Sequence[str] = ()) -> None:
    """Write docs/lessons/ and site/. Raises LessonError, and writes nothing, if a lesson fails."""
    docs = root / "docs" / "lessons"
    with tempfile.TemporaryDirectory() as folder:
        pages, figures = make(root, only, Path(folder))
        (docs / "figures").mkdir(parents=True, exist_ok=True)
        for path in left_over(root, only, {*pages, *(figure.name for figure in figures)}):
            path.unlink()
        for name, text in pages.items():
            (docs / name).write_text(text, encoding="utf-8")
        for figure in figures:
            shutil.copyfile(figure, docs / "figures" / figure.name)
    write_site(docs, root / "site")


def check(root: Path, only: Sequence[str] = ()) -> list[str]:
    """Run the lessons and compare. -> the differences from docs/lessons/, each with its page and line

    Figures are compared by name: their bytes depend on the machine's fonts. Raises LessonError if a lesson fails.
    """
    docs = root / "docs" / "lessons"
    with tempfile.TemporaryDirectory() as folder:
        pages, figures = make(root, only, Path(folder))
    found = [
        f"{path.relative_to(root)}: no lesson makes it"
        for path in left_over(root, only, {*pages, *(figure.name for figure in figures)})
    ]
    found += [
        f"docs/lessons/figures/{figure.name}: missing"
        for figure in figures
        if not (docs / "figures" / figure.name).exists()
    ]
    for name, text in pages.items():
        if not (docs / name).exists():
            found.append(f"docs/lessons/{name}: missing")
            continue
        found += [
            f"docs/lessons/{name}, line {line}:\n    committed: {before}\n    now:       {now}"
            for line, before, now in differences((docs / name).read_text(encoding="utf-8"), text)
        ]
    return found


NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
OF_THE_MACHINE = re.compile(
    r"""
    (?<=:\ )\S+(?=\ {3}\(between\ .*\)$)
    | (?<=:\ the\ same,\ relative\ difference\ )\S+$
    | (?<=:\ )backward\ .*(?=\ ok$)
    | (?<=:\ ).*(?=\ {3}\(a\ time;\ yours\ differs\)$)
    | ^.*(?=\ {3}\(yours\ may\ differ\)$)
""",
    re.VERBOSE,
)
"""What depends on the machine in the lines of `measure`, `same`, a gradient check (which shows the direction with the
largest rounding error), `duration` and `varying`.
"""


def differences(before: str, now: str) -> Iterator[tuple[int, str, str]]:
    """Where two texts of a page disagree: the number of the line, the line, and what it is now ("" for no line)."""
    old, new = before.splitlines(), now.splitlines()
    matcher = SequenceMatcher(None, comparable(old), comparable(new), autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        pairs = zip_longest(old[start:end], new[new_start:new_end], fillvalue="")
        for line, (one, other) in enumerate(pairs, start + 1):
            if tag != "equal" or not same_numbers(one, other):
                yield line, one, other


def comparable(lines: list[str]) -> list[str]:
    """The lines as they must be equal: those of output without numbers, and without spaces, which depend on them."""
    found, closing = [], ""
    for line in lines:
        if closing and line != closing:
            found.append("output " + "".join(NUMBER.sub("#", on_every_machine(line)).split()))
            continue
        opening = re.fullmatch("(`{3,})text", line)
        closing = opening[1] if opening and not closing else ""
        found.append(line)
    return found


def on_every_machine(line: str) -> str:
    return OF_THE_MACHINE.sub("…", line)


def same_numbers(one: str, other: str) -> bool:
    """Whether the numbers of two lines agree to 5 %, but for those of the machine.

    Below 1e-8 any two do: nearly all such are errors of rounding, or of finite differences.
    """

    def agree(x: float, y: float) -> bool:
        largest = max(abs(x), abs(y))
        return abs(x - y) <= 0.05 * largest or largest < 1e-8

    values = [
        [float(number.replace(",", "")) for number in NUMBER.findall(on_every_machine(line))] for line in (one, other)
    ]
    return all(map(agree, *values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with docs/lessons/ and write nothing")
    parser.add_argument("--only", nargs="+", default=[], metavar="NN", help="the numbers of some lessons")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - {path.name[:2] for path in lessons_of(ROOT)}:
        parser.error(f"no lesson {', '.join(sorted(unknown))}")
    try:
        if not arguments.check:
            build(ROOT, arguments.only)
            return 0
        found = check(ROOT, arguments.only)
    except LessonError as error:
        print(f"lessons.py: {error}", file=sys.stderr)
        return 2
    print("\n".join(found) if found else "the pages are what the lessons say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
