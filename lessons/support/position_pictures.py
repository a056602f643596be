"""The drawings of lesson 09: hands on dials, three to the left, words plus positions."""

from __future__ import annotations

import math

import numpy as np

from support.drawing import Drawing, number

QUARTER, EIGHTH = math.pi / 2, math.pi / 4
"""Turn of the fast and the slow hand from one position to the next, in radians."""

WORDS = {"dog": (2, 0, 1, 0), "bites": (0, 1, 0, 2), "man": (1, 1, 0, 0)}
SENTENCES = ("dog", "bites", "man"), ("man", "bites", "dog")
ARRIVING = ((1, 0, -2, 0), (3, 1, 0, -1), (0, 2, 0, 1)), ((2, 0, 0, 1), (-3, 1, 1, 0), (1, -1, 0, 0))
"""The gradients that arrive at the sums, in backward: sentence, position, component."""


def position(t: int) -> np.ndarray:
    """The height and the width of the fast hand, then of the slow hand. (4,)"""
    angles = np.array([QUARTER * t, EIGHTH * t])
    return np.stack([np.sin(angles), np.cos(angles)], axis=1).ravel() + 0.0


def dial(drawing: Drawing, x: float, y: float, angle: float, radius: float = 27) -> None:
    """A dial whose hand points to the right at angle 0, and upwards at a quarter turn; its height as a thick line."""
    drawing.circle(x, y, radius, filled=0.04)
    drawing.line([(x - radius, y), (x + radius, y)], "line", 1)
    tip = x + radius * math.cos(angle), y - radius * math.sin(angle)
    if abs(tip[1] - y) > 1:
        drawing.line([(tip[0], y), tip], "forward", 5)
    drawing.arrow((x, y), tip, "ink", width=2)


def one_hand() -> Drawing:
    """A hand at position 1 with its height and its width, and the curve of its height over the positions."""
    drawing = Drawing(760, 236)
    x, y, radius = 130, 110, 84
    tip = x + radius * math.cos(EIGHTH), y - radius * math.sin(EIGHTH)
    columns = [300 + 54 * t for t in range(9)]
    drawing.line([(columns[0] - 26, y), (columns[-1] + 26, y)], "line", 1.2)
    drawing.line([tip, (columns[1], tip[1])], "line", 1.2, dashed=True)
    drawing.circle(x, y, radius, filled=0.04)
    drawing.line([(x - radius, y), (x + radius, y)], "line", 1)
    drawing.line([(x, y), (tip[0], y)], "soft", 5)
    drawing.line([(tip[0], y), tip], "forward", 5)
    drawing.arrow((x, y), tip, "ink", width=2)
    arc = [EIGHTH * share / 12 for share in range(13)]
    drawing.line([(x + 27 * math.cos(a), y - 27 * math.sin(a)) for a in arc], "soft", 1.2)
    drawing.text(x + 40, y - 14, "45°", "soft", 13)
    drawing.text((x + tip[0]) / 2, y + 14, "width", "soft", 13)
    drawing.text(x + radius + 6, 82, "height", "forward", 13, anchor="start")
    drawing.text(x - 20, 216, "position 1", bold=True)
    fine = [t / 10 for t in range(81)]
    drawing.line([(columns[0] + 54 * t, y - radius * math.sin(EIGHTH * t)) for t in fine], "forward", 1.4)
    for t, column in enumerate(columns):
        height = round(math.sin(EIGHTH * t), 3) + 0.0
        if height:
            drawing.line([(column, y), (column, y - radius * height)], "forward", 5)
        drawing.text(column, y + (14 if height > 0 else -13), height, size=13, bold=t == 1)
        drawing.text(column, 216, str(t), bold=t == 1)
    drawing.text(columns[-1] + 20, 30, "height of the tip", "forward", anchor="end")
    drawing.text(columns[0] - 16, 216, "position", anchor="end")
    return drawing


def two_hands() -> Drawing:
    """Positions 0 to 7 as two hands and as four numbers."""
    drawing = Drawing(760, 390)
    columns = [150 + 80 * t for t in range(8)]
    drawing.text(100, 18, "position", bold=True, anchor="end")
    for y, name, turn in (75, "fast hand", "1/4 turn"), (160, "slow hand", "1/8 turn"):
        drawing.text(100, y - 10, name, anchor="end")
        drawing.text(100, y + 10, turn, "soft", 13, anchor="end")
    rows = "height, fast", "width, fast", "height, slow", "width, slow"
    for t, x in enumerate(columns):
        drawing.text(x, 18, str(t), bold=True)
        dial(drawing, x, 75, QUARTER * t)
        dial(drawing, x, 160, EIGHTH * t)
        box = drawing.matrix(x, 295, [[value] for value in position(t)], "forward", 64, 38)
    for row, words in enumerate(rows):
        drawing.text(100, box.cell(0, row).y, words, "soft", 13, anchor="end")
    drawing.line([(columns[0] - 32, 295), (columns[-1] + 32, 295)], "soft", 1)
    return drawing


