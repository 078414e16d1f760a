"""Platt and beta: the optimum of the slow loss within its bounds, mirror images for two classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests import reference, reference_calibrators
from tests.calibrators.test_calibrators import drawn
from trueodds import calibrators
from trueodds.calibrators import Beta, FitError, Platt
from trueodds.calibrators.sigmoid import log_pair
from trueodds.sums.inputs import softmax


def platt(z: object, y: object) -> Platt:
    calibrator = calibrators.fit(z, y, "platt")  # type: ignore[arg-type]
    assert isinstance(calibrator, Platt)
    return calibrator


def beta(z: object, y: object) -> Beta:
    calibrator = calibrators.fit(z, y, "beta")  # type: ignore[arg-type]
    assert isinstance(calibrator, Beta)
    return calibrator


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(2, 3))
def test_both_are_the_minimum_of_the_slow_loss(seed: int, classes: int) -> None:
    z, labels = drawn(40, classes, 1.7, 2.0, seed)
    labels[:classes] = np.arange(classes)
    one, other = platt(z, labels), beta(z, labels)
    for k in range(classes):
        hits = int((labels == k).sum())
        odds = [[reference_calibrators.log_odds(row, k)] for row in z.tolist()]
        soft = [(hits + 1) / (hits + 2) if y == k else 1 / (40 - hits + 2) for y in labels]
        q = [reference.softmax(row, 1.0)[k] for row in z.tolist()]
        logs = [[math.log(p), -math.log1p(-p)] for p in q]
        hard = [float(y == k) for y in labels]
        for features, targets, slopes, offset in (
            (odds, soft, [np.asarray(one.slope_C)[k]], np.asarray(one.offset_C)[k]),
            (logs, hard, [np.asarray(other.hit_C)[k], np.asarray(other.miss_C)[k]], np.asarray(other.offset_C)[k]),
        ):

            def loss(theta: np.ndarray, features=features, targets=targets) -> float:  # type: ignore[no-untyped-def]
                return reference_calibrators.logistic_loss(features, targets, theta[:-1].tolist(), float(theta[-1]))

            bounds = [(0, 20)] * len(slopes) + [(None, None)]
            least = minimize(loss, np.zeros(len(slopes) + 1), bounds=bounds, method="L-BFGS-B")
            assert loss(np.array([*slopes, offset])) <= least.fun + 1e-9


def test_platt_by_hand() -> None:
    """A score that says nothing: targets 4/5 (3 hits) and 1/3 (1 miss) average to (3 * 4/5 + 1/3) / 4 = .68333."""
    calibrator = platt(np.zeros((4, 2)), [1, 1, 1, 0])
    np.testing.assert_allclose(calibrator([[0.0, 0.0]]), [[1 - 41 / 60, 41 / 60]], rtol=1e-8)


def test_beta_by_hand() -> None:
    """Scores .2 and .8 with 1 of 4 and 3 of 4 hits: symmetric, so a = b, c = 0 and sigma(a ln 16 / 2) = 3/4."""
    z = np.log([[0.8, 0.2]] * 4 + [[0.2, 0.8]] * 4)
    calibrator = beta(z, [0, 0, 0, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(calibrator(z)[[0, 4], 1], [1 / 4, 3 / 4], rtol=1e-6)


def test_beta_holds_the_identity() -> None:
    z, _ = drawn(20, 2)
    np.testing.assert_allclose(Beta([0.0, 0.0], [1.0, 1.0], [1.0, 1.0])(z), softmax(z), rtol=1e-12)
    np.testing.assert_allclose(Platt([0.0, 0.0], [1.0, 1.0])(z), softmax(z), rtol=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_two_classes_are_mirror_images_and_affine(seed: int) -> None:
    z, labels = drawn(50, 2, 2.0, 2.0, seed)
    labels[:2] = [0, 1]
    one, other = platt(z, labels), beta(z, labels)
    np.testing.assert_allclose(np.asarray(one.slope_C), np.asarray(one.slope_C)[::-1], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(one.offset_C).sum(), 0, atol=1e-6)
    np.testing.assert_allclose(np.asarray(other.hit_C), np.asarray(other.miss_C)[::-1], atol=1e-4)
    pair = one.affine(2)
    assert pair is not None
    np.testing.assert_allclose(softmax(z @ pair[0].T + pair[1]), one(z), atol=1e-7)
    assert Platt([0.0] * 3, [1.0] * 3).affine(3) is None


def test_separable_and_turned_round_rows_stop_at_the_bounds() -> None:
    z, _ = drawn(60, 3, spread=1.0)
    right, wrong = z.argmax(axis=1), z.argmin(axis=1)
    steep = beta(z, right)
    assert (np.asarray(steep.hit_C) <= 20).all() and (np.asarray(steep.miss_C) <= 20).all()
    assert (steep(z).argmax(axis=1) == right).mean() > 0.95
    np.testing.assert_array_equal(platt(z, wrong).slope_C, 0)


@pytest.mark.parametrize("scale", [1e-4, 50.0, 1e4])
def test_scores_of_any_size(scale: float) -> None:
    z, labels = drawn(200, 4, 1.5)
    for calibrator in (platt(scale * z, labels), beta(scale * z, labels)):
        probabilities = calibrator(scale * z)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=5))
def test_logarithms_of_both_sides(row: list[float]) -> None:
    log_q, log_rest = log_pair(np.array([row]))
    for k, value in enumerate(reference.softmax(row, 1.0)):
        assert log_q[0, k] == pytest.approx(math.log(value), abs=1e-12)
        assert log_q[0, k] - log_rest[0, k] == pytest.approx(reference_calibrators.log_odds(row, k), rel=1e-9, abs=1e-9)


def test_logarithms_end_at_the_smallest_float() -> None:
    log_q, log_rest = log_pair(np.array([[0.0, -1e6]]))
    assert log_q[0, 0] == 0 and log_rest[0, 1] == 0
    assert log_q[0, 1] == log_rest[0, 0] == pytest.approx(-708.396, abs=1e-3)


def test_a_class_never_seen() -> None:
    z, labels = drawn(50, 3)
    few = np.where(labels == 1, 0, labels)
    for fit, name in ((beta, "beta"), (platt, "platt")):
        with pytest.raises(FitError, match=f"never hold class 1, without which {name} cannot .*; use 'temperature'"):
            fit(z, few)


def test_logits_turned_round_are_noted() -> None:
    """Class 2's logit falls where it is right; vector has the same note. Otherwise there is none."""
    z, labels = drawn(600, 3, 1.5)
    turned = z * [1.0, 1.0, -1.0]
    for name in ("platt", "beta", "vector"):
        calibrator = calibrators.fit(turned, labels, name)
        assert "The logit of class 2 points the wrong way" in calibrator.notes()[-1]
        assert calibrator.at_bound
        assert not any("wrong way" in note for note in calibrators.fit(z, labels, name).notes())
    steep = calibrators.fit(3 * z, z.argmax(axis=1), "beta")
    assert steep.at_bound and "stopped at the steepest slope 20" in steep.notes()[-1]


def test_slopes_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"slope_C holds -1\.0; allowed are numbers >= 0"):
        Platt([0.0], [-1.0])
