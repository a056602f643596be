"""The drawn pictures of the lessons: words, cells with numbers, arrows and bars, as one SVG for light and for dark.

A role keeps its colour and its shape through the whole course, so that nothing depends on colour alone: a query is blue
and rounded, a key teal with cut corners, a value amber and square, a weight a bar, a gradient magenta and italic with a
triangle that points where the number should go. Whatever has none of these roles is plain.

    drawing = Drawing(400, 200)
    query = drawing.vector(80, 100, (1.41, 0), "query", above="query of “it”")
    key = drawing.vector(300, 100, (1.61, 1), "key")
    drawing.arrow(query.right, key.left, label="q · k")

Positions are in pixels, x to the right and y down. A shape is placed by its centre, and returned as a Box whose edges
arrows can start from.
"""

from __future__ import annotations

import html
import math
import re
from typing import Literal, NamedTuple, Sequence

Role = Literal["plain", "query", "key", "value", "gradient", "ink", "soft", "line", "paper", "forward"]
Point = tuple[float, float]
Number = float | str

COLOURS = {
    "ink": ("#1d2733", "#e8edf3"),
    "soft": ("#5f6b78", "#9aa7b5"),
    "line": ("#b9c3ce", "#4b5865"),
    "paper": ("#ffffff", "#14191f"),
    "plain": ("#5f6b78", "#9aa7b5"),
    "forward": ("#2f6fde", "#7aa7ff"),
    "query": ("#2f6fde", "#7aa7ff"),
    "key": ("#0f8b8d", "#4fd0c7"),
    "value": ("#c77700", "#ffb54d"),
    "gradient": ("#b5179e", "#ff7ad9"),
}
"""The colour of each role, by day and by night."""

LIGHT, DARK = (" ".join(f"--{role}:{pair[i]};" for role, pair in COLOURS.items()) for i in (0, 1))

STYLE = f"""
:root {{ {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
text {{ font-family: "Source Sans 3", "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; }}
"""


class Box(NamedTuple):
    """The place of a shape: its centre, width and height."""

    x: float
    y: float
    width: float
    height: float
    columns: int = 1
    rows: int = 1

    @property
    def left(self) -> Point:
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> Point:
        return self.x + self.width / 2, self.y

    @property
    def top(self) -> Point:
        return self.x, self.y - self.height / 2

    @property
    def bottom(self) -> Point:
        return self.x, self.y + self.height / 2

    def cell(self, column: int, row: int = 0) -> Box:
        """One cell of a vector or matrix."""
        width, height = self.width / self.columns, self.height / self.rows
        x, y = self.left[0] + (column + 0.5) * width, self.top[1] + (row + 0.5) * height
        return Box(x, y, width, height)


