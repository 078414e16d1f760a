"""Temperature by other objectives, and the ensemble: values, derivatives and minima against the slow twins."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import reference, reference_calibrators, reference_metrics
from tests.calibrators.test_calibrators import Labels, drawn, ends
from trueodds import calibrators, metrics
from trueodds.calibrators import EnsembleTemperature, Temperature
from trueodds.calibrators.fitting import objectives
from trueodds.calibrators.temperature import GRID, SHRINKAGE


def by(objective: str, z: npt.NDArray[np.floating], labels: Labels, **options: float) -> Temperature:
    calibrator = calibrators.fit(z, labels, "temperature", objective=objective, **options)
    assert isinstance(calibrator, Temperature)
    assert calibrator.objective == objective
    return calibrator


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.06, 15))
def test_brier_value_and_slope(seed: int, beta: float) -> None:
    z, labels = drawn(20, 4, 1.5, 2.0, seed)
    rows = objectives.Rows(z, labels)
    value, slope = rows.brier(beta)
    probabilities = [reference.softmax(row, 1 / beta) for row in z.tolist()]
    assert value == pytest.approx(reference.brier(probabilities, labels.tolist()), abs=1e-12)
    step = 1e-5 * beta
    numeric = (rows.brier(beta + step)[0] - rows.brier(beta - step)[0]) / (2 * step)
    assert slope == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_nll_slope_and_curvature_are_derivatives() -> None:
    z, labels = drawn(30, 4, 1.5, 2.0)
    rows, step = objectives.Rows(z, labels), 1e-5

    def nll(beta: float) -> float:
        return reference.temperature_nll(z.tolist(), labels.tolist(), 1 / beta)

    for beta in (0.1, 0.7, 3.0):
        slope, curvature = rows.nll_slope(beta)
        assert slope == pytest.approx((nll(beta + step) - nll(beta - step)) / (2 * step), abs=1e-8)
        ends = [rows.nll_slope(beta + d)[0] for d in (step, -step)]
        assert curvature == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.floats(0.4, 4))
@example(4477, 0.4375)  # the scan's own least is an end, the score's a minimum between two of its temperatures
def test_brier_temperature_is_the_least_of_a_fine_scan(seed: int, temperature: float) -> None:
    z, labels = drawn(60, 4, temperature, 2.0, seed)
    rows, calibrator = objectives.Rows(z, labels), by("brier", z, labels)
    least = min(rows.brier(1 / t)[0] for t in np.geomspace(*ends(z), 800))
    assert rows.brier(1 / calibrator.temperature)[0] <= least + 1e-12
    if calibrator.bound is None:
        assert abs(rows.brier(1 / calibrator.temperature)[1]) < 1e-9


@pytest.mark.full
def test_the_grid_takes_the_least_ece_and_the_first_of_equals() -> None:
    z, labels = drawn(300, 5, 1.8)
    top = np.argmax(z, axis=1) == labels
    for objective in ("ece", "adaptive_ece"):
        values = []
        for t in GRID:
            confidence = Temperature(float(t))(z).max(axis=1)
            if objective == "ece":
                values.append(metrics.ece(Temperature(float(t))(z), labels))
            else:
                rows = list(zip(confidence.tolist(), top.astype(int).tolist(), strict=True))
                values.append(reference_metrics.ece(rows, 15, "l1", "mass"))
        assert by(objective, z, labels).temperature == GRID[int(np.argmin(values))]
    first = by("ece", np.eye(2), np.array([0, 0]), bins=1)
    assert (first.temperature, first.bound) == (10.0, "upper")
    assert GRID[0] == 0.1 and GRID[-1] == 10.0 and len(GRID) == 100


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=15),
    st.integers(1, 12),
    st.sampled_from([1.0, 2.0, 3.5]),
)
def test_soft_binned_and_adaptive_ece_equal_their_twins(
    rows: list[tuple[float, bool]], bins: int, order: float
) -> None:
    confidence, correct = [c for c, _ in rows], [int(a) for _, a in rows]
    c, a = np.array(confidence), np.array(correct, dtype=float)
    assert objectives.adaptive_ece(c, a, bins) == pytest.approx(
        reference_metrics.ece(list(zip(confidence, correct, strict=True)), bins, "l1", "mass"), abs=1e-12
    )
    assert objectives.sb_ece(c, a, bins, 0.05, order) == pytest.approx(
        reference_calibrators.sb_ece(confidence, correct, bins, 0.05, order), abs=1e-12
    )
    assert objectives.sb_ece_label(c, a, bins, 0.05, order) == pytest.approx(
        reference_calibrators.sb_ece_label(confidence, correct, bins, 0.05, order), abs=1e-12
    )


def test_soft_binned_ece_by_hand() -> None:
    """One bin: |mean a - mean c|. Sharp memberships: the hard bins' ECE."""
    c, a = np.array([0.62, 0.73, 0.95]), np.array([1.0, 0.0, 1.0])
    assert objectives.sb_ece(c, a, 1, 0.01, 2.0) == pytest.approx(abs(2 - 2.3) / 3)
    spread = sum(abs(2 / 3 - x) for x in c) / 3
    assert objectives.sb_ece_label(c, a, 1, 0.01, 1.0) == pytest.approx(spread)
    hard = reference.ece(c.tolist(), [1, 0, 1], 10)
    assert objectives.sb_ece(c, a, 10, 1e-6, 1.0) == pytest.approx(hard)


