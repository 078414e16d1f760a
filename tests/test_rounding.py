"""Rounded probabilities: what shows a step, how rows are read, and fits on them."""

from __future__ import annotations

import itertools
import json
import math
import warnings

import numpy as np
import numpy.typing as npt
import pytest

import trueodds
from trueodds import calibrators, metrics
from trueodds.calibrators.fitting.rounded import Rounded, fit_zeros, with_zeros, zeros_loss
from trueodds.errors import ConfigError
from trueodds.sums.inputs import check_probabilities, sums_to_one
from trueodds.sums.losses import rounded_losses
from trueodds.sums.rounding import (
    EXACT,
    Resolution,
    RoundingWarning,
    as_distributions,
    checked_rows,
    resolution_of,
    ruled_out,
)
from trueodds.sums.steps import inferred_step, possible_step

Array = npt.NDArray[np.float64]


def population(
    rng: np.random.Generator, rows: int, classes: int, spread: float, temperature: float = 1.0
) -> tuple[Array, npt.NDArray[np.intp]]:
    """Draw probabilities and labels; the labels are those of the probabilities at a temperature."""
    logits_NC = rng.normal(0, spread, (rows, classes))
    p_NC = metrics.softmax(logits_NC)
    true_NC = metrics.softmax(logits_NC / temperature)
    labels_N = (true_NC.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return p_NC, labels_N


def slow_reading(row: list[float], step: float) -> list[float]:
    """Read one row, value by value, as `as_distributions` states."""
    zeros = [k for k, value in enumerate(row) if value < step / 2]
    others = [k for k in range(len(row)) if k not in zeros]
    middle = {k: math.sqrt((row[k] - step / 2) * (row[k] + step / 2)) for k in others}
    missing = 1 - sum(middle.values())
    rest = min(max(missing, step / 4), len(zeros) * step / 2)
    read = [rest / len(zeros) if k in zeros else 0.0 for k in range(len(row))]
    for k in others:
        moved = middle[k] + (1 - rest - sum(middle.values())) / len(others)
        read[k] = min(max(moved, row[k] - 0.49 * step), row[k] + step / 2)
    total = sum(read)
    return [value / total for value in read]


@pytest.mark.parametrize("step", [0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize(("classes", "spread"), [(2, 1.0), (2, 6.0), (3, 3.0), (10, 1.0), (60, 4.0)])
def test_rows_are_read_as_the_slow_twin_reads_them(step: float, classes: int, spread: float) -> None:
    p_NC, _ = population(np.random.default_rng(classes), 60, classes, spread)
    rounded_NC = np.rint(p_NC / step) * step
    read_NC = as_distributions(rounded_NC, step)
    np.testing.assert_allclose(read_NC, [slow_reading(row, step) for row in rounded_NC.tolist()], atol=1e-12)


@pytest.mark.parametrize("step", [0.01, 0.001])
@pytest.mark.parametrize(("classes", "spread"), [(2, 4.0), (3, 0.3), (10, 3.0), (100, 5.0), (100, 1.0)])
def test_a_reading_is_a_distribution_within_half_a_step(step: float, classes: int, spread: float) -> None:
    p_NC, _ = population(np.random.default_rng(1), 400, classes, spread)
    rounded_NC = np.rint(p_NC / step) * step
    read_NC = as_distributions(rounded_NC, step)
    np.testing.assert_allclose(read_NC.sum(axis=1), 1)
    assert (read_NC > 0).all()
    assert np.abs(read_NC - rounded_NC).max() <= 0.5 * step * 1.03
    zero_NC = rounded_NC < step / 2
    assert read_NC[zero_NC].max(initial=0) < 0.505 * step < read_NC[~zero_NC].min()
    for row, read in zip(rounded_NC, read_NC, strict=True):  # the order stays
        assert (np.diff(read[np.argsort(row, kind="stable")]) >= -1e-12).all()


def test_two_classes() -> None:
    """Of two classes only 1.00 beside 0.00 hides anything: p is within half a step of 1, on average a quarter below."""
    read_NC = as_distributions([[1.0, 0.0], [0.5, 0.5], [0.01, 0.99]], 0.01)
    np.testing.assert_allclose(read_NC[0], [0.9975, 0.0025])
    np.testing.assert_allclose(read_NC[1], [0.5, 0.5])
    np.testing.assert_allclose(read_NC[2], [0.00934, 0.99066], atol=1e-5)
    uniform_N = np.linspace(0.995, 1, 2_001)
    assert read_NC[0, 0] == pytest.approx(uniform_N.mean())


@pytest.mark.parametrize(
    ("rows", "step"),
    [
        ([[0.33, 0.33, 0.33]], 0.01),
        ([[0.33, 0.33, 0.33], [1.0, 0.0, 0.0]], 0.01),
        ([[0.333, 0.333, 0.333]], 0.001),
        ([[0.3333, 0.3333, 0.3333]], 1e-4),
        ([[0.333333, 0.333333, 0.333333]], 1e-6),
        ([[0.335, 0.335, 0.335], [0.98, 0.01, 0.01]], 0.005),  # off by more than steps of .001 explain
        ([[0.6, 0.4]], None),  # a sum of 1 shows nothing
        ([[0.62, 0.38, 0.0], [1.0, 0.0, 0.0]], None),  # as a forest of 50 trees
        ([[1 / 3, 1 / 3, 1 / 3]], None),
        ([[0.3, 0.3, 0.3]], None),  # one row is too little for a step of .1
        ([[0.3, 0.2, 0.0], [1.0, 0.0, 0.0]], None),  # rounding does not explain a sum of .5
        ([[1.0, 0.0]], None),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_step_is_inferred_only_where_sums_show_it(
    rows: list[list[float]], step: float | None, dtype: type[np.floating]
) -> None:
    found = inferred_step(np.array(rows, dtype))
    assert found == (None if step is None else pytest.approx(step))
    assert resolution_of(np.array(rows, dtype)).step == found


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_what_classifiers_give_shows_no_step(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(2)
    votes_NC = rng.multinomial(100, [0.5, 0.3, 0.2], 500) / 100
    neighbours_NC = rng.multinomial(5, [0.9, 0.05, 0.05], 500) / 5
    net_NC = metrics.softmax(rng.normal(0, 4, (500, 30)))
    for p_NC in (votes_NC, neighbours_NC, net_NC, np.eye(3)[rng.integers(0, 3, 50)]):
        assert inferred_step(p_NC.astype(dtype)) is None
    assert possible_step(votes_NC) == 0.01
    assert possible_step(neighbours_NC) == 0.1
    assert possible_step(net_NC) is None
    assert possible_step(np.eye(3)) is None


def test_a_missing_class_is_not_taken_for_rounding() -> None:
    rng = np.random.default_rng(3)
    p_NC, _ = population(rng, 400, 20, 3.0)
    assert inferred_step(p_NC.round(2)) == 0.01
    assert inferred_step(p_NC.round(2)[:, :-1]) is None


@pytest.mark.parametrize("value", [0, -0.01, 0.6, 2, True, "1%", "none", [0.01], math.nan])
def test_a_resolution_is_a_step_or_exact(value: object) -> None:
    with pytest.raises(ConfigError, match=r"allowed are a step above 0 and up to 0.5, such as 0.01, and 'exact'"):
        Resolution.of(value)


def test_a_resolution_is_stored() -> None:
    for one in (EXACT, Resolution(0.01), Resolution(1e-3, "inferred"), Resolution.of("exact"), Resolution.of("0.05")):
        assert Resolution.from_json(json.loads(json.dumps(one.to_json()))) == one
    with pytest.raises(ConfigError, match="expected an object with step and source"):
        Resolution.from_json({"step": 0.1})


def test_rows_between_the_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"probabilities\[1, 0\] is 0.123, not a multiple of the resolution 0.01"):
        trueodds.logits_of([[0.5, 0.5], [0.123, 0.877]], resolution=0.01)


@pytest.mark.parametrize("rows", [[[math.nan, 1.0]], [[33.0, 67.0]], [[0.5, 0.0]], [[-0.2, 1.2]]])
def test_bad_rows_are_refused_with_and_without_a_step(rows: list[list[float]]) -> None:
    for resolution in (None, 0.01, "exact"):
        with pytest.raises(ValueError, match="probabilities"):
            trueodds.logits_of(rows, resolution=resolution)
        with pytest.raises(ValueError, match="probabilities"):
            metrics.CalibrationSums.from_probabilities(rows, [0], resolution=resolution)


def test_a_step_explains_sums_far_from_1() -> None:
    rows = np.full((1, 100), 0.0)
    rows[0, :35] = 0.02  # 65 values below .005 hide up to .325
    with pytest.raises(ValueError, match=r"sums to 0\.7"):
        check_probabilities(rows)
    assert sums_to_one(rows, 0.01).all()
    assert checked_rows(rows, 0.01)[1] == Resolution(0.01)
    assert as_distributions(rows, 0.01)[0, 50] == pytest.approx((1 - 35 * math.sqrt(0.015 * 0.025)) / 65)


@pytest.mark.parametrize(("classes", "most"), [(2, 0.1), (40, 0.1), (60, 0.15), (100, 0.25), (900, 0.25)])
def test_more_classes_may_be_further_from_1_in_two_decimals(classes: int, most: float) -> None:
    for total, is_sound in ((1.01 - most, True), (0.99 - most, False)):
        row = np.zeros((1, classes))
        row[0, : round(100 * total) // 2] = 0.02 if classes > 40 else 0
        row[0, 0] += total - row.sum()
        assert sums_to_one(row)[0] == (is_sound and classes >= 20), (total, row.sum())


def test_exact_rows_are_scored_as_before() -> None:
    p_NC, labels_N = population(np.random.default_rng(4), 500, 5, 2.0)
    sums = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    true_N = p_NC[np.arange(500), labels_N]
    assert sums.total("nll") == pytest.approx(-np.log(true_N).sum(), rel=1e-12)
    assert sums == metrics.CalibrationSums.from_probabilities(p_NC, labels_N, resolution="exact")
    assert np.array_equal(trueodds.logits_of(p_NC), np.log(p_NC))
    assert ruled_out(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 1])) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_rounded_rows(dtype: type[np.floating]) -> None:
    """Confidence and correctness are those of the values but 1; NLL and Brier score those of the reading."""
    p_NC, labels_N = population(np.random.default_rng(5), 3_000, 12, 4.0)
    rounded_NC = p_NC.round(2).astype(dtype)
    sums = metrics.CalibrationSums.from_probabilities(rounded_NC, labels_N)
    exact = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    top_N = rounded_NC.max(axis=1).astype(np.float64)
    assert sums.total("confidence") == pytest.approx(np.where(top_N == 1, 0.9975, top_N).sum(), rel=1e-6)
    assert sums.total("nll") / sums.n == pytest.approx(exact.total("nll") / exact.n, abs=0.02)
    assert sums.total("brier") / sums.n == pytest.approx(exact.total("brier") / exact.n, abs=0.002)
    losses = rounded_losses(rounded_NC, labels_N, 0.01)
    assert sums.total("nll") == pytest.approx(losses.nll_N.sum())
    read_NC = as_distributions(rounded_NC, 0.01)
    slow_N = ((read_NC - np.eye(12)[labels_N]) ** 2).sum(axis=1)
    assert sums.total("brier") == pytest.approx(slow_N.sum())


def test_coarse_rows_have_no_nll() -> None:
    p_NC, labels_N = population(np.random.default_rng(6), 300, 5, 2.0)
    sums = metrics.CalibrationSums.from_probabilities(p_NC.round(1), labels_N)
    with pytest.raises(ValueError, match="no nll"):
        sums.total("nll")
    assert sums.total("brier") / sums.n == pytest.approx(metrics.brier(p_NC, labels_N), abs=0.02)


@pytest.mark.parametrize(("classes", "spread"), [(2, 5.0), (3, 4.0), (30, 3.0)])
def test_no_probabilities_that_round_to_the_rows_have_less_nll(classes: int, spread: float) -> None:
    p_NC, labels_N = population(np.random.default_rng(7), 2_000, classes, spread, temperature=2.0)
    losses = rounded_losses(p_NC.round(2), labels_N, 0.01)
    true_N = -np.log(p_NC[np.arange(2_000), labels_N])
    assert (losses.least_N <= true_N + 1e-9).all()
    assert (losses.least_N <= losses.nll_N + 1e-12).all()


def test_the_lower_bound_is_reached() -> None:
    """Slow twin: the largest p_y over a fine grid of distributions that round to the row."""
    row, step = [0.7, 0.3, 0.0], 0.1
    grid = np.arange(0, 1 + 1e-9, 0.005)
    best = [0.0, 0.0, 0.0]
    for p, q in itertools.product(grid, grid):
        own = (p, q, 1 - p - q)
        if own[2] >= -1e-9 and all(abs(a - b) <= step / 2 + 1e-9 for a, b in zip(own, row, strict=True)):
            best = [max(a, b) for a, b in zip(best, own, strict=True)]
    losses = rounded_losses([row] * 3, np.arange(3), step)
    np.testing.assert_allclose(np.exp(-losses.least_N), best, atol=1e-9)


def test_logits_warn_of_a_step_that_nobody_gave() -> None:
    rows = [[0.33, 0.33, 0.33], [1.0, 0.0, 0.0]]
    with pytest.warns(
        RoundingWarning, match=r"steps of 0.01, as row sums other than 1 show: 0 means below 0.005; pass resolution"
    ):
        inferred_NC = trueodds.logits_of(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(trueodds.logits_of(rows, resolution=0.01), inferred_NC)
        assert trueodds.logits_of([[1.0, 0.0]])[0, 1] < -36


def zeros_twin(row: npt.NDArray[np.float64], step: float, power: float, shift: float) -> list[float]:
    """Slow twin of `with_zeros` for the probabilities of one row, as `logits_of` reads them."""
    zeros = [p < 0.505 * step for p in row]
    certain = sum(zeros) == len(row) - 1
    half, most = np.log(step / 2), np.log(max(row) / 2)
    changed = []
    for p, zero in zip(row, zeros, strict=True):
        z = half + power * (np.log(p) - half) if zero else np.log(p)
        changed.append(float(min(z + shift, most) if zero and certain else z))
    return changed


@pytest.mark.parametrize(("power", "shift"), [(1.0, 0.0), (2.0, -1.5), (0.6, 1.0), (1.0, 6.0)])
@pytest.mark.parametrize("classes", [2, 6])
def test_zeros_are_changed_as_documented(classes: int, power: float, shift: float) -> None:
    p_NC, _ = population(np.random.default_rng(9), 300, classes, 5.0)
    logits_NC = trueodds.logits_of(p_NC.round(2), resolution=0.01)
    slow_NC = [zeros_twin(row, 0.01, power, shift) for row in np.exp(logits_NC)]
    np.testing.assert_allclose(with_zeros(logits_NC, 0.01, power, shift), slow_NC, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 10])
def test_the_gradient_of_power_and_shift(classes: int) -> None:
    p_NC, labels_N = population(np.random.default_rng(8), 200, classes, 5.0, temperature=1.5)
    logits_NC = trueodds.logits_of(p_NC.round(2), resolution=0.01)
    for theta in ([0.0, 0.0, 0.0], [-0.5, 0.6, -1.0], [0.2, 0.1, 0.3]):
        slope_3 = zeros_loss(np.array(theta), logits_NC, labels_N, 0.01)[1]
        for k in range(3):
            step = np.eye(3)[k] * 1e-6
            up, down = (zeros_loss(theta + sign * step, logits_NC, labels_N, 0.01)[0] for sign in (1, -1))
            assert slope_3[k] == pytest.approx((up - down) / 2e-6, abs=1e-7)


def test_rows_without_zeros_are_unchanged() -> None:
    dull_NC = trueodds.logits_of(np.full((20, 4), 0.25), resolution=0.01)
    assert fit_zeros(dull_NC, np.arange(20) % 4, 0.01) == (1.0, 0.0)
    one_zero_NC = trueodds.logits_of([[0.5, 0.3, 0.2, 0.0]] * 20, resolution=0.01)
    assert fit_zeros(one_zero_NC, np.arange(20) % 3, 0.01)[1] == 0.0, "no row is certain"
    p_NC, _ = population(np.random.default_rng(9), 300, 6, 3.0)
    logits_NC = trueodds.logits_of(p_NC.round(2), resolution=0.01)
    stored_NC = (logits_NC - logits_NC.max(axis=1, keepdims=True)).astype(np.float32)  # as a service stores them
    both = [with_zeros(rows_NC, 0.01, 2.0, -1.0) for rows_NC in (stored_NC, logits_NC)]
    np.testing.assert_allclose(both[0], both[1], atol=1e-5)


@pytest.mark.parametrize("classes", [2, 20])
def test_certain_rows_get_their_own_confidence(classes: int) -> None:
    """A third of the rows are certain, and right in 90%. No temperature fits both them and the other rows."""
    rng = np.random.default_rng(12)
    p_NC, labels_N = population(rng, 4_000, classes, 2.0)
    certain_N = np.arange(4_000) % 3 == 0
    p_NC[certain_N] = np.eye(classes)[0]
    labels_N[certain_N] = rng.random(certain_N.sum()) > 0.9  # class 1 where they are wrong
    logits_NC = trueodds.logits_of(p_NC.round(2), resolution=0.01)
    fitted = trueodds.fit(logits_NC, labels_N, "temperature", resolution=0.01)
    assert fitted(logits_NC)[certain_N, 0].mean() == pytest.approx(0.9, abs=0.03)
    assert isinstance(fitted, Rounded) and isinstance(fitted.calibrator, calibrators.Temperature)
    assert fitted.calibrator.temperature == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("classes", "spread", "temperature"), [(3, 4.0, 2.0), (20, 5.0, 2.0), (20, 3.0, 1.0), (10, 1.5, 0.7), (2, 5.0, 1.5)]
)
def test_fits_on_rounded_rows(classes: int, spread: float, temperature: float) -> None:
    rng = np.random.default_rng(10)
    p_NC, labels_N = population(rng, 6_000, classes, spread, temperature)
    rounded_NC = p_NC.round(2)
    exact = calibrators.fit(np.log(p_NC), labels_N, "temperature")
    own = trueodds.fit(trueodds.logits_of(rounded_NC, resolution=0.01), labels_N, "temperature", resolution=0.01)
    assert isinstance(own, Rounded)
    assert isinstance(own.calibrator, calibrators.Temperature)
    assert isinstance(exact, calibrators.Temperature)
    assert own.calibrator.temperature == pytest.approx(exact.temperature, rel=0.06)
    later_NC, later_N = population(rng, 6_000, classes, spread, temperature)
    after = metrics.ece(own(trueodds.logits_of(later_NC.round(2), resolution=0.01)), later_N)
    assert after <= metrics.ece(exact(np.log(later_NC)), later_N) + 0.01


def test_select_on_rounded_rows() -> None:
    p_NC, labels_N = population(np.random.default_rng(11), 400, 5, 4.0, 2.0)
    logits_NC = trueodds.logits_of(p_NC.round(2), resolution=0.01)
    selection = calibrators.select(logits_NC, labels_N, resolution=0.01)
    assert isinstance(selection.calibrator, Rounded)
    assert selection.calibrator.calibrator.name in {one.name for one in selection.table if one.chosen}
    assert calibrators.fit(logits_NC, labels_N, resolution=0.01) == selection.calibrator


def test_a_rounded_calibrator_is_stored_and_exact_ones_stay() -> None:
    p_NC, labels_N = population(np.random.default_rng(12), 400, 5, 4.0, 2.0)
    logits_NC = trueodds.logits_of(p_NC.round(2), resolution=0.01)
    own = trueodds.fit(logits_NC, labels_N, "vector", resolution=0.01)
    back = calibrators.from_json(json.loads(json.dumps(own.to_json())))
    assert back == own
    assert np.array_equal(back(logits_NC), own(logits_NC))
    assert own.classes == 5
    assert trueodds.fit(logits_NC, labels_N, "vector") == trueodds.fit(
        logits_NC, labels_N, "vector", resolution="exact"
    )
    with pytest.raises(ConfigError, match="unknown calibrator 'rounded'"):
        trueodds.fit(logits_NC, labels_N, "rounded")


def test_coarse_fits_warn() -> None:
    p_NC, labels_N = population(np.random.default_rng(13), 400, 5, 3.0)
    logits_NC = trueodds.logits_of(p_NC.round(1), resolution=0.1)
    assert (
        "too coarse for a dependable fit"
        in trueodds.fit(logits_NC, labels_N, "temperature", resolution=0.1).warnings[0]
    )
