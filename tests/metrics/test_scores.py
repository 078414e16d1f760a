"""Error, proper scores and the ECE family against their slow twins and by hand."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from tests import reference
from trueodds.metrics import (
    CalibrationSums,
    accuracy,
    adaptive_ece,
    brier,
    brier_decomposition,
    debiased_ece,
    ece,
    ece_interval,
    error_rate,
    fraction_above,
    kde_ece,
    ks_error,
    label_binned_ece,
    mce,
    mean_confidence,
    nll,
    noise_floor,
    sece,
    signed_gap,
    smooth_ece,
    sweep_ece,
)

METRICS: tuple[Callable[..., Any], ...] = (
    accuracy,
    adaptive_ece,
    brier,
    brier_decomposition,
    debiased_ece,
    ece,
    ece_interval,
    error_rate,
    fraction_above,
    kde_ece,
    ks_error,
    label_binned_ece,
    mce,
    mean_confidence,
    nll,
    noise_floor,
    sece,
    signed_gap,
    smooth_ece,
    sweep_ece,
)
FROM_CELLS = (
    accuracy,
    brier,
    ece,
    ece_interval,
    error_rate,
    kde_ece,
    mce,
    nll,
    noise_floor,
    sece,
    signed_gap,
    smooth_ece,
)
pairs = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30)
NORMS: tuple[Literal["l1", "l2", "max"], ...] = ("l1", "l2", "max")


@st.composite
def classified(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """Rows of probabilities (with exact 0s and 1s among them) and labels."""
    classes = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 6), min_size=classes, max_size=classes).filter(any)
    rows = [[w / sum(weights) for w in weights] for weights in draw(st.lists(row, min_size=1, max_size=12))]
    return rows, draw(st.lists(st.integers(0, classes - 1), min_size=len(rows), max_size=len(rows)))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:nll")
@given(classified())
def test_scores_equal_their_twins(data: tuple[list[list[float]], list[int]]) -> None:
    rows, labels = data
    assert error_rate(rows, labels) == reference.error_rate(rows, labels)
    assert accuracy(rows, labels) == pytest.approx(1 - reference.error_rate(rows, labels), abs=1e-15)
    assert nll(rows, labels) == pytest.approx(reference.nll(rows, labels), rel=1e-12, abs=1e-15)
    assert brier(rows, labels) == pytest.approx(reference.brier(rows, labels), rel=1e-12, abs=1e-15)
    assert signed_gap(rows, labels) == pytest.approx(reference.signed_gap(rows, labels), rel=1e-12, abs=1e-14)
    assert accuracy(rows, labels) - mean_confidence(rows, labels) == pytest.approx(signed_gap(rows, labels), abs=1e-14)
    sums = CalibrationSums.from_probabilities(rows, labels)
    assert [f(sums) for f in FROM_CELLS] == [f(rows, labels) for f in FROM_CELLS]


@given(pairs, st.sampled_from([1, 10, 15, 100, 1000]), st.sampled_from(NORMS))
def test_ece_equals_its_twin(data: list[tuple[float, bool]], bins: int, norm: Literal["l1", "l2", "max"]) -> None:
    confidence, correct = [c for c, _ in data], [int(a) for _, a in data]
    value = ece(CalibrationSums.from_top(confidence, correct), bins=bins, norm=norm)
    assert value == pytest.approx(reference.ece(confidence, correct, bins, norm), abs=1e-12)


def test_by_hand() -> None:
    """Three rows: .8 right and .6 wrong lie in other bins than .5 right (of 2)."""
    rows, labels = [[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]], [0, 0, 0]
    assert error_rate(rows, labels) == pytest.approx(1 / 3)
    assert signed_gap(rows, labels) == pytest.approx((0.2 - 0.6 + 0.5) / 3)
    assert mean_confidence(rows, labels) == pytest.approx(1.9 / 3)
    assert nll(rows, labels) == pytest.approx(-(math.log(0.8) + math.log(0.4) + math.log(0.5)) / 3)
    assert brier(rows, labels) == pytest.approx((0.08 + 0.72 + 0.5) / 3)
    assert ece(rows, labels, bins=2) == pytest.approx((abs(0.2 - 0.6) + 0.5) / 3)
    assert ece(rows, labels, bins=2, norm="l2") == pytest.approx(math.sqrt((2 * 0.2**2 + 0.5**2) / 3))
    assert mce(rows, labels, bins=2) == ece(rows, labels, bins=2, norm="max") == pytest.approx(0.5)


@pytest.mark.parametrize("norm", NORMS)
def test_perfect_calibration_is_zero(norm: Literal["l1", "l2", "max"]) -> None:
    sums = CalibrationSums.from_top([0.75] * 4 + [0.5] * 2 + [1.0] * 3, [1, 1, 1, 0, 1, 0, 1, 1, 1])
    assert ece(sums, norm=norm) == 0
    assert signed_gap(sums) == 0


@pytest.mark.filterwarnings("ignore:nll")
def test_always_certain_errs_by_the_error_rate() -> None:
    """A common AdaECE returns 0 here; confidence 1 belongs to the last bin and counts."""
    rows, labels = np.eye(4)[[0, 1, 2, 3, 0]], [0, 1, 2, 0, 1]
    assert ece(rows, labels) == mce(rows, labels) == error_rate(rows, labels) == 0.4
    assert signed_gap(rows, labels) == -0.4
    assert brier(rows, labels) == 0.8
    assert nll(rows, labels) == pytest.approx(0.4 * 708.3964185322641)


def test_nll_says_how_many_rows_were_clipped() -> None:
    """Two rows say 0 and one 1e-320, which is no normal number either; 1e-300 is what it is."""
    true = [0.0, 0.0, 1e-320, 1e-300, 0.4]
    rows, labels = np.array([[1 - p, p] for p in true]), [1] * 5
    expected = (3 * 708.3964185322641 + 300 * math.log(10) - math.log(0.4)) / 5
    with pytest.warns(
        UserWarning, match=r"nll: 3 of 5 rows gave .* a probability of 0 and were clipped: each .* 708.4"
    ):
        assert nll(rows, labels) == pytest.approx(expected)
    with pytest.warns(UserWarning, match="nll: up to 3 of 5 rows"):
        assert nll(CalibrationSums.from_probabilities(rows, labels)) == pytest.approx(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nll(rows[3:], labels[3:])
        many = CalibrationSums.from_top(np.full(20_000, 0.9), np.zeros(20_000), nll_N=np.full(20_000, 2.3))
        assert nll(many) == pytest.approx(2.3)


def test_one_bin_is_the_absolute_signed_gap() -> None:
    confidence, correct = np.random.default_rng(0).random((2, 200))
    sums = CalibrationSums.from_top(confidence, correct < 0.3)
    assert ece(sums, bins=1) == pytest.approx(abs(signed_gap(sums)), abs=1e-14)


def test_more_bins_never_give_less() -> None:
    """Refining a bin splits |x + y| into |x| + |y|."""
    confidence, coin = np.random.default_rng(0).random((2, 500))
    sums = CalibrationSums.from_top(confidence, coin < confidence**2)
    values = [ece(sums, bins=bins) for bins in (1, 5, 10, 50, 100, 500, 1000, 3000)]
    assert values == sorted(values)
    assert all(values[-1] + 1e-12 >= v for v in values)


def test_uniform_probabilities_have_known_scores() -> None:
    rows = np.full((6, 8), 1 / 8)
    assert nll(rows, range(6)) == pytest.approx(math.log(8))
    assert brier(rows, range(6)) == pytest.approx(7 / 8)


def test_a_class_without_rows_changes_nothing() -> None:
    rows, labels = np.array([[0.995, 0.005, 0.0], [0.3, 0.7, 0.0]]), [0, 1]
    for metric in METRICS:
        assert metric(rows, labels) == metric(rows[:, :2], labels)


@pytest.mark.filterwarnings("ignore:nll")  # float16 makes zeros of small probabilities
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float16, 3e-3), (np.longdouble, 1e-14)])
def test_other_precisions(dtype: npt.DTypeLike, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.dirichlet(np.full(100, 0.1), 300), rng.integers(0, 100, 300)
    rounded = rows.astype(dtype)
    for metric in (accuracy, brier, mean_confidence):
        assert metric(rounded, labels) == pytest.approx(metric(rows, labels), abs=tolerance)
        assert metric(rounded, labels) == pytest.approx(metric(rounded.astype(np.float64), labels), rel=1e-12)
    true = rounded.astype(np.float64)[np.arange(300), labels]
    assert nll(rounded, labels) == pytest.approx(-np.log(np.maximum(true, np.finfo(np.float64).tiny)).mean())


def test_float16_softmax_of_a_thousand_classes_is_accepted() -> None:
    z = np.random.default_rng(0).normal(0, 1, (200, 1000))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert 0 < mean_confidence(p.astype(np.float16), np.zeros(200, np.uint8)) < 0.1


def test_a_row_sum_just_above_one_is_clipped() -> None:
    sums = CalibrationSums.from_probabilities([[1.0005, 0.0]], [0])
    assert sums.total("confidence") == 1
    assert sums.total("nll") == 0


def test_fraction_above_by_hand() -> None:
    rows, labels = [[0.995, 0.005], [0.99, 0.01], [0.999, 0.001], [0.6, 0.4], [0.002, 0.998]], [0, 0, 1, 1, 1]
    for given_rows in ((rows, labels), (CalibrationSums.from_probabilities(rows, labels),)):
        value = fraction_above(*given_rows)  # .99 itself is not above .99
        assert value.fraction == 3 / 5
        assert value.accuracy == pytest.approx(2 / 3)
        assert fraction_above(*given_rows, threshold=0).fraction == 1
        assert fraction_above(*given_rows, threshold=0.5).accuracy == accuracy(rows, labels)
        assert math.isnan(fraction_above(*given_rows, threshold=1).accuracy)
    assert fraction_above(rows, labels, threshold=0.9951234).fraction == 2 / 5


def test_fraction_above_knows_what_sums_do_not() -> None:
    with pytest.raises(
        ValueError, match=r"threshold is 0.9999; sums know multiples of 1/3000 only: pass probabilities"
    ):
        fraction_above(CalibrationSums.from_top([0.5], [1]), threshold=0.9999)
    for threshold in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"threshold is .*; allowed is \[0, 1\]"):
            fraction_above([[0.5, 0.5]], [0], threshold=threshold)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_proper_scores_agree_with_scikit_learn(classes: int) -> None:
    """Where no p_y is 0: `log_loss` counts it as the dtype's epsilon (36 nats in float64), here it is 708 nats."""
    rng = np.random.default_rng(classes)
    rows, labels = rng.dirichlet(np.ones(classes), 200), rng.integers(0, classes, 200)
    names = list(range(classes))
    assert nll(rows, labels) == pytest.approx(log_loss(labels, rows, labels=names), rel=1e-12)
    expected = brier_score_loss(labels, rows, labels=names, scale_by_half=False)
    assert brier(rows, labels) == pytest.approx(expected, rel=1e-12)
    if classes == 2:  # of two classes its default is the score of one class: half
        assert brier(rows, labels) == pytest.approx(2 * brier_score_loss(labels, rows[:, 1]), rel=1e-12)


