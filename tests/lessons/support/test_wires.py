"""Cutting a wire takes away what it lets through and nothing else, and from outside one can tell which it was."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.gradient_cases import FLOAT64, SMALL
from scratchformer.nn.transformer import Transformer
from support.wires import WIRES, cut, which_wire

SOURCE, TARGET = np.array([[3, 9, 4, 3, 7], [5, 2, 0, 0, 0]]), np.array([[2, 5, 10, 6], [2, 7, 3, 0]])


def model(seed=0, **changes):
    return Transformer(replace(SMALL, **changes), seed, FLOAT64)


def logits_of(model):
    return lambda source, target: model.forward(source, target)[0]


@pytest.mark.parametrize("wire", WIRES)
def test_the_gradients_of_a_model_with_a_cut_wire_are_right(wire):
    report = gradcheck(cut(model(), wire), SOURCE, TARGET, directions=1)
    assert report.passed, report


@pytest.mark.parametrize("wire", WIRES)
def test_a_cut_wire_changes_the_logits_and_no_shape(wire):
    before = model().forward(SOURCE, TARGET)[0]
    after = cut(model(), wire).forward(SOURCE, TARGET)[0]
    assert after.shape == before.shape and np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize("wire", WIRES)
def test_the_store_holds_the_parameters_that_are_left(wire):
    whole, cut_one = model(), cut(model(), wire)
    assert cut_one.store.data.size == sum(parameter.data.size for parameter in cut_one.parameters().values())
    assert (cut_one.store.data.size < whole.store.data.size) == (
        wire in ("memory", "encoder attention", "decoder attention")
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changes", [{}, {"N": 1}, {"N": 3, "h": 1}, {"norm": "pre"}], ids=str)
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "encoder attention"])
def test_the_cut_wire_is_found_from_outside(wire, changes, seed):
    assert which_wire(logits_of(cut(model(seed, **changes), wire))) == wire


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_model_is_found_whole(seed):
    assert which_wire(logits_of(model(seed))) == "none"


def test_the_encoders_attention_is_not_seen_from_outside():
    assert which_wire(logits_of(cut(model(), "encoder attention"))) == "none"
