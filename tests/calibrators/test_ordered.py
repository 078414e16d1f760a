"""Ordered temperature scaling: its formula, its gradient, two levels, and that it is always a distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pipeline.recalibrate.calibrator_choice import choose
from tests.calibrators.test_calibrators import drawn
from trueodds import calibrators
from trueodds.calibrators.ordered_temperature import CumulativeLogits, OrderedTemperature, cumulative_logits


def twin(row: list[float], temperature: float, slope: float, shifts: list[float]) -> list[float]:
    """The formula, level by level."""
    weights = [math.exp((z - max(row)) / temperature) for z in row]
    reach = [sum(weights[k:]) / sum(weights) for k in range(1, len(row))]
    at = [1 / (1 + math.exp(-slope * math.log(f / (1 - f)) - b)) for f, b in zip(reach, shifts, strict=True)]
    return [one - next_ for one, next_ in zip([1.0, *at], [*at, 0.0], strict=True)]


def levels(n: int, k: int, *, seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model of ordered levels, and labels whose cumulative logits are `scale` times flatter."""
    rng = np.random.default_rng(seed)
    s_N1, cuts_K = rng.normal(0, 3, (n, 1)), np.linspace(-3, 3, k - 1)
    reach_NK = 1 / (1 + np.exp(-(s_N1 - cuts_K)))
    p_NC = -np.diff(np.pad(reach_NK, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0))), axis=1)
    true_NK = 1 / (1 + np.exp(-(s_N1 - cuts_K) / scale))
    return np.log(p_NC), (rng.random((n, 1)) < true_NK).sum(axis=1)


def test_it_equals_its_twin() -> None:
    logits, _ = drawn(30, 5, spread=2.0)
    calibrator = OrderedTemperature(1.4, 0.8, [0.5, 0.2, 0.2, -0.7])
    for row, p_C in zip(logits.tolist(), calibrator(logits), strict=True):
        assert p_C == pytest.approx(twin(row, 1.4, 0.8, [0.5, 0.2, 0.2, -0.7]), rel=1e-9)


def test_without_shifts_it_is_temperature_scaling() -> None:
    logits, _ = drawn(50, 6)
    calibrator = OrderedTemperature(1.7, 1.0, [0.0] * 5)
    np.testing.assert_allclose(calibrator(logits), calibrators.Temperature(1.7)(logits), rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.0, "intercept": 0.5}])
@pytest.mark.parametrize("n", [40, 400])
def test_two_levels_are_bias_corrected_temperature(n: int, options: dict[str, float]) -> None:
    logits, labels = drawn(n, 2, 1.7)
    ordered = calibrators.fit(logits, labels, "ordered_temperature", **options)
    other = calibrators.fit(logits, labels, "bias_corrected_temperature", **options)
    np.testing.assert_allclose(ordered(logits), other(logits), atol=1e-8)
    affine = ordered.affine(2)
    assert affine is not None
    z_NC = logits @ affine[0] + affine[1]
    np.testing.assert_allclose(np.exp(z_NC) / np.exp(z_NC).sum(axis=1, keepdims=True), ordered(logits), atol=1e-12)


def test_two_levels_without_prior_and_penalty_are_logistic_regression() -> None:
    logits, labels = drawn(300, 2, 1.7)
    odds_N = logits[:, 1] - logits[:, 0]
    best = minimize(
        lambda ab: np.logaddexp(0, -(2 * labels - 1) * (ab[0] * odds_N + ab[1])).mean(), [1.0, 0.0], tol=1e-12
    )
    found = calibrators.fit(logits, labels, "ordered_temperature", shrinkage=0.0, intercept=1e-6)
    assert isinstance(found, OrderedTemperature)
    assert (found.slope / found.temperature, np.asarray(found.shift_K)[0]) == pytest.approx(best.x, abs=1e-4)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_gradient_and_hessian_are_those_of_central_differences(k: int) -> None:
    logits, labels = drawn(60, k, 1.7)
    problem = CumulativeLogits(logits, labels, 1.3, 0.2, 1.5)
    theta, step = np.linspace(1.2, 0.1, k), 1e-5
    _, gradient = problem.value_and_gradient(theta)
    hessian = np.stack([problem.hessian_times(d) for d in np.eye(k)])
    around = [[problem.value_and_gradient(theta + sign * step * d) for sign in (1, -1)] for d in np.eye(k)]
    assert gradient == pytest.approx([(up[0] - down[0]) / (2 * step) for up, down in around], abs=1e-8)
    np.testing.assert_allclose(hessian, [(up[1] - down[1]) / (2 * step) for up, down in around], atol=1e-8)
    assert np.linalg.eigvalsh(hessian).min() > 0  # convex


