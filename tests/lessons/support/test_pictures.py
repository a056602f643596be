"""The drawings of the lessons are pictures, and show the numbers of their miniatures."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from support import beam_pictures, mask_pictures, position_pictures, translator_pictures
from support.beam_pictures import BEST, CONFUSED, DROPPED, GREEDY, NEXT, PLACES, RANKS, probability

DRAWINGS = [
    *(mask_pictures.shift, mask_pictures.by_hand, mask_pictures.masks),
    *(position_pictures.one_hand, position_pictures.two_hands, position_pictures.three_to_the_left),
    *(position_pictures.sums, beam_pictures.tree, beam_pictures.beam, beam_pictures.confused),
]


@pytest.mark.parametrize("picture", DRAWINGS)
def test_each_is_well_formed(picture):
    assert ElementTree.fromstring(picture().svg()).tag.endswith("svg")


def texts(drawing):
    return [re.sub("<[^>]+>", "", text) for text in re.findall("<text.*?</text>", drawing.svg())]


def test_the_miniature_of_the_masks():
    found = texts(mask_pictures.by_hand())
    assert [text for text in found if "/" in text and "·" not in text] == "1/4 3/4 1/8 2/8 5/8 1/8 1/8 5/8 1/8".split()
    assert found.count("−∞") == 6 and found.count("8") == 4  # twice a sum, a value and an answer
    gradients = [text for text in texts(mask_pictures.by_hand(backward=True)) if re.fullmatch(r"[+−][\d.]+", text)]
    wanted = "+1.5 +1.125 +1.25 +0.125 −0.75 +0.75 −0.75 −0.5 +1.25 −1 −0.5 +1.5 +1 +1 +1 +1".split()
    assert sorted(gradients) == sorted(wanted)


def test_maps_leave_hidden_cells_empty_and_frame_the_next_word():
    figure = mask_pictures.maps(["<s>", "the", "boy", "</s>"], {"A": np.tri(3) / 3, "B": np.full((3, 3), 1 / 3)})
    left, right = figure.axes[:2]
    np.testing.assert_array_equal(left.images[0].get_array().mask, ~np.tri(3, dtype=bool))
    assert not right.images[0].get_array().mask.any()
    assert [frame.get_xy() for frame in left.patches] == [(0.5, -0.5), (1.5, 0.5)]


def test_the_miniature_of_the_positions():
    half = np.sqrt(0.5)
    assert np.allclose(position_pictures.position(1), [1, 0, half, half])
    assert np.allclose(position_pictures.position(5), [1, 0, -half, -half])
    found = texts(position_pictures.three_to_the_left())
    assert "position 5" in found and "as at position 2" in found
    assert found.count("0.707") == 2 + 4  # scores, and numbers of the keys
    found = texts(position_pictures.sums(backward=True))
    assert found.count("+3") == 3  # a sum, its word, and position 0
    assert len(found) - len(texts(position_pictures.sums())) == 15 * 4


def test_the_miniature_of_the_beams_is_a_model():
    assert all(sum(after.values()) == pytest.approx(1) for after in NEXT.values())
    pairs = [words for words in NEXT if len(words) == 2]
    whole = {(*words, piece): probability((*words, piece)) for words in pairs for piece in NEXT[words]}
    assert sum(whole.values()) == pytest.approx(1)
    ended = {words: p for words, p in whole.items() if words[-1] == "</s>"}
    assert max(ended, key=ended.get) == BEST and probability(BEST) == pytest.approx(0.288)
    words = ()
    while words in NEXT:
        words = (*words, max(NEXT[words], key=NEXT[words].get))
    assert words == GREEDY and probability(GREEDY) == pytest.approx(0.18)


def test_the_rows_are_the_ranks_of_a_beam_of_2():
    for t in 1, 2:
        ranked = sorted((words for words in PLACES if len(words) == t), key=probability, reverse=True)
        assert [RANKS.get(words) for words in ranked[:2]] == [0, 1]
        assert set(ranked[2:]) == {words for words in DROPPED if len(words) == t}
    for words, taken_for in CONFUSED.items():
        assert taken_for in DROPPED and taken_for[1] == words[1] and taken_for[0] != words[0]


def test_zoom_shows_the_numbers_that_it_is_given():
    vectors = np.array([[0.11, 0.22, 0.33, 9.99], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]])
    side = translator_pictures.Side("a b c d", ["a", "b", "c", "d"], [7, 8, 9, 1234], vectors)
    best = [translator_pictures.Candidate("es", 9.82, 0.895)]
    picture = translator_pictures.zoom(side, -vectors, 14, side, np.array([4.44, 5.55, 6.66]), best).svg()
    for shown in "0.22", "−0.33", "1234", "6.66", "9.82", "0.895", "1,599 more tokens", "all 14 new vectors":
        assert f">{shown}<" in picture or shown in picture
    assert "9.99" not in picture


def test_loop_looks_and_exchange_mark_what_differs():
    rows = [("one", [("Das", 0.9), ("es", 0.8)]), ("two", [("Das", 0.9), ("sie", 0.7)])]
    assert translator_pictures.loop(rows).svg().count('font-weight="600"') == 2
    assert translator_pictures.looks([("Ger", [("Das", 0.9), ("es", 0.08)])]).svg().count('font-weight="600"') == 2
    one, other = "it is too tired . </s>".split(), "it is too wide . </s>".split()
    picture = translator_pictures.exchange(one, other, 3, "Das\nweil").svg()
    assert picture.count(">tired<") == 1 and picture.count(">wide<") == 2 and picture.count(">is<") == 3
