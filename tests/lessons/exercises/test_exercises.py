"""Every exercise can be solved with the library, and every classic wrong answer is told what is wrong with it."""

import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from mistakes import FOLDER, judged, table_rows

from exercises import lesson_00
from exercises.catalogue import EXERCISES
from exercises.checker import SEEDS, arguments_of, call, check, situations
from exercises.diagnosis import Comparison, diagnose, take
from exercises.exercise import Backward, Build
from exercises.workbook import stub
from scratchformer.text import bundled

PAGE = Path(__file__).parents[3] / "docs" / "lessons" / "wrong_answers.md"
EVERY_EXERCISE = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


@EVERY_EXERCISE
def test_the_solution_passes(exercise):
    verdict = check(exercise, exercise.solution)
    assert verdict.state == "passed", verdict.message


@pytest.mark.slow
@EVERY_EXERCISE
def test_wrong_answers_are_told_each_its_own_mistake(exercise):
    """And the page shows what they are told."""
    answers = judged(exercise.id)
    assert len(answers) >= 4
    for wrong in answers:
        assert wrong.verdict.state == "not yet", wrong.mistake
        assert wrong.explanation in wrong.verdict.diagnosis, wrong.mistake
    diagnoses = {re.sub(r"^\w+ is wrong: ", "", wrong.verdict.diagnosis) for wrong in answers}
    assert len(diagnoses) == len(answers)
    assert table_rows(exercise.id, answers) in PAGE.read_text(encoding="utf-8"), "python tools/wrong_answers.py"


def test_every_file_of_wrong_answers_belongs_to_an_exercise():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXERCISES)


# What an exercise knows of mistakes -----------------------------------------------------------------------------------

RESULTS = [
    (exercise, result)
    for exercise in EXERCISES.values()
    for result in (
        exercise.gradients
        if isinstance(exercise, Backward)
        else [exercise.result] if isinstance(exercise, Build) else []
    )
]


def every_result(field=""):
    """All results, or those whose `field` is not empty."""
    return pytest.mark.parametrize(
        "exercise, result",
        [pair for pair in RESULTS if not field or getattr(pair[1], field)],
        ids=lambda one: getattr(one, "id", "") or one.name,
    )


def right_comparisons(exercise, result):
    """Of all cases and seeds, as a right answer would give them."""
    if isinstance(exercise, Backward):
        return [
            Comparison(
                result.name,
                place.words,
                place.seed,
                {**place.values, **place.truth},
                place.truth[result.name],
                place.truth[result.name],
                place.truth,
                place.output_shape,
            )
            for place in situations(exercise)
        ]
    comparisons = []
    for words, case in exercise.cases.items():
        for seed in SEEDS:
            values = case(np.random.default_rng(seed))
            truth = np.asarray(take(exercise.expected, values))
            call(exercise.solution, arguments_of(exercise, values))  # some values watch what is done
            comparisons.append(
                Comparison(
                    result.name,
                    words,
                    seed,
                    values,
                    truth,
                    truth,
                    {result.name: truth},
                    truth.shape,
                    exercise.tolerance,
                )
            )
    return comparisons


def what_is_said(exercise, result, mistake):
    """The diagnosis if `mistake` makes yours from a right comparison."""
    comparisons = [one._replace(yours=np.asarray(mistake(one))) for one in right_comparisons(exercise, result)]
    assert not all(one.right for one in comparisons), "that is not a mistake"
    return diagnose(result, comparisons)


@pytest.mark.slow
@every_result("suspects")
def test_every_suspect_is_recognised(exercise, result):
    for words, suspect in result.suspects.items():
        assert what_is_said(exercise, result, lambda one: one.ask(suspect)) == words


@every_result("factors")
def test_every_missing_factor_is_recognised(exercise, result):
    for words, factor in result.factors.items():
        said = what_is_said(exercise, result, lambda one: one.truth / one.ask(factor))
        assert said.endswith(f"the factor {words} is missing")


@every_result("regions")
def test_every_region_is_recognised(exercise, result):
    for words, region in result.regions.items():
        noise = np.random.default_rng(0).normal
        said = what_is_said(exercise, result, lambda one: one.truth + one.ask(region) * noise(size=one.truth.shape))
        assert said == words


@every_result("terms")
def test_every_term_is_recognised_and_the_terms_add_up(exercise, result):
    terms = [lambda one, term=term: one.ask(term) for term in result.terms.values()]
    for one in right_comparisons(exercise, result):
        np.testing.assert_allclose(sum(term(one) for term in terms), one.truth, rtol=1e-6, atol=1e-8)
    for words, term in zip(result.terms, terms):
        said = what_is_said(exercise, result, lambda one: one.truth - 3 * term(one))
        assert said == f"{words} is counted -2 times"


@every_result("symptoms")
def test_no_symptom_is_seen_in_a_right_answer(exercise, result):
    comparisons = right_comparisons(exercise, result)
    for symptom in result.symptoms.values():
        assert not all(one.ask(symptom) for one in comparisons)


@pytest.mark.slow
@every_result()
def test_no_true_result_is_zero_in_the_first_case(exercise, result):
    """If one were, any answer proportional to it would pass."""
    assert all(np.abs(one.truth).max() > 0.01 for one in right_comparisons(exercise, result)[: len(SEEDS)])


# Text -----------------------------------------------------------------------------------------------------------------


@EVERY_EXERCISE
def test_the_stub_says_what_is_to_do_and_has_the_signature_of_the_solution(exercise):
    text = stub(exercise)
    assert ast.get_docstring(ast.parse(text)).startswith(f"{exercise.id}: ")
    assert f"(lesson {exercise.lesson})" in text
    (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert (function.name, tuple(argument.arg for argument in function.args.args)) == (
        exercise.function,
        exercise.arguments,
    )
    assert tuple(inspect.signature(exercise.solution).parameters) == exercise.arguments
    assert text.endswith('\n\nif __name__ == "__main__":\n    raise SystemExit(check_file(__file__))\n')


@EVERY_EXERCISE
def test_hints_are_three_and_grow_no_longer_than_a_paragraph(exercise):
    assert len(exercise.hints) == 3
    assert all(text.endswith((".", "?")) and 20 < len(text) < 500 for text in exercise.hints)


def test_the_sentence_of_lesson_0_is_aligned_as_in_the_corpus():
    (example,) = [each for each in bundled.read("test") if each.source == lesson_00.SENTENCE.source]
    assert example._replace(tree="") == lesson_00.SENTENCE
    assert len(set(lesson_00.ENGLISH)) == len(lesson_00.ENGLISH) == len(set(lesson_00.GERMAN))
