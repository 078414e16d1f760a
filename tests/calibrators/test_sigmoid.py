"""Platt, beta and quadratic scaling: the optimum of the slow loss within its bounds, mirror images for two classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from tests import reference, reference_calibrators
from tests.calibrators.test_calibrators import drawn, ends
from trueodds import calibrators
from trueodds.calibrators import Beta, FitError, Platt, Quadratic
from trueodds.calibrators.affine.maps import Vector
from trueodds.calibrators.affine.structured import StructuredVector
from trueodds.calibrators.sigmoid import Logistic, log_odds, log_pair
from trueodds.sums.inputs import softmax


def platt(z: object, y: object) -> Platt:
    calibrator = calibrators.fit(z, y, "platt")  # type: ignore[call-overload]
    assert isinstance(calibrator, Platt)
    return calibrator


def beta(z: object, y: object) -> Beta:
    calibrator = calibrators.fit(z, y, "beta")  # type: ignore[call-overload]
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


def quadratic(z: object, y: object) -> Quadratic:
    calibrator = calibrators.fit(z, y, "quadratic")  # type: ignore[call-overload]
    assert isinstance(calibrator, Quadratic)
    return calibrator


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(2, 3))
def test_quadratic_is_the_least_loss_of_all_that_do_not_fall(seed: int, classes: int) -> None:
    z, labels = drawn(40, classes, 1.7, 2.0, seed)
    labels[:classes] = np.arange(classes)
    calibrator = quadratic(z, labels)
    odds = [[reference_calibrators.log_odds(row, k) for k in range(classes)] for row in z.tolist()]
    curves = [reference_calibrators.quadratic_of(calibrator, k) for k in range(classes)]
    for n, row in enumerate(odds):
        sigmas = [1 / (1 + math.exp(-(a * s * s + b * s + c))) for s, (a, b, c) in zip(row, curves, strict=True)]
        np.testing.assert_allclose(calibrator(z[n : n + 1])[0], np.array(sigmas) / sum(sigmas), rtol=1e-9)
    for k, (a, b, c) in enumerate(curves):
        features = [[row[k] ** 2, row[k]] for row in odds]
        low, high = min(row[k] for row in odds), max(row[k] for row in odds)
        hard = [float(y == k) for y in labels]

        def loss(theta: np.ndarray, features=features, hard=hard) -> float:  # type: ignore[no-untyped-def]
            return reference_calibrators.logistic_loss(features, hard, theta[:-1].tolist(), float(theta[-1]))

        def slopes(theta: np.ndarray, ends=(low, high)) -> list[float]:  # type: ignore[no-untyped-def]
            return [2 * theta[0] * end + theta[1] for end in ends]

        least = minimize(loss, [0.0, 1.0, 0.0], constraints={"type": "ineq", "fun": slopes}, method="SLSQP")
        assert loss(np.array([a, b, c])) <= least.fun + 1e-7
        assert min(slopes(np.array([a, b, c]))) >= -1e-9


def test_quadratic_special_cases() -> None:
    """Where the free optimum rises everywhere it is the plain logistic regression; two points make it by hand."""
    rng = np.random.default_rng(5)
    s = rng.normal(0, 1.5, 4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-(0.05 * s**2 + 0.9 * s - 0.3)))).astype(int)
    free = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(np.column_stack([s**2, s]), y)
    calibrator = quadratic(np.column_stack([0 * s, s]), y)
    (a, b), (c,) = free.coef_[0], free.intercept_
    np.testing.assert_allclose(reference_calibrators.quadratic_of(calibrator, 1), [a, b, c], atol=2e-4)
    z = np.log([[0.8, 0.2]] * 4 + [[0.2, 0.8]] * 4)
    np.testing.assert_allclose(quadratic(z, [0, 0, 0, 1, 1, 1, 1, 0])(z)[[0, 4], 1], [1 / 4, 3 / 4], rtol=1e-6)
    identity = Quadratic([-9.0, -7.0], [-9.0, -7.0], [8.0, 3.0], [1.0, 1.0], [1.0, 1.0])
    np.testing.assert_allclose(identity(z), softmax(z), rtol=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_quadratic_keeps_the_order_of_any_rows(seed: int) -> None:
    """Of two classes: also where the free optimum would turn round, and beyond the rows of the fit."""
    rng = np.random.default_rng(seed)
    s = rng.normal(0, 2, 200)
    labels = (rng.random(200) < 1 / (1 + np.exp(-np.abs(s)))).astype(int)
    labels[:2] = [0, 1]
    calibrator = quadratic(np.column_stack([-s, s]), labels)
    far = np.linspace(-60, 60, 999)
    p = calibrator(np.column_stack([-far, far]))
    assert (np.diff(p[:, 1]) >= -1e-12).all()
    np.testing.assert_allclose(np.asarray(calibrator.low_slope_C), np.asarray(calibrator.high_slope_C)[::-1], atol=1e-5)


def test_the_gradient_of_a_curve_is_that_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    x_FN, theta = rng.normal(size=(3, 20)), rng.normal(size=3)
    problem = Logistic(x_FN, rng.random(20))
    _, gradient = problem.value_and_gradient(theta)
    steps = 1e-6 * np.eye(3)
    above, below = ([problem.value_and_gradient(theta + sign * e)[0] for e in steps] for sign in (1, -1))
    numeric = (np.array(above) - below) / 2e-6
    np.testing.assert_allclose(gradient, numeric, rtol=1e-7)


def test_log_odds_equal_their_twin() -> None:
    z, _ = drawn(10, 3, 2.0)
    twin = [[reference_calibrators.log_odds(row, k) for k in range(3)] for row in z.tolist()]
    np.testing.assert_allclose(log_odds(z), twin, rtol=1e-12)


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
    assert steep.steepest == pytest.approx(1 / ends(z)[0])
    assert max(np.max(steep.hit_C), np.max(steep.miss_C)) <= steep.steepest
    assert (steep(z).argmax(axis=1) == right).mean() > 0.95
    np.testing.assert_array_equal(platt(z, wrong).slope_C, 0)


@pytest.mark.parametrize("scale", [1e-4, 50.0, 1e4])
def test_scores_of_any_size(scale: float) -> None:
    z, labels = drawn(200, 4, 1.5)
    for calibrator in (platt(scale * z, labels), beta(scale * z, labels), quadratic(scale * z, labels)):
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
    for fit, name in ((beta, "beta"), (platt, "platt"), (quadratic, "quadratic")):
        with pytest.raises(FitError, match=f"never hold class 1, without which {name} cannot .*; use 'temperature'"):
            fit(z, few)


def test_logits_turned_round_are_noted() -> None:
    """Class 2's logit falls where it is right; vector has the same note. Otherwise there is none."""
    z, labels = drawn(600, 3, 1.5)
    turned = z * [1.0, 1.0, -1.0]
    for name in ("platt", "beta", "vector"):
        calibrator = calibrators.fit(turned, labels, name)
        assert "The logit of class 2 has the wrong sign" in calibrator.warnings[-1]
        assert calibrator.at_bound
        assert not any("wrong way" in note for note in calibrators.fit(z, labels, name).warnings)
    steep = calibrators.fit(3 * z, z.argmax(axis=1), "beta")
    assert steep.at_bound and f"stopped at the steepest slope {1 / ends(3 * z)[0]:g}:" in steep.warnings[-1]


