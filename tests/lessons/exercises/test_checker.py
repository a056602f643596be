"""The checker on an exercise made for these tests: an embedding whose table is used twice."""

import numpy as np
import pytest

from exercises.catalogue import EXERCISES
from exercises.checker import Crashed, check
from exercises.exercise import Backward, Break, Build, Result
from exercises.numeric import numeric_gradient
from scratchformer.nn.ops import Ops

REFERENCE = Ops(np)
V, D = 6, 4


def shares(dy, ids, E):
    """The gradient that the table gets as embedding, and as output matrix."""
    dx, of_embedding, of_output = dy @ E, np.zeros_like(E), dy.reshape(-1, V).T @ E[ids].reshape(-1, D)
    np.add.at(of_embedding, ids, dx)
    return of_embedding, of_output


def tied_backward(dy, ids, E):
    return {"dx": dy @ E, "dE": sum(shares(dy, ids, E))}


def is_repeated(ids):
    """(V, 1) bool"""
    return np.bincount(ids.ravel(), minlength=V)[:, None] > 1


def make(exercise_type, function, arguments, solution, **fields):
    return exercise_type(
        id="08_tied",
        title="Tied",
        function=function,
        arguments=arguments,
        solution=solution,
        library=(),
        hints=("", "", ""),
        **fields,
    )


TIED = make(
    Backward,
    "tied_backward",
    ("dy", "ids", "E"),
    tied_backward,
    cases={
        "repeated words": lambda random: {"ids": np.array([[1, 2, 1], [3, 1, 3]]), "E": random.normal(size=(V, D))},
        "no word twice": lambda random: {"ids": np.array([[4, 0]]), "E": random.normal(size=(V, D))},
    },
    forward={"x": lambda ids, E: E[ids], "y": lambda x, E: x @ E.T},
    gradients=(
        Result("dx"),
        Result(
            "dE",
            terms={
                "the share of the embedding": lambda dy, ids, E: shares(dy, ids, E)[0],
                "the share of the output matrix": lambda dy, ids, E: shares(dy, ids, E)[1],
            },
            regions={"only the rows of repeated words are wrong: np.add.at": is_repeated},
        ),
    ),
)


def said(**changes):
    """The verdict on the right answer with some gradients changed: name -> function of dy, ids, E and the gradient."""

    def answer(dy, ids, E):
        gradients = tied_backward(dy, ids, E)
        return gradients | {name: change(dy, ids, E, gradients[name]) for name, change in changes.items()}

    return check(TIED, answer)


def test_the_right_answer_passes():
    verdict = check(TIED, tied_backward)
    assert verdict.state == "passed" and verdict.message.startswith("dx, dE: right in all 6 situations")


@pytest.mark.parametrize(
    "change, diagnosis",
    [
        (lambda dy, ids, E, dE: shares(dy, ids, E)[0], "dE is wrong: the share of the output matrix is missing"),
        (lambda dy, ids, E, dE: shares(dy, ids, E)[1], "dE is wrong: the share of the embedding is missing"),
        (
            lambda dy, ids, E, dE: dE + shares(dy, ids, E)[0],
            "dE is wrong: the share of the embedding is counted 2 times",
        ),
        (
            lambda dy, ids, E, dE: dE - 2 * shares(dy, ids, E)[1],
            "dE is wrong: the share of the output matrix has the wrong sign",
        ),
        (lambda dy, ids, E, dE: dE.T, "dE is wrong: shape (4, 6), expected (6, 4): transposed"),
        (
            lambda dy, ids, E, dE: dE[None],
            "dE is wrong: shape (1, 6, 4), expected (6, 4): an axis of length 1 is left over",
        ),
        (
            lambda dy, ids, E, dE: dE.sum(axis=0),
            "dE is wrong: shape (4,), expected (6, 4): an axis is summed over, or lost," " that should be there",
        ),
        (lambda dy, ids, E, dE: dE[:2], "dE is wrong: shape (2, 4), expected (6, 4)"),
        (lambda dy, ids, E, dE: 0 * dE, "dE is wrong: zero everywhere"),
        (lambda dy, ids, E, dE: -dE, "dE is wrong: the sign is flipped"),
        (lambda dy, ids, E, dE: 7 * dE, "dE is wrong: 7 times what it should be, everywhere"),
        (
            lambda dy, ids, E, dE: dE / len(ids),
            "dE is wrong: 0.5 times what it should be: divided by 2, a mean where the sum is meant",
        ),
        (
            lambda dy, ids, E, dE: dE * np.unique(ids).size,
            "dE is wrong: all elements are wrong by one factor, which depends on the case: 3 for",
        ),
        (
            lambda dy, ids, E, dE: tied_backward(np.ones_like(dy), ids, E)["dE"],
            "dE is wrong: right only for an upstream gradient of all ones: the gradient of the output is ignored",
        ),
        (
            lambda dy, ids, E, dE: dE + np.nan,
            "dE is wrong: it holds nan: a division by 0, a logarithm of 0, or an exp that " "overflows",
        ),
        (lambda dy, ids, E, dE: np.where(dE > 0, np.inf, 1.0), "dE is wrong: it holds inf: a division by 0"),
        (
            lambda dy, ids, E, dE: dE.astype(np.float32).astype(float) * (1 + 1e-5 * np.eye(V, D)),
            "dE is wrong: close, but",
        ),
        (
            lambda dy, ids, E, dE: dE + (len(ids) > 1) * np.eye(V, D),
            "dE is wrong: right for: no word twice; wrong for: repeated words. What is different there?",
        ),
        (lambda dy, ids, E, dE: dE + (dy[0, 0, 0] > 0.3) * np.eye(V, D), "dE is wrong: right for some random numbers"),
        (lambda dy, ids, E, dE: dE + np.eye(V, D), "dE is wrong: wrong, and like no mistake that is known here"),
        (lambda dy, ids, E, dE: None, "dE is None: is the return missing?"),
        (lambda dy, ids, E, dE: dE.astype(np.float32), "dE is float32: somewhere float64 was lost"),
        (lambda dy, ids, E, dE: dE + 0j, "dE is an array of complex128, and should hold float64"),
        (lambda dy, ids, E, dE: "zero", "dE is a str, and should be an array"),
        (lambda dy, ids, E, dE: [[1.0], []], "dE is a list whose parts differ in length, and should be an array"),
    ],
)
def test_a_wrong_gradient_is_told_what_it_is(change, diagnosis):
    verdict = said(dE=change)
    assert verdict.state == "not yet" and verdict.diagnosis.startswith(diagnosis)
    if "wrong: " in diagnosis:
        assert "right so far: dx" in verdict.message and "truth" in verdict.message


