"""Markdown pages and tables. Strings that somebody else chose neither end a line or a cell of them, nor add HTML."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, Iterable

from scratchformer.errors import UserError, printable
from scratchformer.files import replace_text
from scratchformer.training.run import RunDirectory, require_place

MARK = "<!-- Written by scratchformer, which will replace this file. -->"
"""The first line of a page that we wrote."""

SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
"""Characters with a meaning in Markdown; an underscore between letters or digits has none."""


class Markup(str):
    """Markdown as it shall stand on the page; `escaped` leaves it as it is."""


def escaped(text: Any) -> Markup:
    """The Markdown that shows this text, on one line. Control characters and undecodable bytes become escapes."""
    if isinstance(text, Markup):
        return text
    return Markup(SPECIAL.sub(r"\\\g<0>", html.escape(printable(str(text)), quote=False)))


def table(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table, one line per row. Cells are text, and are escaped, unless they are Markup."""
    return joined([[escaped(cell) for cell in row] for row in (header, *rows)])


def markup_table(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table whose cells are Markdown of our own; only a | in them is escaped."""
    return joined([[str(cell).replace("|", r"\|") for cell in row] for row in (header, *rows)])


def joined(rows: list[list[str]]) -> str:
    """A table of cells that need no escaping. The first row, the header, gets a line below it, in place."""
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def require_page(page: Path, beside: Iterable[Path], *runs: RunDirectory) -> None:
    """Refuse to replace what `write_page` did not write: the page must have our mark, or none of the files exists."""
    beside = list(beside)
    for path in (page, *beside):
        require_place(path, *runs)
    if page.exists():
        with open(page, "rb") as file:
            if file.read(len(MARK)) != MARK.encode():
                raise UserError(f"{page}: does not begin with the line that marks our pages; choose another directory")
    elif foreign := [path for path in beside if path.exists()]:
        raise UserError(f"{foreign[0]}: has no page of ours beside it; choose another directory")


def write_page(page: Path, text: str) -> None:
    """Write a page with our mark."""
    replace_text(page, f"{MARK}\n\n{text}")
