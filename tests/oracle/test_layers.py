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


@pytest.mark.parametrize(
    "ours, theirs, expected",
    [
        ([200.0, 1.0], [200.0, 2.0], 1 / 200),  # relative to the greatest number of the array
        ([-1.0, 0.0], [-2.0, 0.0], 1 / 2),
        ([1e-17], [-1e-17], 2e-15),  # or to FLOOR
        ([0.0], [0.0], 0),
    ],
)
def test_the_size_of_a_difference(ours, theirs, expected):
    assert difference(np.array(ours), torch.tensor(theirs)) == pytest.approx(expected)


def test_what_is_not_a_number_is_within_no_tolerance():
    found = {"some": 0.0, "other": difference(np.array([np.nan, 1.0]), torch.ones(2)), "third": 0.0}
    assert not worst(found) <= 1


def test_arrays_of_other_shapes_or_names_have_no_difference():
    with pytest.raises(ValueError, match=r"ours has shape \(3, 1\), the twin's \(3, 3\)"):
        difference(np.zeros((3, 1)), torch.zeros(3, 3))
    with pytest.raises(AssertionError):
        differences({"weight": np.zeros(3)}, {"weight": torch.zeros(3), "bias": torch.zeros(3)})
