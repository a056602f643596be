"""The drawn pictures: well-formed SVG, numbers as they are read, shapes where arrows look for them."""

import re
from xml.etree import ElementTree

import pytest

from support.drawing import COLOURS, Box, Drawing, number, small_letters

SVG = "{http://www.w3.org/2000/svg}"


def test_everything_that_can_be_drawn_is_well_formed_and_in_colours_of_both_schemes():
    drawing = Drawing(400, 300)
    query = drawing.vector(80, 50, (1.41, "a < b"), "query", above="query & more", below="d_k")
    key = drawing.matrix(300, 50, [[1, 2], [3, 4]], "key", shades=[[0, 1], [0.5, 0]])
    drawing.vector(80, 150, (0.5, -1), "gradient")
    drawing.arrow(query.right, key.left, "gradient", label="q · k", bend=10)
    drawing.thread(key.bottom, (100, 200), 0.5)
    drawing.bar(50, 250, 0.25, below="1/4")
    drawing.box(200, 250, "two\nlines", "value")
    drawing.circle(300, 250, 20, words="x")
    drawing.gradient(350, 250, -0.25)
    root = ElementTree.fromstring(drawing.svg())
    assert root.get("viewBox") == "0 0 400 300"
    words = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert {"1.41", "a < b", "query & more", "+0.5", "−1", "q · k", "1/4", "two", "lines", "−0.25"} <= set(words)
    used = set(re.findall(r"var\(--(\w+)\)", drawing.svg()))
    assert used <= COLOURS.keys() and {"query", "key", "gradient", "value"} <= used


def test_a_box_has_its_edges_and_cells():
    box = Box(100, 50, 80, 40, columns=4, rows=2)
    assert (box.left, box.right, box.top, box.bottom) == ((60, 50), (140, 50), (100, 30), (100, 70))
    assert box.cell(0) == Box(70, 40, 20, 20) and box.cell(3, 1) == Box(130, 60, 20, 20)


@pytest.mark.parametrize(
    "value, sign, text",
    [
        (1.375, False, "1.375"),
        (-0.04687, True, "−0.047"),
        (0.39, True, "+0.39"),
        (-1e-9, True, "0"),
        ("ln 2", True, "ln 2"),
    ],
)
def test_numbers_have_three_decimals_and_a_true_minus(value, sign, text):
    assert number(value, sign) == text


def test_small_letters_return_to_the_line():
    found = small_letters("d_k + e^{2z}", 10)
    assert re.sub("<.*?>", "", found) == "dk + e2z\u200b".replace("\u200b", "&#8203;")
    assert sum(map(float, re.findall('dy="(.*?)"', found))) == pytest.approx(0)
    assert small_letters("a < b", 10) == "a &lt; b"


@pytest.mark.parametrize("up, value", [(True, 0.4), (False, -0.4)])
def test_the_triangle_of_a_gradient_points_where_the_number_should_go(up, value):
    drawing = Drawing(100, 100)
    drawing.gradient(50, 50, value)
    corners = [tuple(map(float, pair.split(","))) for pair in re.search('points="(.*?)"', drawing.parts[0])[1].split()]
    heights = sorted(y for _, y in corners)
    tip = heights[0] if up else heights[-1]
    assert heights.count(tip) == 1
