"""Every function that a learner writes: ours is right, and each mistake that is foreseen is found and told."""

import re

import pytest

from exercises.catalogue import FUNCTIONS
from exercises.checker import SEEDS, Crashed, check, make, outcome, sizes
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


LOOP = "        backwards += [attention_backward, ffn_backward]"


@pytest.mark.parametrize(
    "name, told, edits",
    [
        ("linear", "right in 4 cases", [("W.grad +=", "W.grad = W.grad +")]),
        ("linear", "W.grad is overwritten: gradients add up", [("W.grad +=", "W.grad =")]),
        ("linear", "W.data is changed: only `adam`", [("W.grad +=", "W.data +=")]),
        ("linear", "'btd,df->btf', x (2, 3, 4), W.data (4, 5):\n(.*calculate with W.data", [("x, W.data)", "x, W)")]),
        ("softmax", "it is normalized over the positions t", [
            ("p = np.exp(log_softmax(np.where(mask, scores, -np.inf)))",
             "e = np.exp(np.where(mask, scores, -1e9)); p = e / e.sum(axis=-2, keepdims=True)")]),
        ("positional_encoding", "it holds whole numbers", [("reshape(t, d_model)", "reshape(t, d_model).astype(int)")]),
        ("encode", "add_and_norm is called twice; each", [
            (LOOP, "        backwards += [lambda dx: (sum(attention_backward(sum(ffn_backward(dx)))),)]")]),
        ("layer_norm", "backward of layer_norm returns None.*right so far: y", [("return (dn", "(dn")]),
        ("new_model", "E starts with the standard deviation 0.02, and should have 0.125 = 1 / sqrt(d_model)", [
            ("std * rng", "0.02 * rng")]),
        ("loss_of", "right in 4 cases", [
            ("x, decode_backward = decode(target[:, :-1],", "whole, decode_backward = decode(target,"),
            ("    is_word =", "    x = whole[:, :-1]\n    is_word ="),
            ("dx = np.zeros_like(x)", "dx = np.zeros_like(whole)"),
            ("dx[is_word] =", "dx[:, :-1][is_word] =")]),
        ("beam_search", "PAD and BOS are never written", [("[PAD, BOS]", "PAD")]),
    ],
)  # fmt: skip
def test_what_is_said_of_other_answers(name, told, edits):
    function = FUNCTIONS[name]
    try:
        said = check(function, ours(function.file, name, tuple(edits))).message
    except Crashed as crash:
        said = str(crash)
    assert all(part in said for part in told.split(".*")), said


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
