"""Cutting a wire takes away what it lets through and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from wires import CUT, cut

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.gradient_cases import FLOAT64, SMALL
from scratchformer.nn.transformer import Transformer

SOURCE, TARGET = np.array([[3, 9, 4, 3, 7], [5, 2, 0, 0, 0]]), np.array([[2, 5, 10, 6], [2, 7, 3, 0]])


def model(seed=0, **changes):
    return Transformer(replace(SMALL, **changes), seed, FLOAT64)


@pytest.mark.parametrize("wire", CUT[1:])
def test_the_gradients_of_a_model_with_a_cut_wire_are_right(wire):
    report = gradcheck(cut(model(), wire), SOURCE, TARGET, directions=1)
    assert report.passed, report


@pytest.mark.parametrize("wire", CUT[1:])
def test_a_cut_wire_changes_the_logits_and_no_shape(wire):
    before = model().forward(SOURCE, TARGET)[0]
    after = cut(model(), wire).forward(SOURCE, TARGET)[0]
    assert after.shape == before.shape and np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize("wire", CUT[1:])
def test_the_store_holds_the_parameters_that_are_left(wire):
    whole, cut_one = model(), cut(model(), wire)
    assert cut_one.store.data.size == sum(parameter.data.size for parameter in cut_one.parameters().values())
    assert (cut_one.store.data.size < whole.store.data.size) == (
        wire in ("memory", "encoder attention", "decoder attention")
    )