class Drawing:
    """A picture of `width` by `height` pixels. `svg()` gives it as text."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    # Words and numbers ------------------------------------------------------------------------------------------------

    def text(
        self,
        x: float,
        y: float,
        words: Number,
        role: Role = "ink",
        size: float = 15,
        anchor: Literal["start", "middle", "end"] = "middle",
        bold: bool = False,
        italic: bool = False,
    ) -> None:
        """One line of words, or a number; y is the middle of the line. d_k and e^z get small letters below or above."""
        look = f'font-size="{size:g}" text-anchor="{anchor}" fill="var(--{role})"'
        look += ' font-weight="600"' * bold + ' font-style="italic"' * italic
        self.parts.append(
            f'<text x="{x:.5g}" y="{y + 0.35 * size:.5g}" {look}>{small_letters(number(words), size)}</text>'
        )

    def gradient(self, x: float, y: float, value: float, words: str = "", size: float = 15, largest: float = 1) -> None:
        """A gradient: an italic number behind a triangle that points up if the number should grow, else down.

        words    in place of the number
        largest  the gradient at which the triangle has its full size
        """
        words = words or number(value, sign=True)
        side = 5 + 7 * min(1, abs(value) / largest)
        if value:
            direction = -1 if value > 0 else 1
            base = y - direction * side / 2
            corners = [(x - side, base), (x, base), (x - side / 2, base + direction * side)]
            self.polygon(corners, "gradient")
        self.text(x + 5, y, words, "gradient", size, anchor="start", italic=True)

    # Shapes -----------------------------------------------------------------------------------------------------------

    def vector(
        self,
        x: float,
        y: float,
        values: Sequence[Number],
        role: Role = "plain",
        cell: float = 46,
        height: float = 34,
        above: str = "",
        below: str = "",
        size: float = 15,
    ) -> Box:
        """A row of numbers in the shape of its role; `above` and `below` are short names."""
        return self.matrix(x, y, [values], role, cell, height, above, below, size)

    def matrix(
        self,
        x: float,
        y: float,
        rows: Sequence[Sequence[Number]],
        role: Role = "plain",
        cell: float = 46,
        height: float = 34,
        above: str = "",
        below: str = "",
        size: float = 15,
        shades: Sequence[Sequence[float]] | None = None,
    ) -> Box:
        """Rows of numbers in one outline. An empty string leaves a cell empty.

        shades  for each cell 0 (as the paper) to 1: how strongly it is filled with the colour of its role
        """
        columns, count = len(rows[0]), len(rows)
        box = Box(x, y, cell * columns, height * count, columns, count)
        for i, filled in enumerate(shades or []):
            for j, shade in enumerate(filled):
                at = box.cell(j, i)
                self.rectangle(at.x, at.y, at.width, at.height, role, filled=0.75 * shade, outline=False)
        self.outline(box, role, filled=0 if shades else 0.13)
        for j in range(1, columns):
            side = box.left[0] + j * cell
            self.line([(side, box.top[1] + 4), (side, box.bottom[1] - 4)], "line", 1.2)
        for i in range(1, count):
            side = box.top[1] + i * height
            self.line([(box.left[0] + 4, side), (box.right[0] - 4, side)], "line", 1.2)
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                is_gradient = role == "gradient"
                shown = number(value, sign=is_gradient)
                self.text(*box.cell(j, i)[:2], shown, "gradient" if is_gradient else "ink", size, italic=is_gradient)
        self.names(box, above, below)
        return box

    def box(
        self,
        x: float,
        y: float,
        words: str,
        role: Role = "plain",
        width: float = 120,
        height: float = 40,
        size: float = 15,
    ) -> Box:
        """A layer, or any other step: words in an outline. A line break in the words begins a second line."""
        box = Box(x, y, width, height)
        self.outline(box, role)
        lines = words.split("\n")
        for i, line in enumerate(lines):
            self.text(x, y + (i - (len(lines) - 1) / 2) * 1.2 * size, line, size=size)
        return box

    def bar(
        self,
        x: float,
        y: float,
        share: float,
        width: float = 48,
        height: float = 80,
        below: Number = "",
        role: Role = "ink",
    ) -> Box:
        """A weight from 0 to 1: the filled part of an upright bar."""
        box = Box(x, y, width, height)
        self.rectangle(x, y, width, height, role, filled=0.1, outline=False)
        filled = share * height
        self.rectangle(x, box.bottom[1] - filled / 2, width, filled, role, filled=0.78, outline=False)
        self.names(box, "", number(below))
        return box

    def circle(
        self, x: float, y: float, radius: float, role: Role = "plain", filled: float = 0.13, words: str = ""
    ) -> Box:
        look = f'fill="var(--{role})" fill-opacity="{filled:g}" stroke="var(--{role})" stroke-width="1.6"'
        self.parts.append(f'<circle cx="{x:.5g}" cy="{y:.5g}" r="{radius:.5g}" {look}/>')
        if words:
            self.text(x, y, words)
        return Box(x, y, 2 * radius, 2 * radius)

    # Lines ------------------------------------------------------------------------------------------------------------

    def line(self, points: Sequence[Point], role: Role = "line", width: float = 1.5, dashed: bool = False) -> None:
        """A line through the points."""
        path = " L".join(f"{x:.5g} {y:.5g}" for x, y in points)
        self.stroke(f"M{path}", role, width, dashed)

    def thread(self, start: Point, end: Point, weight: float, role: Role = "value", thickest: float = 12) -> None:
        """A smooth line from above to below, or from below to above, as thick as the weight (0 to 1) it carries."""
        (x, y), (to_x, to_y) = start, end
        middle = (y + to_y) / 2
        path = f"M{x:.5g} {y:.5g} C{x:.5g} {middle:.5g} {to_x:.5g} {middle:.5g} {to_x:.5g} {to_y:.5g}"
        self.stroke(path, role, max(0.6, thickest * weight), opacity=0.55)

    def arrow(
        self,
        start: Point,
        end: Point,
        role: Role = "soft",
        label: str = "",
        bend: float = 0,
        width: float = 1.6,
        dashed: bool = False,
    ) -> None:
        """An arrow, with a label beside its middle. A positive `bend` curves it to its left by so many pixels."""
        (x, y), (to_x, to_y) = start, end
        length = math.hypot(to_x - x, to_y - y)
        across = ((to_y - y) / length, -(to_x - x) / length)  # to the left of the direction, since y runs down
        middle = ((x + to_x) / 2 + 2 * bend * across[0], (y + to_y) / 2 + 2 * bend * across[1])
        distance = math.hypot(to_x - middle[0], to_y - middle[1])
        along = ((to_x - middle[0]) / distance, (to_y - middle[1]) / distance)
        base = (to_x - 8 * along[0], to_y - 8 * along[1])
        path = f"M{x:.5g} {y:.5g} Q{middle[0]:.5g} {middle[1]:.5g} {base[0]:.5g} {base[1]:.5g}"
        self.stroke(path, role, width, dashed)
        wing = (-4 * along[1], 4 * along[0])
        self.polygon([end, (base[0] + wing[0], base[1] + wing[1]), (base[0] - wing[0], base[1] - wing[1])], role)
        if label:
            away = bend + (13 if bend >= 0 else -13)
            at = ((x + to_x) / 2 + away * across[0], (y + to_y) / 2 + away * across[1])
            sideways = abs(across[0]) > 0.5
            anchor: Literal["start", "middle", "end"] = "middle"
            if sideways:
                anchor = "start" if away * across[0] > 0 else "end"
            self.text(*at, label, "gradient" if role == "gradient" else "soft", 13, anchor, italic=role == "gradient")

    # What the shapes are made of --------------------------------------------------------------------------------------

    def outline(self, box: Box, role: Role, filled: float = 0.13) -> None:
        """The outline of a role: rounded for a query, cut corners for a key, square for the others."""
        if role != "key":
            radius = {"query": 15, "value": 0}.get(role, 4)
            self.rectangle(*box[:4], role, filled, radius=min(radius, box.height / 2))
            return
        cut = 9
        (left, _), (right, _), (_, top), (_, bottom) = box.left, box.right, box.top, box.bottom
        corners = [(left + cut, top), (right - cut, top), (right, top + cut), (right, bottom - cut)]
        corners += [(right - cut, bottom), (left + cut, bottom), (left, bottom - cut), (left, top + cut)]
        self.polygon(corners, role, filled, outline=True)

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        role: Role,
        filled: float = 0.13,
        outline: bool = True,
        radius: float = 0,
    ) -> None:
        """A rectangle around (x, y)."""
        look = f'fill="var(--{role})" fill-opacity="{filled:.3g}"' + stroke_of(role) * outline
        where = f'x="{x - width / 2:.5g}" y="{y - height / 2:.5g}" width="{width:.5g}" height="{height:.5g}"'
        self.parts.append(f'<rect {where} rx="{radius:g}" {look}/>')

    def polygon(self, corners: Sequence[Point], role: Role, filled: float = 1, outline: bool = False) -> None:
        points = " ".join(f"{x:.5g},{y:.5g}" for x, y in corners)
        look = f'fill="var(--{role})" fill-opacity="{filled:.3g}"' + stroke_of(role) * outline
        self.parts.append(f'<polygon points="{points}" {look}/>')

    def stroke(self, path: str, role: Role, width: float, dashed: bool = False, opacity: float = 1) -> None:
        look = f'fill="none" stroke="var(--{role})" stroke-width="{width:.3g}"' + ' stroke-dasharray="5 4"' * dashed
        look += f' stroke-opacity="{opacity:g}"' * (opacity < 1)
        self.parts.append(f'<path d="{path}" {look}/>')

    def names(self, box: Box, above: str, below: str) -> None:
        if above:
            self.text(box.x, box.top[1] - 13, above, "soft", 13)
        if below:
            self.text(box.x, box.bottom[1] + 13, below, "soft", 13)

    def svg(self) -> str:
        """The picture as the text of an SVG file, on the paper of its scheme."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
        return "\n".join(
            [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<style>{STYLE}</style>", paper]
            + [*self.parts, "</svg>\n"]
        )


def stroke_of(role: Role) -> str:
    return f' stroke="var(--{role})" stroke-width="1.6"'


def number(value: Number, sign: bool = False) -> str:
    """A number with at most three decimals, a true minus, and a plus if asked for; words stay as they are."""
    if isinstance(value, str):
        return value
    rounded = round(float(value), 3) + 0.0
    return (f"{rounded:+g}" if sign and rounded else f"{rounded:g}").replace("-", "−")


def small_letters(words: str, size: float) -> str:
    """d_k -> d with a small k below it; e^z with a small z above it; braces hold more than one letter: W_{QK}."""
    shift = 0.3 * size
    parts = re.split(r"([_^])(?:\{([^}]*)\}|(\w))", words)
    found = [html.escape(parts[0], quote=False)]
    for sign, several, one, after in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4]):
        away = shift if sign == "_" else -1.2 * shift
        small = html.escape(several or one, quote=False)
        found.append(f'<tspan dy="{away:.3g}" font-size="{0.72 * size:.3g}">{small}</tspan>')
        found.append(f'<tspan dy="{-away:.3g}">{html.escape(after, quote=False) or "&#8203;"}</tspan>')
    return "".join(found)
