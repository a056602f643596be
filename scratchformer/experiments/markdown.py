"""Tables in Markdown."""

from __future__ import annotations

from typing import Any, Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A line for the head, one for each row; cells are written by `str`, a | in them is escaped."""
    head = list(head)
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"
        for row in [head, ["---"] * len(head), *rows]
    )
