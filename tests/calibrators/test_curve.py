"""Curves of the top label after a temperature or a matrix: against a slow twin, numeric gradients and known truths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from tests import reference_calibrators as twin
from tests.calibrators.test_calibrators import Array, Labels, drawn
from trueodds import calibrators
from trueodds.calibrators.curve import TopCurve, log_odds_of_top, solve, top_scores
from trueodds.calibrators.held_out import FOLDS, stratified_folds
from trueodds.calibrators.score_curves import with_top
from trueodds.calibrators.selection.folds import Folds

NAMES = ("temperature_curve", "structured_curve")


def bent(n: int, classes: int = 8, seed: int = 0) -> tuple[Array, Labels]:
    """Logits whose order is right, while the top label is right with chance .35 + .3 q or so: no T bends it so."""
    rng = np.random.default_rng(seed)
    z_NC = rng.normal(0, 2.0, (n, classes))
    q_NC = np.exp(z_NC) / np.exp(z_NC).sum(axis=1, keepdims=True)
    top_N = q_NC.argmax(axis=1)
    share_N = 0.35 + 0.3 * q_NC[np.arange(n), top_N]
    p_NC = with_top(q_NC, top_N, share_N, 1 - share_N)
    return z_NC, (p_NC.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=classes - 1)


def curve_of(calibrator: calibrators.Calibrator) -> TopCurve:
    assert isinstance(calibrator, TopCurve)
    return calibrator


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9))
def test_the_curve_is_the_minimum_of_its_twin(seed: int, pieces: int) -> None:
    """Its value is the twin's, and by numeric gradient no parameter can lower it, but a slope of 0 by going below."""
    rng = np.random.default_rng(seed)
    score_N = np.round(rng.normal(1, 2, 60), 1)
    hit_N = (rng.random(60) < expit(0.5 * score_N)).astype(float)
    knot_K, slope_P, height = solve(score_N, hit_N, pieces)
    numbers = [*slope_P, height]

    def loss(theta: list[float]) -> float:
        return twin.top_curve_loss(score_N.tolist(), hit_N.astype(int).tolist(), knot_K.tolist(), theta[:-1], theta[-1])

    for i, value in enumerate(numbers):
        up, down = ([*numbers[:i], value + step, *numbers[i + 1 :]] for step in (1e-5, -1e-5))
        slope = (loss(up) - loss(down)) / 2e-5
        assert abs(slope) < 1e-6 or (i < len(slope_P) and value == 0 and slope > 0)
    calibrator = calibrators.TemperatureCurve(calibrators.Temperature(1.0), knot_K, slope_P, height)
    for score in (-3.0, 0.0, 0.77, 5.0):
        wanted = twin.top_curve(score, knot_K.tolist(), slope_P.tolist(), height)
        assert calibrator.curve(np.array([score]))[0] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_its_scores_are_held_out(name: str) -> None:
    z, labels = drawn(200, 4, 1.5)
    calibrator = curve_of(calibrators.fit(z, labels, name))
    fold, base = stratified_folds(labels, FOLDS), calibrator.base_kind
    score, hit = np.empty(200), np.empty(200)
    for f in range(FOLDS):
        part = base.fit(z[fold != f], labels[fold != f])
        score[fold == f], hit[fold == f] = top_scores(part, z[fold == f], labels[fold == f])
    knots, slopes, height = solve(score, hit, 8)
    np.testing.assert_array_equal(calibrator.knot_K, knots)
    np.testing.assert_allclose(np.asarray(calibrator.slope_P, float), slopes, atol=1e-9)
    assert calibrator.height == pytest.approx(height, abs=1e-9)
    assert calibrator.base == base.fit(z, labels)


@pytest.mark.parametrize("name", NAMES)
def test_folds_share_the_fits_of_the_base_and_change_nothing(name: str) -> None:
    z, labels = drawn(150, 3, 1.5)
    assert Folds(z, labels, FOLDS).fit(name, {}) == calibrators.fit(z, labels, name)
    assert Folds(z, labels, 3).fit(name, {"pieces": 4}) == calibrators.fit(z, labels, name, pieces=4)


