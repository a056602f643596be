"""Every function that a learner writes: ours is right, and each mistake that is foreseen is found and told."""

import re

import pytest

from exercises.catalogue import FUNCTIONS
from exercises.checker import SEEDS, check, make, outcome, sizes
from exercises.observe import names_of
from exercises.source import ours

EVERY_FUNCTION = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@EVERY_FUNCTION
def test_ours_is_right(function):
    verdict = check(function, ours(function.file))
    assert verdict.state == "passed", verdict.message


@pytest.mark.parametrize(
    "function, mistake",
    [
        pytest.param(
            function, mistake, id=f"{function.name}: {mistake.why[:50]}", marks=[pytest.mark.slow] if number else []
        )
        for function in FUNCTIONS.values()
        for number, mistake in enumerate(function.mistakes)
    ],
)
def test_a_mistake_is_found_and_told_by_its_own_sentence(function, mistake):
    verdict = check(function, ours(function.file, function.name, mistake.edits))
    assert verdict.state == "not yet"
    assert verdict.diagnosis.endswith(mistake.why), verdict.diagnosis


@EVERY_FUNCTION
def test_the_first_hint_is_made_of_sentences_and_an_explanation_goes_on_after_a_colon(function):
    rule, formula = function.hints
    assert rule.endswith(".") and formula != rule
    for mistake in function.mistakes:
        assert not mistake.why.endswith(".") and not re.match("[A-Z][a-z ]", mistake.why)


@EVERY_FUNCTION
def test_all_sizes_differ_in_the_first_case(function):
    found, _ = sizes(function, next(iter(function.cases)), 0)
    assert len(set(found.values())) == len(found), found


@EVERY_FUNCTION
def test_shapes_name_arguments_and_results(function):
    known = set()
    for words in function.cases:
        known |= {*names_of(function, make(function, words, 0))}
        known |= {*outcome(function, ours(function.file), words, SEEDS[0]).values}
    assert set(function.shapes) <= known
