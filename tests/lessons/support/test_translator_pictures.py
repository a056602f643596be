import numpy as np
import pytest

from support.translator_pictures import Candidate, Side, exchange, loop, two, zoom


@pytest.mark.parametrize(("value", "words"), [(0.125, "0.12"), (-2.834, "−2.83"), (3, "3.00")])
def test_two_decimals_and_a_true_minus(value, words):
    assert two(value) == words


def test_zoom_shows_the_numbers_that_it_is_given():
    vectors = np.array([[0.11, 0.22, 0.33, 9.99], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]])
    side = Side("a b c d", ["a", "b", "c", "d"], [7, 8, 9, 1234], vectors)
    picture = zoom(side, -vectors, 14, side, np.array([4.44, 5.55, 6.66]), [Candidate("es", 9.82, 0.895)]).svg()
    for shown in "0.22", "−0.33", "1234", "6.66", "9.82", "0.895", "1,599 more tokens", "all 14 new vectors":
        assert f">{shown}<" in picture or shown in picture
    assert "9.99" not in picture


def test_loop_marks_where_the_sentences_differ():
    picture = loop([("one", [("Das", 0.9), ("es", 0.8)]), ("two", [("Das", 0.9), ("sie", 0.7)])]).svg()
    assert picture.count('font-weight="600"') == 2
    assert "0.70" in picture


def test_exchange_takes_one_vector_from_the_other_sentence():
    one, other = "it is too tired . </s>".split(), "it is too wide . </s>".split()
    picture = exchange(one, other, 3, "Das\nweil").svg()
    assert picture.count(">tired<") == 1 and picture.count(">wide<") == 2
    assert picture.count(">is<") == 3
    assert "“… it is too wide”" in picture