def test_a_note_says_left_out_of_weights_that_are_zero_only() -> None:
    """A class's logit that is turned round: `vector` leaves it out, `structured_vector` applies a negative factor."""
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(3000, 3)), rng.integers(0, 3, 3000)
    z[np.arange(3000), labels] += np.array([2.0, 2.0, 0.0])[labels]
    z[:, 2] -= 2.0 * (labels == 2)
    for name, words in (("vector", "is left out"), ("structured_vector", "counts with a negative factor")):
        calibrator = calibrators.fit(z, labels, name)
        assert isinstance(calibrator, Vector | StructuredVector)
        weight = np.asarray(calibrator.weight_C)[2]
        assert weight == 0 if name == "vector" else weight < 0
        assert any("class 2 has the wrong sign" in note and words in note for note in calibrator.warnings)


def test_slopes_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"slope_C holds -1\.0; allowed are numbers >= 0"):
        Platt([0.0], [-1.0])
    with pytest.raises(ValueError, match=r"high_slope_C holds -1\.0; allowed are numbers >= 0"):
        Quadratic([0.0], [-1.0], [1.0], [1.0], [-1.0])
    with pytest.raises(ValueError, match=r"low_C .* is above high_C .*; allowed is low_C <= high_C"):
        Quadratic([0.0], [1.0], [-1.0], [1.0], [1.0])