@pytest.mark.parametrize(
    "factor, second",
    [(-1, "the sign is flipped"), (3, "all of it is 3 times that"), (None, "1 / sqrt(d_k) is missing")],
)
def test_two_mistakes_at_once_are_both_told(factor, second):
    def answer(dy, q, k, v, weights):
        scale = np.sqrt(q.shape[-1]) if factor is None else factor
        gradients = EXERCISES["04_attention_backward"].solution(dy, q, k, v, weights)
        return gradients | {"dscores": scale * weights * (1 - weights) * gradients["dweights"]}

    told = check(EXERCISES["04_attention_backward"], answer).diagnosis
    assert "two mistakes at once: softmax is taken element by element" in told and second in told


def test_repeated_words_that_overwrite_each_other():
    def overwritten(dy, ids, E, dE):
        wrong = shares(dy, ids, E)[1]
        wrong[ids] += dy @ E
        return wrong

    assert said(dE=overwritten).diagnosis == "dE is wrong: only the rows of repeated words are wrong: np.add.at"


def test_the_first_wrong_gradient_is_told_and_what_follows_is_not_looked_at():
    verdict = said(dx=lambda dy, ids, E, dx: -dx, dE=lambda dy, ids, E, dE: 0 * dE)
    assert verdict.diagnosis == "dx is wrong: the sign is flipped" and "dE" not in verdict.message


def test_swapped_names():
    verdict = check(TIED, lambda dy, ids, E: dict(zip(("dE", "dx"), tied_backward(dy, ids, E).values())))
    assert verdict.diagnosis == "dx is wrong: this is dE: the two are swapped"


@pytest.mark.parametrize(
    "returned, diagnosis",
    [
        (None, "the function returns None: is the return missing?; it should return a dict with dx, dE"),
        (np.zeros(3), "the function returns a ndarray; it should return a dict with dx, dE"),
        ({"dx": 0.0, "dW": 0.0}, "the function returns dW, which nobody asked for; wanted: dx, dE"),
        ({}, "dx is missing in what the function returns"),
    ],
)
def test_what_is_no_dict_of_the_gradients(returned, diagnosis):
    assert check(TIED, lambda dy, ids, E: returned).diagnosis == diagnosis


def test_the_first_gradients_alone_are_checked_before_the_next_is_missed():
    assert check(TIED, lambda dy, ids, E: {"dx": dy @ E}).diagnosis == "dE is missing in what the function returns"
    assert check(TIED, lambda dy, ids, E: {"dx": dy @ -E}).diagnosis == "dx is wrong: the sign is flipped"


def test_a_changed_argument_is_told():
    def answer(dy, ids, E):
        gradients = tied_backward(dy, ids, E)
        E *= 2
        return gradients

    assert check(TIED, answer).diagnosis == "the argument E is changed in place: work on a copy"


def test_a_missing_argument_is_told():
    assert check(TIED, lambda dy, ids: {}).diagnosis == "the function must take these arguments: dy, ids, E"


def test_what_is_not_written_is_not_wrong():
    def answer(dy, ids, E):
        raise NotImplementedError

    assert check(TIED, answer).state == "not written"