def test_the_fit_is_the_least_of_its_loss() -> None:
    """Another solver, on the twin's probabilities, finds no lower loss."""
    logits, labels = levels(250, 4, scale=2.0)
    found = calibrators.fit(logits, labels, "ordered_temperature", shrinkage=0.0, intercept=2.0)
    assert isinstance(found, OrderedTemperature)

    def loss(theta: np.ndarray) -> float:
        shifts = theta[1] - np.concatenate([[0.0], np.cumsum(np.abs(theta[2:]))])
        p_NC = OrderedTemperature(found.temperature, float(theta[0]), shifts)(logits)
        return float(-np.log(p_NC[np.arange(len(labels)), labels]).mean() + (shifts**2).sum() / len(labels))

    at = np.array([found.slope, *np.asarray(found.shift_K)[:1], *-np.diff(np.asarray(found.shift_K))])
    other = minimize(loss, [1.0, 0.0, 0.1, 0.1], method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-9})
    assert loss(at) <= other.fun + 1e-7


def test_a_known_distortion_is_undone() -> None:
    logits, labels = levels(20_000, 5, scale=1.6)
    found = calibrators.fit(logits, labels, "ordered_temperature")
    fresh, truth = levels(20_000, 5, scale=1.6, seed=1)
    row = np.arange(20_000)
    by = {name: -np.log(calibrators.fit(logits, labels, name)(fresh)[row, truth]).mean() for name in ("temperature",)}
    assert -np.log(found(fresh)[row, truth]).mean() < by["temperature"] - 0.005


@settings(max_examples=40)
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=8),
    st.floats(0.05, 20.0),
    st.floats(0.1, 5.0),
    st.floats(-3, 3),
)
def test_it_is_always_a_distribution_that_keeps_the_order(
    row: list[float], temperature: float, slope: float, first: float
) -> None:
    shifts = [first - 0.3 * k for k in range(len(row) - 1)]
    p_C = OrderedTemperature(temperature, slope, shifts)([row])[0]
    assert (p_C >= 0).all() and p_C.sum() == pytest.approx(1, abs=1e-12)


def test_cumulative_logits_keep_digits_that_differences_lose() -> None:
    logit_NK, step_NK = cumulative_logits(np.array([[3.0, -60.0, 0.0]]))
    assert logit_NK[0, 0] == logit_NK[0, 1]  # 1e-26 apart, and of size 3
    assert step_NK[0, 0] == pytest.approx(math.exp(-60.0) + math.exp(-63.0), rel=1e-12)


def test_a_level_without_rows_is_allowed() -> None:
    logits, labels = levels(200, 5)
    labels[labels == 4] = 3
    found = calibrators.fit(logits, labels, "ordered_temperature")
    assert (found(logits) > 0).all() and "never hold class 4" in found.warnings[-1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slope": 0.0}, "slope is 0.0; allowed is a finite number above 0"),
        ({"shift_K": [0.0, 0.1]}, "shift_K rises somewhere; allowed are shifts that do not rise with the level"),
        ({"shift_K": [[0.0]]}, "shift_K has shape"),
    ],
)
def test_json_that_is_not_ordered_is_refused(fields: dict[str, object], message: str) -> None:
    tree = {"calibrator": "ordered_temperature", "temperature": 1.0, "slope": 1.0, "shift_K": [0.1, 0.0]}
    with pytest.raises(ValueError, match=message):
        calibrators.from_json({**tree, **fields})


def test_select_offers_it_for_ordered_classes_only() -> None:
    logits, labels = levels(400, 4, scale=2.0)
    plain = calibrators.select(logits, labels)
    assert "ordered_temperature" not in [one.name for one in plain.table]
    ordered = calibrators.select(logits, labels, ordered=True)
    assert "ordered_temperature" in [one.name for one in ordered.table]
    assert calibrators.fit(logits, labels, ordered=True) == ordered.calibrator
    with pytest.raises(ValueError, match="ordered is 1; allowed are True and False"):
        calibrators.select(logits, labels, ordered=1)  # type: ignore[arg-type]


@pytest.mark.full
def test_a_recalibration_of_levels_tries_it() -> None:
    logits, labels = levels(300, 4, scale=2.0)
    for ordered in (False, True):
        table = choose(calibrators.Identity(), logits, labels, ordered=ordered).table
        assert ("ordered_temperature" in [line.name for line in table]) == ordered
