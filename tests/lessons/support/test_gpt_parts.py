"""The pictures of lesson 22 are well-formed, the rest of `decode` is Python, and the counts are probabilities."""

import ast
from xml.etree import ElementTree

import numpy as np
import pytest

from exercises.source import source_of_ours
from support.gpt_parts import Counts, crossed_out, interval, rest, window, writing

DECODE = source_of_ours("transformer", "decode")


@pytest.mark.parametrize("drawing", [crossed_out(DECODE), window(False), window(True), writing()])
def test_each_picture_is_well_formed(drawing):
    assert ElementTree.fromstring(drawing.svg()).tag.endswith("svg")


def test_the_rest_of_the_decoder_knows_no_source():
    names = {node.id for node in ast.walk(ast.parse(rest(DECODE))) if isinstance(node, ast.Name)}
    assert "past" in names and not names & {"source", "memory", "mask", "cross", "cross_backward", "dmemory", "dshare"}


def test_the_interval_draws_sentences_and_not_characters():
    sentences = np.repeat(np.arange(50), 40)
    alike = np.random.default_rng(0).normal(size=50)[sentences]  # all of a sentence differ by the same
    low, high = interval(alike, sentences)
    assert low < alike.mean() < high and high - low == pytest.approx(4 * alike.std() / 50**0.5, rel=0.15)


def test_witten_and_bell_by_hand():
    counts = Counts("the the tha the", order=2)
    alone = (3 + 5 * 1 / 5) / (15 + 5)  # 3 of 15 characters, of 5 kinds
    assert counts.probability("h", "e") == pytest.approx((3 + 2 * alone) / (4 + 2))


@pytest.mark.parametrize("before", ["", "t", "th", "zz", "zth"])
def test_probabilities_add_up_to_1(before):
    counts = Counts("the the tha the ", order=3)
    assert sum(counts.probability(before, character) for character in "thea ") == pytest.approx(1)
