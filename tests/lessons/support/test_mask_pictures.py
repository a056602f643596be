"""The drawings of lesson 06 are pictures, and show the numbers of its miniature."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from support import mask_pictures


@pytest.mark.parametrize(
    "picture", [mask_pictures.shift, mask_pictures.loop, mask_pictures.by_hand, mask_pictures.masks]
)
def test_each_is_well_formed(picture):
    assert ElementTree.fromstring(picture().svg()).tag.endswith("svg")


def texts(drawing):
    return [re.sub("<[^>]+>", "", text) for text in re.findall("<text.*?</text>", drawing.svg())]


def test_forward_shows_the_fractions_and_the_answers():
    found = texts(mask_pictures.by_hand())
    assert [text for text in found if "/" in text and "·" not in text] == "1/4 3/4 1/8 2/8 5/8 1/8 1/8 5/8 1/8".split()
    assert found.count("−∞") == 6 and found.count("8") == 4  # twice a sum, a value and an answer


def test_backward_shows_each_gradient_once():
    found = texts(mask_pictures.by_hand(backward=True))
    gradients = [text for text in found if re.fullmatch(r"[+−][\d.]+", text)]
    assert sorted(gradients) == sorted(
        "+1.5 +1.125 +1.25 +0.125 −0.75 +0.75 −0.75 −0.5 +1.25 −1 −0.5 +1.5 +1 +1 +1 +1".split()
    )
    assert (
        mask_pictures.by_hand(backward=True).svg().count('fill="var(--gradient)" font-style="italic"')
        == len(gradients) + 6 + 2
    )  # zeros: six forbidden scores, <s> alone, and "animal" in row "slept"


def test_maps_leave_hidden_cells_empty_and_frame_the_next_word():
    figure = mask_pictures.maps(["<s>", "the", "boy", "</s>"], {"A": np.tri(3) / 3, "B": np.full((3, 3), 1 / 3)})
    left, right = figure.axes[:2]
    np.testing.assert_array_equal(left.images[0].get_array().mask, ~np.tri(3, dtype=bool))
    assert not right.images[0].get_array().mask.any()
    assert [frame.get_xy() for frame in left.patches] == [(0.5, -0.5), (1.5, 0.5)]
    assert [label.get_text() for label in left.get_yticklabels()] == ["<s> → the", "the → boy", "boy → </s>"]
