"""What the scripts in lessons/ say and show: numbers inside bands, equalities, times, samples, results, figures.

A lesson that measures something else than its text says ends with an error; so no number that its text stands on can go
stale.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
from matplotlib.figure import Figure

from scratchformer.experiments import figures

QUICK = os.environ.get("SCRATCHFORMER_QUICK") == "1"
"""Asked to be quick, a lesson takes fewer repetitions; its bands hold all the same."""

ROOT = Path(__file__).parents[2]
"""The clone, in which the lessons find texts, the trained model and results."""

if not (ROOT / "data" / "tiny").is_dir():
    raise SystemExit("the lessons need a clone's data/: install the package from the clone with `pip install -e .`")


class Unexpected(AssertionError):
    """The lesson's text says one thing, its measurement another."""


def measure(name: str, value: float, lo: float, hi: float) -> float:
    """Print a measured number and the band it must lie in. -> value

    Raises Unexpected outside the band (and for NaN).
    """
    band = f"exactly {in_figures(lo)}" if lo == hi else f"between {in_figures(lo)} and {in_figures(hi)}"
    if not lo <= value <= hi:
        raise Unexpected(f"{name} is {in_figures(value, 4)}, and the lesson says {band}")
    print(f"{name}: {in_figures(value, 4)}   ({band})")
    return value


def in_figures(number: float, digits: int = 6) -> str:
    """A whole number is printed whole, any other number with so many significant digits."""
    return f"{number:,}" if isinstance(number, int | np.integer) else f"{number:.{digits}g}"


def same(name: str, ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    """Print how far two arrays are apart, relative to the largest element of the second.

    Raises Unexpected for different shapes, or if the difference is above `tolerance`.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        raise Unexpected(f"{name}: the shapes {ours.shape} and {theirs.shape} differ")
    difference = float(np.abs(ours - theirs).max() / (np.abs(theirs).max() or 1))
    if not difference <= tolerance:
        raise Unexpected(f"{name}: relative difference {difference:.1e}, and the lesson says at most {tolerance:g}")
    print(f"{name}: the same, relative difference {difference:.0e}")


def duration(name: str, seconds: float, over: float | None = None) -> None:
    """Print a time, or how many times as long it is as `over`, another one.

    Times belong to a machine and a moment, so no page is checked against them.
    """
    unit, factor = ("s", 1) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    text = f"{seconds / over:.3g} times as long" if over else f"{seconds * factor:.3g} {unit}"
    print(f"{name}: {text}   (a time; yours differs)")


def varying(line: str) -> None:
    """Print a line that may be another one on another machine.

    Processors add up in different orders. A training magnifies the difference of rounding, and where a choice hangs on
    a narrow lead, as that of the next token does, it may be made the other way. No page is checked against such lines.
    """
    print(f"{line}   (yours may differ)")


def recorded(name: str) -> dict[str, Any]:
    """A result too long to wait for, from benchmarks/results/: print where it comes from. -> the file's contents

    Raises FileNotFoundError if there is no such result.
    """
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    source = result["provenance"]
    print(
        f"recorded in benchmarks/results/{path.name} on {source['date']}, commit {source['commit'][:9]}, by\n"
        f"    {result['command']}"
    )
    return result


def show(figure: Figure, name: str, alt: str) -> None:
    """Show a figure: in a notebook under the cell, from a script as out/NAME.png beside it, in a page where it stands.

    name  of the file, the number of the lesson first: 05_saturation
    alt   what the figure says, for a reader who cannot see it

    Raises ValueError without a text.
    """
    if len(alt) < 40:
        raise ValueError(f"figure {name}: the alternative text says too little: {alt!r}")
    display(figure, name, alt)


def in_notebook_or_file(figure: Figure, name: str, alt: str) -> None:
    """Where a figure goes if nobody builds pages: into out/ beside the script or notebook, and under the cell."""
    script = getattr(sys.modules["__main__"], "__file__", "")  # none in a notebook, whose directory is "."
    directory = Path(script).parent / "out"
    directory.mkdir(exist_ok=True)
    path = figures.save(figure, directory / f"{name}.png")
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython():
        from IPython.display import Image, display

        display(Image(filename=path, alt=alt))
    else:
        print(f"figure: {os.path.relpath(path)}\n    {alt}")


display: Callable[[Figure, str, str], None] = in_notebook_or_file
"""What `show` does with a figure; whoever builds pages puts a function of their own here."""
