"""Tables in Markdown."""

from __future__ import annotations

from typing import Any, Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table, one line per row. Cells are written by `str`; a | in them is escaped."""
    header = list(header)
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"
        for row in [header, ["---"] * len(header), *rows]
    )
