"""The drawings of lesson 09 are pictures, and show the numbers of its miniature."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from support import position_pictures as pictures


@pytest.mark.parametrize(
    "drawing",
    [
        pictures.one_hand(),
        pictures.two_hands(),
        pictures.three_to_the_left(),
        pictures.sums(),
        pictures.sums(backward=True),
    ],
)
def test_each_is_well_formed(drawing):
    assert ElementTree.fromstring(drawing.svg()).tag.endswith("svg")


def texts(drawing):
    return [re.sub("<[^>]+>", "", text) for text in re.findall("<text.*?</text>", drawing.svg())]


def test_a_position_is_height_and_width_of_two_hands():
    half = np.sqrt(0.5)
    assert np.allclose(pictures.position(1), [1, 0, half, half])
    assert np.allclose(pictures.position(5), [1, 0, -half, -half])
    assert np.allclose(pictures.position(8), pictures.position(0))


def test_the_curve_is_the_height_of_the_slow_hand():
    found = [float(text.replace("−", "-")) for text in texts(pictures.one_hand()) if re.fullmatch(r"−?[\d.]+", text)]
    heights = [pictures.position(t)[2] for t in range(9)]
    assert sorted(found) == pytest.approx(sorted(heights + list(range(9))), abs=1e-3)


def test_the_largest_score_is_three_to_the_left():
    found = texts(pictures.three_to_the_left())
    assert "position 5" in found and "as at position 2" in found
    assert found.count("0.707") == 2 + 4  # scores, and numbers of the keys


def test_a_row_of_positions_gets_what_both_sentences_send():
    found = texts(pictures.sums(backward=True))
    assert found.count("+3") == 3  # a sum, its word, and position 0
    assert len(found) - len(texts(pictures.sums())) == 15 * 4


def test_a_triangle_points_against_the_gradient():
    """Up, which is to a smaller y, for a number that must grow to make the loss smaller."""
    drawing = pictures.Drawing(100, 100)
    pictures.gradients(drawing, 50, 50, (1, -2, 0, 0), 20)
    tips = [np.array(re.findall(r"([\d.]+),([\d.]+)", part), float)[:, 1] for part in drawing.parts if "points" in part]
    assert [np.sign(tip[2] - tip[0]) for tip in tips] == [1, -1]
    assert texts(drawing) == ["+1", "−2", "0", "0"]