def three_to_the_left() -> Drawing:
    """The hands of position 5 turned back by 3 positions, and this query's scores with the keys of all positions."""
    drawing, t, k = Drawing(760, 448), 5, 3
    target = position(t - k)
    for row, (y, speed, turned) in enumerate(((60, QUARTER, "back by 3/4 turn"), (130, EIGHTH, "back by 3/8 turn"))):
        drawing.text(92, y, ("fast", "slow")[row], "soft", 13, anchor="end")
        dial(drawing, 140, y, speed * t)
        drawing.arrow((185, y), (345, y), "soft")
        drawing.text(262, y - 13, turned, "soft", 13)
        dial(drawing, 390, y, speed * (t - k))
    drawing.text(140, 16, f"position {t}", bold=True)
    drawing.text(390, 16, f"as at position {t - k}", bold=True)
    drawing.arrow((430, 95), (500, 95), "query")
    drawing.vector(615, 95, target.tolist(), "query", 54, above=f"query of position {t}")
    zero, unit = 258, 34
    drawing.text(92, zero, "score", bold=True, anchor="end")
    for s in range(8):
        x = 150 + 80 * s
        score = float(target @ position(s))
        drawing.rectangle(
            x, zero - unit * score / 2, 34, abs(unit * score), "ink", 0.78 if s == t - k else 0.35, outline=False
        )
        beside = zero - unit * score - (12 if score >= 0 else -12)
        drawing.text(x, beside, number(score), bold=s == t - k)
        drawing.matrix(x, 368, [[value] for value in position(s)], "key", 60, 24, size=13)
        drawing.text(x, 432, str(s), bold=True)
    drawing.line([(110, zero), (750, zero)], "line", 1.2)
    drawing.text(92, 368, "key", bold=True, anchor="end")
    drawing.text(92, 432, "position", bold=True, anchor="end")
    return drawing


def sums(backward: bool = False) -> Drawing:
    """Two sentences of a batch, their words plus the same positions; backward: with the gradients."""
    drawing = Drawing(840, 356 if backward else 310)
    cell, size, step = 33, 13, 108 if backward else 100
    x_word, x_sum, x_position = (76, 764), (248, 592), 420
    for x, words in zip((76, 248, 420, 592, 764), ("word", "sum", "position", "sum", "word")):
        drawing.text(x, 44, words, bold=True)
    drawing.text(162, 16, "sentence 1", "soft")
    drawing.text(678, 16, "sentence 2", "soft")
    for t in range(3):
        y = 92 + step * t
        place = drawing.vector(x_position, y, short(position(t)), "forward", cell, 30, size=size)
        drawing.text(x_position, y - 26, f"{t}", "soft", 13)
        for side, sentence in enumerate(SENTENCES):
            word = drawing.vector(x_word[side], y, WORDS[sentence[t]], "plain", cell, 30, size=size)
            drawing.text(x_word[side], y - 26, sentence[t], "soft", 13)
            total = np.add(WORDS[sentence[t]], position(t))
            added = drawing.vector(x_sum[side], y, short(total), cell=cell, height=30, size=size)
            if side == 0:
                drawing.arrow(word.right, added.left, "soft")
                drawing.arrow(place.left, added.right, "soft")
            else:
                drawing.arrow(word.left, added.right, "soft")
                drawing.arrow(place.right, added.left, "soft")
            if backward:
                for x in (x_sum[side], x_word[side]):
                    gradients(drawing, x, y + 30, ARRIVING[side][t], cell)
        if backward:
            gradients(drawing, x_position, y + 30, np.add(ARRIVING[0][t], ARRIVING[1][t]), cell)
    return drawing


def short(values: np.ndarray) -> list[str]:
    """With two decimals, to fit into narrow cells."""
    return [number(round(float(value), 2)) for value in values]


def gradients(drawing: Drawing, x: float, y: float, values: np.ndarray | tuple[int, ...], cell: float) -> None:
    """One gradient under each cell of a vector of four; its triangle points to where the loss gets smaller."""
    for i, value in enumerate(values):
        drawing.gradient(x + (i - 1.5) * cell - 1, y, -float(value), number(float(value), sign=True), 13, largest=4)