GOOD, LABELS = [[0.9, 0.1], [0.2, 0.8]], [0, 1]
REFUSED: list[tuple[object, object, str]] = [
    (np.zeros((0, 2)), [], r"probabilities has shape \(0, 2\)"),
    ([], [], r"probabilities has shape \(0,\)"),
    ([0.5, 0.5], [0], r"labels has shape \(1,\); expected \(2,\)"),
    (np.full((2, 2, 2), 0.5), [0, 0], r"probabilities has shape \(2, 2, 2\)"),
    ([[np.nan, 0.5], [0.2, 0.8]], LABELS, r"probabilities\[0, 0\] is nan; every value must be finite"),
    ([[0.5, 0.5], [0.2, np.inf]], LABELS, r"probabilities\[1, 1\] is inf"),
    ([[0.5, 0.5], [0.2, 0.7]], LABELS, r"probabilities\[1\] sums to 0.9; every row must sum to 1"),
    ([[0.5, 0.5], [0.2, 0.8021]], LABELS, r"probabilities\[1\] sums to 1.0021"),
    ([[5.0, -4.0], [0.2, 0.8]], LABELS, r"holds -4; allowed is \[0, 1\]. If these are logits, apply a calibrator"),
    ([[5.0, 4.0], [0.2, 0.8]], LABELS, r"holds 5; allowed is \[0, 1\]. If these are logits"),
    ([["a", "b"]], [0], "probabilities has dtype <U1; expected floating-point numbers"),
    ([[True, False]], [0], "probabilities has dtype bool"),
    (GOOD, [0.0, 0.5], r"labels\[1\] is 0.5; expected integer class indices 0..1"),
    (GOOD, [0.0, np.inf], r"labels\[1\] is inf; expected integer class indices 0..1"),
    (GOOD, [True, False], r"labels has dtype bool; .* pass labels.astype\(int\) if True is class 1"),
    (GOOD, ["cat", "dog"], r"labels has dtype <U3; .* in place of names pass \[classes.index"),
    (GOOD, [0, 2], r"labels holds 2; allowed are the class indices 0..1"),
    (GOOD, [-1, 0], "labels holds -1"),
    (GOOD, [0], r"labels has shape \(1,\); expected \(2,\)"),
    (GOOD, [[1, 0], [0, 1]], r"labels has shape \(2, 2\); expected \(2,\), one class index for each row"),
    (GOOD, None, "probabilities need labels"),
    (CalibrationSums.from_top([0.5], [1]), [1], "CalibrationSums already hold their labels"),
    (CalibrationSums.zero(), None, "no labelled rows"),
]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("probabilities", "labels", "message"), REFUSED)
def test_what_is_refused(metric, probabilities, labels, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        metric(probabilities, labels)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown norm 'l3'; allowed: l1, l2, max"):
        ece(GOOD, LABELS, norm="l3")  # type: ignore[arg-type]
    for metric in (ece, mce, noise_floor, ece_interval):
        with pytest.raises(ValueError, match="bins is 16; allowed are the divisors of 3000"):
            metric(GOOD, LABELS, bins=16)


def test_nothing_given_is_changed() -> None:
    rows, labels = np.array(GOOD), np.array(LABELS)
    rows.flags.writeable = labels.flags.writeable = False
    for metric in METRICS:
        metric(rows, labels)