def test_an_array_of_many_axes_is_told_in_no_time():
    verdict = said(dE=lambda dy, ids, E, dE: dE[(None,) * 20])
    assert verdict.diagnosis.startswith(f"dE is wrong: shape {(1,) * 20 + (6, 4)}, expected (6, 4)")


def test_an_error_says_for_which_arguments():
    with pytest.raises(Crashed, match=r"called with dy \(2, 3, 6\), ids \(2, 3\), E \(6, 4\):") as crash:
        check(TIED, lambda dy, ids, E: 1 / 0)
    assert isinstance(crash.value.__cause__, ZeroDivisionError)


def test_T_of_more_than_two_axes_is_explained_and_other_errors_are_not():
    def reversed_axes(dy, ids, E):
        return {"dx": dy @ E, "dE": dy.T @ E[ids]}

    def other_shapes(dy, ids, E):
        return {"dx": dy @ E[1:], "dE": E}

    for answer, advice in (reversed_axes, True), (other_shapes, False):
        with pytest.raises(Crashed) as crash:
            check(TIED, answer)
        assert ("swapaxes(-1, -2) exchanges the last two" in str(crash.value)) == advice


def test_one_array_under_two_names_is_told():
    def changed_in_place(dy, ids, E):
        gradients = tied_backward(dy, ids, E)
        E_again = np.resize(gradients["dx"], gradients["dE"].shape)
        E_again[...] = gradients["dE"]
        return {"dx": E_again, "dE": E_again}

    assert check(TIED, changed_in_place).diagnosis.startswith("dx is wrong: this is dE, one and the same array")


def test_lists_of_different_lengths_are_shown_whole():
    verdict = check(COUNT, lambda words: [words.count(word) for word in range(6)])
    *_, yours, truth = verdict.message.splitlines()
    assert len(yours.split()) == 1 + 6 and len(truth.split()) == 1 + 5


def test_the_corner_shows_where_the_largest_difference_is():
    verdict = said(dE=lambda dy, ids, E, dE: dE + 5 * np.eye(V, D, -2))
    lines = verdict.message.splitlines()
    assert lines[0].endswith("What is different there?") or "like no mistake" in lines[0]
    (heading,) = [line for line in lines if "dE[" in line]
    first, last = map(int, heading.split("[")[1].split(",")[0].split(":"))
    assert last - first == 3 and len(lines) == lines.index(heading) + 5


# Build and break ------------------------------------------------------------------------------------------------------

COUNT = make(
    Build,
    "count",
    ("words",),
    lambda words: np.bincount(words, minlength=5),
    cases={
        "some words": lambda random: {"words": list(random.integers(0, 5, 7))},
        "no words": lambda random: {"words": []},
    },
    expected=lambda words: np.array([words.count(word) for word in range(5)]),
    result=Result("counts", suspects={"counted from 1": lambda truth: np.roll(truth, 1)}),
)


@pytest.mark.parametrize(
    "answer, diagnosis",
    [
        (lambda words: [words.count(word) for word in range(5)], ""),
        (lambda words: np.roll(np.bincount(np.array(words, int), minlength=5), 1), "counts: counted from 1"),
        (lambda words: np.array([words.count(word) for word in range(6)]), "counts: shape (6,), expected (5,)"),
        (
            lambda words: np.array([float(words.count(word)) for word in range(5)]),
            "counts is an array of float64, and should hold int64",
        ),
        (
            lambda words: [words.count(word) > 0 for word in range(5)],
            "counts is an array of bool, and should hold int64",
        ),
        (lambda words: None, "counts is None: is the return missing?"),
        (
            lambda words: words.sort() or np.bincount(np.array(words, int), minlength=5),
            "the argument words is changed in place: work on a copy",
        ),
        (
            lambda words: np.bincount(np.array(words, int), minlength=5) if words else np.ones(5, int),
            "counts: right for: some words; wrong for: no words. What is different there?",
        ),
    ],
)
def test_whole_numbers_are_compared_exactly(answer, diagnosis):
    verdict = check(COUNT, answer)
    assert verdict.diagnosis == diagnosis and (verdict.state == "passed") == (not diagnosis)


def test_a_break_succeeds_when_nothing_is_left_to_complain_about():
    exercise = make(Break, "f", ("x",), None, complaint=lambda f: None if f(3) > 3 else "too small")
    assert check(exercise, lambda x: 4).state == "passed"
    assert check(exercise, lambda x: 2) == ("not yet", "too small", "too small")


# The truth ------------------------------------------------------------------------------------------------------------


def test_the_numeric_gradient_leaves_x_as_it_was_and_is_right():
    x = np.random.default_rng(0).normal(size=(2, 3))
    before = x.copy()
    np.testing.assert_allclose(numeric_gradient(lambda x: float((x**3).sum()), x), 3 * x**2, atol=1e-8)
    assert np.array_equal(x, before)