@pytest.mark.parametrize(
    ("objective", "measure"), [("sb_ece", objectives.sb_ece), ("sb_ece_label", objectives.sb_ece_label)]
)
def test_soft_binned_temperature_is_the_least_of_a_fine_scan(objective: str, measure: Callable[..., float]) -> None:
    z, labels = drawn(300, 4, 2.0)
    rows, calibrator = objectives.Rows(z, labels), by(objective, z, labels)

    def value(t: float) -> float:
        return measure(rows.confidence(1 / t), rows.correct_N, 15, 0.01, 2.0)

    around = calibrator.temperature * np.linspace(0.8, 1.25, 300)
    assert value(calibrator.temperature) <= min(map(value, around)) + 1e-9
    assert calibrator.temperature == pytest.approx(2.0, rel=0.3)


@pytest.mark.few(2)
@pytest.mark.parametrize("objective", objectives.NAMES)
def test_every_objective_finds_the_temperature_of_the_truth(objective: str) -> None:
    z, labels = drawn(20_000, 5, 2.5)
    assert by(objective, z, labels).temperature == pytest.approx(2.5, rel=0.1)


def test_blocks_and_the_warm_start_change_nothing() -> None:
    """More rows than one block holds, and enough values for a start from a part of them, sorted by label."""
    z, labels = drawn(30_000, 10, 1.7)
    order = np.argsort(labels)
    calibrator, rows = by("nll", z[order], labels[order]).temperature, objectives.Rows(z, labels)
    rows.shrink(SHRINKAGE)
    assert abs(rows.nll_slope(1 / calibrator)[0]) < 1e-11
    half = z.astype(np.float16)
    assert by("nll", half, labels) == by("nll", half.astype(np.float64), labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"objective": "brie"},
            "objective is 'brie'; allowed: nll, brier, ece, adaptive_ece, sb_ece, sb_ece_label. Did you mean 'brier'",
        ),
        ({"bins": 0}, "bins is 0"),
        ({"softness": 0.0}, "softness is 0.0"),
        ({"order": 0.5}, "order is 0.5"),
    ],
)
def test_options_that_are_not_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.fit(*drawn(10, 2), "temperature", **options)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from(["nll", "shrunk", "brier"]), st.floats(0.5, 3))
def test_ensemble_weights_are_the_least_on_the_simplex(seed: int, objective: str, temperature: float) -> None:
    z, labels = drawn(25, 3, temperature, 2.0, seed)
    errors, objective = (3.0 if objective == "shrunk" else 0.0), objective.replace("shrunk", "nll")
    options = {"shrinkage": errors} if objective == "nll" else {}
    calibrator = calibrators.fit(z, labels, "ensemble_temperature", objective=objective, **options)
    assert isinstance(calibrator, EnsembleTemperature)
    assert calibrator.temperature == by(objective, z, labels, **options).temperature

    def loss(weights: tuple[float, ...]) -> float:
        pull = -errors / 25 * np.log(max(weights[1], 1e-300)) if errors else 0.0
        return pull + reference_calibrators.ensemble_loss(
            z.tolist(), labels.tolist(), calibrator.temperature, weights, objective
        )

    at = loss(tuple(np.asarray(calibrator.weight_3)))
    for i, j in itertools.product(range(11), repeat=2):
        if 0 < i + j <= 10:  # the pure uniform corner aside, every tenth of the simplex
            assert at <= loss((i / 10, j / 10, (10 - i - j) / 10)) + 1e-9
    np.testing.assert_allclose(
        calibrator(z[:1])[0, labels[0]],
        np.exp(
            -reference_calibrators.ensemble_loss(
                z[:1].tolist(),
                labels[:1].tolist(),
                calibrator.temperature,
                tuple(np.asarray(calibrator.weight_3)),
                "nll",
            )
        ),
    )


