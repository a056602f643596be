"""Output of the scripts in lessons/: numbers inside bands, equalities, times, tables, results, functions, figures.

A lesson that measures something else than its text says ends with an error; so no number that its text stands on can go
stale.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import numpy as np
from matplotlib.figure import Figure

from exercises.source import source_of_ours
from scratchformer.experiments import figures
from support.drawing import Drawing

QUICK = os.environ.get("SCRATCHFORMER_QUICK") == "1"
"""Asked to be quick, a lesson takes fewer repetitions; its bands hold all the same."""

ROOT = Path(__file__).parents[2]
"""The clone, in which the lessons find texts, the trained model and results."""

if not (ROOT / "data" / "tiny").is_dir():
    raise SystemExit("the lessons need a clone's data/: install the package from the clone with `pip install -e .`")


class Unexpected(AssertionError):
    """The lesson's text says one thing, its measurement another."""


class Measurement(NamedTuple):
    """One checked number of a lesson, as it is shown.

    name   what was measured
    value  with four significant digits
    band   what the value had to be: "between 0.2 and 0.3", "exactly 6"
    """

    name: str
    value: str
    band: str


def measure(name: str, value: float, lo: float, hi: float) -> float:
    """Show a measured number, which must lie between lo and hi. -> value

    A page shows the measurements that follow each other in a cell as one table, and the bands in the lab notes.

    Raises Unexpected outside the band (and for NaN).
    """
    band = f"exactly {in_figures(lo)}" if lo == hi else f"between {in_figures(lo)} and {in_figures(hi)}"
    if not lo <= value <= hi:
        raise Unexpected(f"{name} is {in_figures(value, 4)}, and the lesson says {band}")
    record(Measurement(name, in_figures(value, 4), band))
    return value


def in_figures(number: float, digits: int = 6) -> str:
    """A whole number is printed whole, any other number with so many significant digits."""
    return f"{number:,}" if isinstance(number, int | np.integer) else f"{number:.{digits}g}"


def same(name: str, ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    """Show how far two arrays are apart, relative to the largest element of the second.

    Raises Unexpected for different shapes, or if the difference is above `tolerance`.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        raise Unexpected(f"{name}: the shapes {ours.shape} and {theirs.shape} differ")
    difference = float(np.abs(ours - theirs).max() / (np.abs(theirs).max() or 1))
    if not difference <= tolerance:
        raise Unexpected(f"{name}: relative difference {difference:.1e}, and the lesson says at most {tolerance:g}")
    value = f"equal to {difference:.0e}" if difference else "equal"
    record(Measurement(name, value, f"relative difference at most {tolerance:g}"))


YOURS_DIFFERS = "a time; yours differs"


def duration(name: str, seconds: float, over: float | None = None) -> None:
    """Show a time, or how many times as long it is as `over`, another one.

    Times belong to a machine and a moment, so no page is checked against them.
    """
    unit, factor = ("s", 1) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    text = f"{seconds / over:.3g} times as long" if over else f"{seconds * factor:.3g} {unit}"
    record(Measurement(name, text, YOURS_DIFFERS))


def varying(line: str) -> None:
    """Print a line that may be another one on another machine.

    Processors add up in different orders. A training magnifies the difference of rounding, and where a choice hangs on
    a narrow lead, as that of the next token does, it may be made the other way. No page is checked against such lines.
    """
    print(f"{line}   (yours may differ)")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Show a table: a heading for each column, then rows of as many cells, each shown by `str`.

    A page is checked against the cells: their words must be equal, their numbers to 10 %.

    Raises ValueError for a row with another number of cells.
    """
    texts = [[str(cell) for cell in row] for row in rows]
    for row in texts:
        if len(row) != len(columns):
            raise ValueError(f"the table has {len(columns)} columns, and a row has {len(row)} cells: {row}")
    tabulate(list(columns), texts)


def recorded(name: str) -> dict[str, Any]:
    """A result too long to wait for, from benchmarks/results/: show where it comes from. -> the file's contents"""
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    source = result["provenance"]
    print(
        f"recorded in benchmarks/results/{path.name} on {source['date']}, commit {source['commit'][:9]}, by\n"
        f"    {result['command']}"
    )
    return result


def quote(*names: str, file: str = "transformer") -> None:
    """Show functions of lessons/transformer.py, or of more.py: on a page folded away, in the place of this cell."""
    title = f"{', '.join(names)}, as in {file}.py"
    cite(title, "\n\n\n".join(source_of_ours(file, name) for name in names))


Picture = Figure | Drawing


def show(figure: Picture, name: str, alt: str, caption: str) -> None:
    """Show a figure: in a notebook under the cell, from a script as a file in out/ beside it, on a page where it is.

    name     of the file, the number of the lesson first: 05_saturation
    alt      what the figure shows, for a reader who cannot see it
    caption  one sentence under the figure: what to notice. The page adds the number: "Figure 2."

    Raises ValueError without texts.
    """
    if len(alt) < 40:
        raise ValueError(f"figure {name}: the alternative text says too little: {alt!r}")
    if not caption.strip().endswith((".", "?", "!")):
        raise ValueError(f"figure {name}: the caption is not a sentence: {caption!r}")
    display(figure, name, " ".join(alt.split()), " ".join(caption.split()))


# Where it goes if nobody builds pages ---------------------------------------------------------------------------------


def in_notebook_or_file(figure: Picture, name: str, alt: str, caption: str) -> None:
    """Into out/ beside the script or notebook, and under the cell."""
    script = getattr(sys.modules["__main__"], "__file__", "")  # none in a notebook, whose directory is "."
    directory = Path(script).parent / "out"
    directory.mkdir(exist_ok=True)
    if isinstance(figure, Figure):
        path = figures.save(figure, directory / f"{name}.png")
    else:
        path = directory / f"{name}.svg"
        path.write_text(figure.svg(), encoding="utf-8")
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython():
        from IPython import display as notebook

        notebook.display(notebook.SVG(path) if path.suffix == ".svg" else notebook.Image(filename=path, alt=alt))
        print(caption)
    else:
        print(f"figure: {os.path.relpath(path)}\n    {caption}")


def as_line(measurement: Measurement) -> None:
    print(f"{measurement.name}: {measurement.value}   ({measurement.band})")


def as_text(title: str, source: str) -> None:
    print(f"{title}:\n\n{source}")


def as_columns(columns: list[str], rows: list[list[str]]) -> None:
    """Columns padded with spaces to the width of their longest cell."""
    widths = [max(map(len, column)) for column in zip(columns, *rows)]
    for row in [columns, *rows]:
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


display: Callable[[Picture, str, str, str], None] = in_notebook_or_file
record: Callable[[Measurement], None] = as_line
tabulate: Callable[[list[str], list[list[str]]], None] = as_columns
cite: Callable[[str, str], None] = as_text
"""The ends of `show`, `measure`, `table` and `quote`; a builder of pages replaces them by functions of its own."""
