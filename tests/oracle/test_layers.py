"""Every layer computes what its twin of torch.nn computes, and every gradient of it is autograd's."""

import numpy as np
import pytest
import torch
from side_by_side import TOLERANCE, case_differences, difference, differences, worst
from twins import TWINS

from scratchformer.nn.gradient_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}: {case.description}")
def test_output_and_gradients_are_those_of_the_twin(case):
    found = case_differences(case)
    assert worst(found) <= TOLERANCE["float64"], found


def test_every_layer_of_the_table_has_a_twin():
    assert {case.layer for case in CASES} == {kind.__name__ for kind in TWINS}


# The ruler itself -----------------------------------------------------------------------------------------------------


def test_a_difference_is_relative_to_the_greatest_number_of_the_array():
    assert difference(np.array([200.0, 1.0]), torch.tensor([200.0, 2.0])) == pytest.approx(1 / 200)
    assert difference(np.array([-1.0, 0.0]), torch.tensor([-2.0, 0.0])) == pytest.approx(1 / 2)


def test_a_difference_of_very_small_numbers_is_relative_to_the_floor():
    assert difference(np.array([1e-17]), torch.tensor([-1e-17])) == pytest.approx(2e-15)
    assert difference(np.zeros(3), torch.zeros(3)) == 0


def test_what_is_not_a_number_is_within_no_tolerance():
    found = {"some": 0.0, "other": difference(np.array([np.nan, 1.0]), torch.ones(2)), "third": 0.0}
    assert not worst(found) <= 1


def test_arrays_of_other_shapes_or_names_have_no_difference():
    with pytest.raises(ValueError, match=r"ours has shape \(3, 1\), the twin's \(3, 3\)"):
        difference(np.zeros((3, 1)), torch.zeros(3, 3))
    with pytest.raises(AssertionError):
        differences({"weight": np.zeros(3)}, {"weight": torch.zeros(3), "bias": torch.zeros(3)})
