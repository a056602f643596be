"""Calibration: confidence against accuracy."""

import numpy as np
import pytest

from support.calibration import reliability


def test_bins_count_their_guesses_and_average_what_lies_in_them():
    confidence, right = np.array([0.1, 0.5, 0.7, 0.74, 1.0]), np.array([False, True, True, False, True])
    bins = reliability(confidence, right, 4)
    assert bins.count.tolist() == [1, 0, 3, 1]
    assert bins.confidence == pytest.approx([0.1, np.nan, 0.64 + 0.02 / 3, 1], nan_ok=True)
    assert bins.accuracy == pytest.approx([0, np.nan, 2 / 3, 1], nan_ok=True)
    assert bins.error == pytest.approx((0.1 + 3 * abs(1.94 / 3 - 2 / 3)) / 5)


def test_a_calibrated_model_has_hardly_any_error_and_an_overconfident_one_its_excess():
    random = np.random.default_rng(1)
    confidence = random.uniform(0.3, 0.9, 100_000)
    right = random.random(100_000) < confidence
    assert reliability(confidence, right).error < 0.01
    assert reliability(confidence + 0.1, right).error == pytest.approx(0.1, abs=0.01)
