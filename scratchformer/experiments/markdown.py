"""Markdown tables, and the line that marks a page of ours."""

from __future__ import annotations

from typing import Any, Iterable

MARK = "<!-- Written by scratchformer, which will replace this file. -->"
"""The first line of a page that we wrote."""


def markup_table(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Write a table whose cells are Markdown of our own; only a | in them is escaped."""
    lines = [[str(cell).replace("|", r"\|") for cell in row] for row in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