def test_a_straight_curve_is_the_base() -> None:
    z, _ = drawn(100, 5)
    base = calibrators.Temperature(1.7)
    calibrator = calibrators.TemperatureCurve(base, [-1.0, 0.5], [1.0, 1.0, 1.0], -1.0)
    np.testing.assert_allclose(calibrator(z), base(z), atol=1e-12)


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from([0.01, 1.0, 1e6]))
def test_the_argmax_and_the_order_stay(seed: int, classes: int, factor: float) -> None:
    """Also where the curve would put the top class below the next: here it says 2%."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 3, (50, classes))
    base = calibrators.Temperature(factor)
    for calibrator in (
        calibrators.TemperatureCurve(base, [0.0], [0.0, 0.0], -4.0),
        curve_of(calibrators.fit(factor * z, rng.integers(0, classes, 50), "temperature_curve")),
    ):
        p = calibrator(factor * z)
        assert (p.argmax(axis=1) == z.argmax(axis=1)).all() and calibrator.keeps_argmax
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)


def test_a_factor_on_the_logits_changes_nothing_but_the_temperature() -> None:
    """The temperature's prior is the one term that knows the size."""
    z, labels = bent(3000)
    usual = calibrators.fit(z, labels, "temperature_curve")(z)
    for factor in (1e-6, 1e6):
        np.testing.assert_allclose(
            calibrators.fit(factor * z, labels, "temperature_curve")(factor * z), usual, atol=5e-3
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_bends_what_no_temperature_can(name: str) -> None:
    z, labels = bent(6000)
    rows, fresh = slice(0, 3000), slice(3000, None)
    calibrator = calibrators.fit(z[rows], labels[rows], name)
    p, tempered = calibrator(z[fresh]), calibrators.fit(z[rows], labels[rows], "temperature")(z[fresh])
    assert abs(p.max(axis=1).mean() - (p.argmax(axis=1) == labels[fresh]).mean()) < 0.02
    nll, before = (-np.log(own[np.arange(3000), labels[fresh]]).mean() for own in (p, tempered))
    assert nll < before - 0.005
    chosen = calibrators.select(z[rows], labels[rows])
    assert chosen.calibrator.name in (*NAMES, "spline", "bbq", "histogram")
    assert not any("overfits" in warning or "free parameters" in warning for warning in calibrator.warnings)


def test_log_odds_keep_what_a_difference_loses() -> None:
    score, top = log_odds_of_top(np.array([[1.0, 1e-30, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(score[:2], [np.log(1e30), 0.0], rtol=1e-12, atol=1e-12)
    assert np.isfinite(score).all() and top.tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"knot_K": [1.0, 1.0]}, "allowed are one or more rising numbers"),
        ({"knot_K": []}, "slope_P has shape|allowed are one or more rising numbers"),
        ({"slope_P": [1.0, -1.0, 1.0]}, "slope_P holds -1.0; allowed are numbers >= 0"),
        ({"slope_P": [1.0]}, "slope_P has shape"),
        ({"base": {"calibrator": "structured_matrix"}}, "cannot be restored|base is"),
        ({"base": calibrators.Identity()}, "base is .*; allowed is a calibrator 'temperature'"),
    ],
)
def test_json_that_is_no_curve(changes: dict[str, Any], message: str) -> None:
    tree: dict[str, Any] = {
        "calibrator": "temperature_curve",
        "base": {"calibrator": "temperature", "temperature": 2.0},
    }
    tree |= {"knot_K": [0.0, 1.0], "slope_P": [1.0, 1.0, 1.0], "height": 0.0}
    assert calibrators.from_json(tree).name == "temperature_curve"
    with pytest.raises(ValueError, match=message):
        calibrators.from_json(tree | changes)
