"""Calibration: confidence against accuracy, and the lowest smoothed loss."""

import numpy as np
import pytest

from scratchformer.nn.loss import cross_entropy
from support.calibration import loss_floor, reliability, smoothed_target


@pytest.mark.parametrize("spread, on_target, elsewhere", [("others", 0.7, 0.3 / 4), ("uniform", 0.76, 0.06)])
def test_the_smoothed_target_is_its_definition(spread, on_target, elsewhere):
    assert np.allclose(smoothed_target(5, 0.3, spread), [elsewhere] * 4 + [on_target], rtol=1e-14)


@pytest.mark.parametrize("spread", ["others", "uniform"])
def test_no_logits_have_a_loss_below_the_floor_and_those_of_the_target_reach_it(spread):
    random, V = np.random.default_rng(0), 6
    floor = loss_floor(V, 0.2, spread)
    logits = random.normal(size=(200, V)) * 3
    losses = [cross_entropy(row[None], np.array([V - 1]), 0.2, spread)[0] for row in logits]
    reached, _, dlogits = cross_entropy(np.log(smoothed_target(V, 0.2, spread))[None], np.array([V - 1]), 0.2, spread)
    assert min(losses) > floor and reached == pytest.approx(floor, rel=1e-13)
    assert np.abs(dlogits).max() < 1e-15


def test_without_smoothing_the_floor_is_0_and_in_the_paper_s_size_1_377_nats():
    assert loss_floor(7, 0.0) == 0 == loss_floor(7, 0.0, "uniform")
    assert loss_floor(37_000, 0.1) == pytest.approx(1.37694, abs=1e-5)


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
