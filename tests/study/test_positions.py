"""The matrix that shifts sinusoids."""

import numpy as np
import pytest

from scratchformer.nn.layers import sinusoids
from scratchformer.study.positions import shift_matrix


@pytest.mark.parametrize("k", [-5, 0, 1, 12])
@pytest.mark.parametrize("d_model", [2, 10])
def test_one_matrix_shifts_every_position(k, d_model):
    np.testing.assert_allclose(sinusoids(20, 30, d_model) @ shift_matrix(k, d_model).T,
                               sinusoids(20 + k, 30, d_model), rtol=0, atol=1e-13)


def test_it_is_a_rotation_and_steps_add_up():
    step, back = shift_matrix(4, 6), shift_matrix(-4, 6)
    np.testing.assert_allclose(step @ back, np.eye(6), rtol=0, atol=1e-15)
    np.testing.assert_allclose(step.T, back, rtol=0, atol=1e-15)
    np.testing.assert_allclose(step @ shift_matrix(3, 6), shift_matrix(7, 6), rtol=0, atol=1e-14)
    assert np.linalg.det(step) == pytest.approx(1)


def test_the_first_block_written_out():
    """Pair 0 turns by 1 radian per position."""
    np.testing.assert_allclose(shift_matrix(1, 4)[:2, :2], [[0.54030231, 0.84147098], [-0.84147098, 0.54030231]])
    assert not shift_matrix(1, 4)[:2, 2:].any()


def test_a_component_without_a_partner_is_refused():
    with pytest.raises(ValueError, match="d_model=5 is odd"):
        shift_matrix(2, 5)