def test_ensemble_by_hand() -> None:
    """Confidence near 1, half of the rows wrong: T stops at 20, and of the three members 1/2 is best."""
    z = np.array([[20.0, 0.0]] * 2)
    calibrator = calibrators.fit(z, [0, 1], "ensemble_temperature", shrinkage=0.0)
    weight_3 = np.asarray(calibrator.weight_3)  # type: ignore[attr-defined]
    assert weight_3[2] == pytest.approx(1, abs=1e-5)


def test_a_pseudo_row_of_the_plain_softmax_by_hand() -> None:
    """40 rows of which the softmax is sure, 20 of them wrong, and 4 pseudo-rows: stationary in w, the plain softmax's
    weight, where 4 / w + 20 / (w + (1 - w) / 2) = 44."""
    z = np.array([[500.0, 0.0]] * 40)
    calibrator = calibrators.fit(z, [0, 1] * 20, "ensemble_temperature", shrinkage=4.0)
    assert np.asarray(calibrator.weight_3)[0] == 0  # type: ignore[attr-defined]
    weight = np.asarray(calibrator.weight_3)[1]  # type: ignore[attr-defined]
    assert 4 / weight + 20 / (weight + (1 - weight) / 2) == pytest.approx(44)


def test_an_ensemble_that_is_uniform_does_not_claim_to_keep_the_argmax() -> None:
    z = np.random.default_rng(0).normal(0, 3, (50, 4))
    calibrator = calibrators.fit(z, z.argmin(axis=1), "ensemble_temperature", shrinkage=0.0)
    assert (calibrator(z).argmax(axis=1) == 0).all()
    assert not calibrator.keeps_argmax
    assert EnsembleTemperature(2.0, [0.5, 0.0, 0.5]).keeps_argmax


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [100, 20_000])
def test_a_row_that_both_softmaxes_exclude_is_no_obstacle_to_the_ensemble(rows: int) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 1, (rows, 4))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    z[0], labels[0] = [3e4, 0.0, 0.0, 0.0], 1
    calibrator = calibrators.fit(z, labels, "ensemble_temperature", shrinkage=0.0)
    assert isinstance(calibrator, EnsembleTemperature)
    weight_3, at = np.asarray(calibrator.weight_3), (np.arange(rows), labels)
    true_N3 = np.stack(
        [Temperature(calibrator.temperature)(z)[at], Temperature(1.0)(z)[at], np.full(rows, 0.25)], axis=1
    )
    slope_3 = (true_N3 / (true_N3 @ weight_3)[:, None]).mean(axis=0)
    assert weight_3[2] > 0.1 / rows
    assert slope_3.max() <= 1 + 1e-8  # the optimum: no member would gain from more weight
    assert slope_3[weight_3 > 0] == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("weights", [[0.5, 0.5, 0.5], [1.5, -0.5, 0.0], [1.0, 0.0]])
def test_weights_that_are_none(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight_3"):
        EnsembleTemperature(1.0, weights)
