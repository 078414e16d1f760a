"""Binned calibration errors, the sweep, the cumulative error and the Brier decomposition: twins, by hand, at edges."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from tests import reference_metrics as twin
from tests.metrics.rows import sums_of
from trueodds.metrics import (
    CalibrationSums,
    adaptive_ece,
    binomial_interval,
    brier_decomposition,
    calibration_test,
    classwise_ece,
    classwise_ece_interval,
    classwise_noise_floor,
    debiased_ece,
    ece,
    ece_interval,
    fraction_above,
    gap_sequence,
    kde_ece,
    ks_error,
    label_binned_ece,
    mce,
    mce_interval,
    mce_noise_floor,
    noise_floor,
    noise_floor_per_class,
    sece,
    sensitivity,
    signed_gap,
    sweep_ece,
    weighted_ece,
)
from trueodds.metrics.binned import NORMS, Norm
from trueodds.metrics.ranked import BINNINGS, assign_bins, mass_bins, rank, rank_predictions
from trueodds.processes.choices import Binning
from trueodds.sums.bins import EDGES

Array = npt.NDArray[np.float64]
Rows = list[tuple[float, int]]
# Few distinct values, so that ties are the rule; edges of bins among them.
values = st.sampled_from([0.0, 0.5, 0.51, 0.6, 2 / 3, 0.7, 0.8, np.nextafter(0.8, 1), 0.9, 0.95, 0.999, 1.0])
tied = st.lists(st.tuples(values, st.integers(0, 1)), min_size=1, max_size=25)
untied = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=25)
rows_of = st.one_of(tied, untied)
METRICS: list[Callable[..., Any]] = [
    adaptive_ece,
    brier_decomposition,
    debiased_ece,
    ece,
    ks_error,
    label_binned_ece,
    mce,
    sweep_ece,
]


def two_classes(rows: Rows) -> tuple[Array, npt.NDArray[np.intp]]:
    """Two-class probabilities and labels with these top labels; confidences from 1/2 on."""
    confidence = np.array([c for c, _ in rows])
    return np.stack([confidence, 1 - confidence], axis=1), np.array([1 - a for _, a in rows])


def halves(rows: Rows) -> Rows:
    return [(max(c, 1 - c), a) for c, a in rows]


def drawn(n: int, seed: int = 0) -> tuple[Array, npt.NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    confidence = 1 - 0.5 * rng.random(n) ** 2
    confidence[rng.random(n) < 0.1] = 1.0
    return np.stack([confidence, 1 - confidence], axis=1), (rng.random(n) > confidence**1.5).astype(np.intp)


@given(rows_of, st.sampled_from([1, 2, 5, 15, 40]), st.sampled_from(NORMS), st.sampled_from(BINNINGS))
def test_binned_errors_equal_their_twins(rows: Rows, bins: int, norm: Norm, binning: Binning) -> None:
    rows = halves(rows)
    given_rows = two_classes(rows)
    options: dict[str, Any] = {"bins": bins, "norm": norm, "binning": binning}
    assert ece(*given_rows, **options) == pytest.approx(twin.ece(rows, **options), abs=1e-12)
    assert label_binned_ece(*given_rows, **options) == pytest.approx(twin.label_binned_ece(rows, **options), abs=1e-12)
    assert ece(*given_rows, **options) <= label_binned_ece(*given_rows, **options) + 1e-12  # Jensen
    debiased = debiased_ece(*given_rows, bins=bins, binning=binning)
    assert debiased**2 == pytest.approx(twin.debiased_ece(rows, bins, binning) ** 2, abs=1e-12)
    assert adaptive_ece(*given_rows, bins=bins, norm=norm) == ece(*given_rows, bins=bins, norm=norm, binning="mass")


@given(rows_of, st.sampled_from([1, 2, 3, 7, 40]))
def test_both_ways_to_bins_of_equal_mass_agree(rows: Rows, bins: int) -> None:
    groups = rank([c for c, _ in rows], [a for _, a in rows])
    fast, slow = mass_bins(groups, bins), assign_bins(groups, bins, "mass").bins
    for name in ("lo_B", "hi_B", "count_B", "confidence_B", "correct_B", "variance_B"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), atol=1e-12, err_msg=name)
    assert np.array_equal(fast.count_B, [len(b) for b in twin.mass_bins(rows, bins)])


@given(rows_of, st.sampled_from(NORMS), st.sampled_from(BINNINGS))
def test_sweep_equals_its_twin(rows: Rows, norm: Norm, binning: Binning) -> None:
    rows = halves(rows)
    sweep = sweep_ece(*two_classes(rows), norm=norm, binning=binning)
    expected, bins = twin.sweep_ece(rows, norm, binning)
    assert sweep.bins == bins
    assert sweep.ece == pytest.approx(expected, abs=1e-12)


@given(rows_of)
def test_ks_equals_its_twin(rows: Rows) -> None:
    rows = halves(rows)
    assert ks_error(*two_classes(rows)) == pytest.approx(twin.ks_error(rows), abs=1e-12)
    assert ks_error(*two_classes(rows)) >= abs(signed_gap(*two_classes(rows))) - 1e-12


@given(rows_of, st.sampled_from([1, 5, 15, 20]), st.sampled_from(BINNINGS))
def test_brier_decomposition_equals_its_twin(rows: Rows, bins: int, binning: Binning) -> None:
    rows = halves(rows)
    terms = brier_decomposition(*two_classes(rows), bins=bins, binning=binning)
    assert dataclasses.astuple(terms) == pytest.approx(twin.brier_terms(rows, bins, binning), abs=1e-12)


@pytest.mark.parametrize("n", [50, 1000, 20_000])
@pytest.mark.parametrize("binning", BINNINGS)
def test_brier_identity_and_sums(n: int, binning: Binning) -> None:
    rows = drawn(n)
    exact = brier_decomposition(*rows, binning=binning)
    coarse = brier_decomposition(CalibrationSums.from_probabilities(*rows), binning=binning)
    for d in (exact, coarse):
        total = d.reliability - d.resolution + d.uncertainty + d.within_bin_variance - d.within_bin_covariance
        assert total == pytest.approx(d.brier, abs=1e-14)
    assert coarse.brier == pytest.approx(exact.brier, abs=1 / 3000)
    assert coarse.uncertainty == pytest.approx(exact.uncertainty, abs=1e-14)
    if binning == "width":
        assert coarse.reliability == pytest.approx(exact.reliability, abs=1e-13)
        assert coarse.resolution == pytest.approx(exact.resolution, abs=1e-13)
    confidence, correct = rows[0].max(axis=1), rows[1] == 0
    assert exact.brier == pytest.approx(np.mean((correct - confidence) ** 2))


@pytest.mark.full
@given(tied, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows: Rows, random: Any) -> None:
    rows = halves(rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    for metric in METRICS:
        assert metric(*two_classes(rows)) == metric(*two_classes(shuffled)), metric


@given(rows_of, rows_of)
def test_merged_sums_are_the_whole(one: Rows, other: Rows) -> None:
    merged, whole = sums_of(one) + sums_of(other), sums_of(one + other)
    for metric in (ece, mce, label_binned_ece, ks_error):
        assert metric(merged) == pytest.approx(metric(whole), abs=1e-12)
    assert adaptive_ece(merged, bins=1) == pytest.approx(abs(signed_gap(whole)), abs=1e-12)


@pytest.mark.parametrize("n", [30, 500, 20_000])
def test_sums_within_the_stated_bounds(n: int) -> None:
    for seed in range(20 if n < 1000 else 3):
        rows = drawn(n, seed)
        sums = CalibrationSums.from_probabilities(*rows)
        count, _, right = sums.cells[:3]
        for bins in (5, 15):
            end = np.cumsum(count)
            cells = np.searchsorted(end, [b * n // bins for b in range(1, bins)])
            inside = right[cells] * (count[cells] - right[cells]) / count[cells] + count[cells] / 12_000
            assert abs(adaptive_ece(sums, bins=bins) - adaptive_ece(*rows, bins=bins)) <= 2 * inside.sum() / n + 1e-12
        assert abs(label_binned_ece(sums) - label_binned_ece(*rows)) <= 1 / 3000
        assert label_binned_ece(sums, norm="l2") == pytest.approx(label_binned_ece(*rows, norm="l2"), abs=1 / 3000)
        low, high = np.arange(3000) / 3000, np.arange(1, 3001) / 3000
        below = np.maximum(right * (1 - low), (count - right) * high).max() / n
        assert -1e-12 <= ks_error(*rows) - ks_error(sums) <= below
        for norm in NORMS:
            assert ece(sums, norm=norm) == ece(*rows, norm=norm)


def test_sums_are_exact_where_cells_hold_one_confidence() -> None:
    rng = np.random.default_rng(3)
    confidence = rng.integers(1500, 3001, 400) / 3000
    rows = np.stack([confidence, 1 - confidence], axis=1), rng.integers(0, 2, 400)
    for metric in METRICS:
        value, expected = metric(CalibrationSums.from_probabilities(*rows)), metric(*rows)
        pair = [dataclasses.astuple(v) if dataclasses.is_dataclass(v) else v for v in (value, expected)]  # type: ignore[arg-type]
        assert pair[0] == pytest.approx(pair[1], abs=1e-12), metric


def test_equal_mass_by_hand() -> None:
    """Six rows in two bins of three: (.5, .6, .7; one right) and (.8, .9, 1; two right)."""
    rows = two_classes([(0.9, 1), (0.5, 0), (0.7, 1), (1.0, 1), (0.6, 0), (0.8, 0)])
    gaps = (abs(1 - 1.8) / 3, abs(2 - 2.7) / 3)
    assert adaptive_ece(*rows, bins=2) == pytest.approx(sum(gaps) / 2)
    assert adaptive_ece(*rows, bins=2, norm="l2") == pytest.approx(math.sqrt((gaps[0] ** 2 + gaps[1] ** 2) / 2))
    assert mce(*rows, bins=2, binning="mass") == pytest.approx(max(gaps))
    assert debiased_ece(*rows, bins=2) == 0  # gaps^2 of .071 and .054 against a variance of 1/3 * 2/3 / 2 = 1/9


def test_ties_at_a_cut_by_hand() -> None:
    """Four rows at .8, one of them right, in two bins: half a right row in each, whatever the order."""
    rows = two_classes([(0.8, 1), (0.8, 0), (0.8, 0), (0.8, 0)])
    assert adaptive_ece(*rows, bins=2) == pytest.approx(0.55)
    assert mce(*rows, bins=2, binning="mass") == pytest.approx(0.55)


def test_fewer_rows_than_bins() -> None:
    rows: Rows = [(0.6, 1), (0.9, 0), (0.7, 1)]
    assert adaptive_ece(*two_classes(rows), bins=15) == pytest.approx((0.4 + 0.9 + 0.3) / 3)
    assert debiased_ece(*two_classes(rows), bins=15) == 0  # no bin of two


def test_always_certain_errs_by_the_error_rate() -> None:
    """A common AdaECE builds edges by interpolation and returns 0 here."""
    rows, labels = np.eye(4)[[0, 1, 2, 3, 0]], [0, 1, 2, 0, 1]
    for metric in (adaptive_ece, label_binned_ece, ks_error):
        assert metric(rows, labels) == pytest.approx(0.4), metric
    assert sweep_ece(rows, labels).ece == pytest.approx(0.4)
    assert sweep_ece(rows, labels).bins == 5


def test_one_row_and_one_class() -> None:
    for metric in (ece, mce, adaptive_ece, label_binned_ece, ks_error):
        assert metric([[0.3, 0.7]], [0]) == pytest.approx(0.7), metric
        assert metric([[1.0], [1.0]], [0, 0]) == 0, metric
    assert sweep_ece([[0.3, 0.7]], [1]) == sweep_ece([[0.3, 0.7]], [1], binning="width")
    assert debiased_ece([[0.3, 0.7]], [0], binning="width") == 0
    decomposition = brier_decomposition([[0.3, 0.7]], [0])
    assert dataclasses.astuple(decomposition) == pytest.approx((0.49, 0.49, 0, 0, 0, 0))


def test_label_binned_by_hand() -> None:
    """Two rows in one bin: ECE compares means (no error), the label-binned form each confidence."""
    rows = two_classes([(0.51, 1), (0.53, 0)])
    assert ece(*rows, bins=10) == pytest.approx(0.02)
    assert label_binned_ece(*rows, bins=10) == pytest.approx((0.01 + 0.03) / 2)
    assert label_binned_ece(*rows, bins=10, norm="max") == pytest.approx(0.03)
    rows = two_classes([(0.6, 1), (0.8, 1), (0.7, 0), (0.7, 1)])
    assert label_binned_ece(*rows, bins=1) == pytest.approx((0.15 + 0.05 + 0.05 + 0.05) / 4)


def test_debiased_by_hand() -> None:
    """Ten rows at .9, five right: gap .4, variance .25 / 9."""
    rows = two_classes([(0.9, a) for a in (1, 0) * 5])
    assert debiased_ece(*rows, bins=1) == pytest.approx(math.sqrt(0.16 - 0.25 / 9))
    assert debiased_ece(*rows, bins=15, binning="width") == pytest.approx(math.sqrt(0.16 - 0.25 / 9))


def test_debiased_is_unbiased_where_the_plug_in_is_not() -> None:
    rng = np.random.default_rng(0)
    squares = []
    for _ in range(2000):
        confidence = np.full(30, 0.8)
        sums = CalibrationSums.from_top(confidence, rng.random(30) < 0.6)
        table = sums.bins(1)
        accuracy = table.accuracy_B[0]
        squares.append((ece(sums) ** 2, ece(sums) ** 2 - accuracy * (1 - accuracy) / 29))
    plug_in, debiased = np.mean(squares, axis=0)
    assert debiased == pytest.approx(0.04, abs=0.003)  # four standard errors
    assert plug_in > 0.045


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("n", [400, 3000])
def test_sweep_of_sums_keeps_its_bound(n: int, binning: Binning) -> None:
    """300 cells: where the bins are as many, by the cells that are cut; else between the extremes."""
    rng, same = np.random.default_rng(n), 0
    for _ in range(12):
        c = rng.uniform(0.9, 1, n)
        p_NC, wrong = np.stack([c, 1 - c], axis=1), (rng.random(n) > c - 0.05).astype(int)
        sums = CalibrationSums.from_probabilities(p_NC, wrong)
        exact, sweep = sweep_ece(p_NC, wrong, binning=binning), sweep_ece(sums, binning=binning)
        off = np.abs((1 - wrong) - c).mean()
        for value in (exact.ece, sweep.ece):
            assert abs(signed_gap(sums)) - 1e-12 <= value <= off + 1e-12
        count_C, _, right_C = sums.cells[:3]
        end_C, bins = np.cumsum(count_C), exact.bins
        if sweep.bins != bins:
            continue
        same += 1
        if binning == "mass":
            cell_B = np.searchsorted(end_C, np.arange(1, bins) * n // bins)
            a, m = right_C[cell_B], count_C[cell_B]
            bound = 2 / n * (a * (m - a) / m + m / 12_000).sum()
        else:
            cut = (np.ceil(EDGES[:-1] * bins) < np.ceil(EDGES[1:] * bins)) & (count_C > 0)
            bound = 2 / n * np.maximum(right_C, count_C - right_C)[cut].sum()
        assert abs(exact.ece - sweep.ece) <= bound + 1e-12
    assert same >= 3


def test_sweep_by_hand() -> None:
    """Two bins are right in 1/2 and 1/2 of their rows; three in 0, 1 and 1/2, which falls."""
    rows: Rows = [(0.6, 0), (0.7, 1), (0.8, 0), (0.9, 1)]
    sweep = sweep_ece(*two_classes(rows))
    assert sweep.bins == 2
    assert sweep.ece == pytest.approx((abs(1 - 1.3) + abs(1 - 1.7)) / 4)


@pytest.mark.parametrize(
    "rows",
    [
        [(0.5, 0)] * 3 + [(0.5, 1)] * 2 + [(0.6, 1), (0.7, 0), (0.7, 1)],
        [(0.5, 0)] * 2 + [(0.5, 1), (0.6, 1), (0.7, 0), (0.7, 1), (0.7, 1)],
    ],
)
def test_rounding_does_not_end_a_sweep(rows: Rows) -> None:
    """Two bins share the ties at .5; their equal accuracies differ in the last bit."""
    assert sweep_ece(*two_classes(rows)).bins == twin.sweep_ece(rows, "l1", "mass")[1]


def test_a_cell_whose_mean_rounds_to_its_lower_edge_keeps_its_bin() -> None:
    confidence = float(np.nextafter(1000 / 3000, 1))
    many = (CalibrationSums.from_top([confidence] * n, [1] * n) for n in range(2, 50))
    sums = next(s for s in many if s.cells[1, 1000] / s.n <= 1 / 3)
    rows = rank_predictions(sums)
    assert rows.confidence_G.tolist() == [confidence]
    assert assign_bins(rows, 15, "width").bin_G.tolist() == [5]


def test_sweep_of_rising_rows_goes_to_one_row_a_bin() -> None:
    confidence = np.linspace(0.5, 1, 1001)
    rows = np.stack([confidence, 1 - confidence], axis=1)
    labels = (confidence < 0.75).astype(int)
    for binning in BINNINGS:
        assert sweep_ece(rows, labels, binning=binning).bins == 1001
    assert sweep_ece(rows, labels).ece == pytest.approx(np.abs(confidence - (labels == 0)).mean())


def test_one_early_error_is_swept_fast_and_right() -> None:
    """The one error among 3,000 rows stands third: bins of three rows hide it, of two do not."""
    rows: Rows = [(0.5 + i / 6000, int(i != 2)) for i in range(3000)]
    sweep = sweep_ece(*two_classes(rows))
    assert sweep.bins == 1000
    assert twin.mass_bins(rows, 1001)[1][0][1] == 0  # row 2 opens the second of 1,001 bins


def test_equal_mass_agrees_with_scikit_learn() -> None:
    """`calibration_curve(strategy="quantile")` cuts between the same rows where bins divide n and nothing ties.

    With ties it moves all of them below the cut and merges bins; it also leaves out the counts that an ECE needs.
    """
    rng = np.random.default_rng(5)
    confidence = rng.permutation(np.linspace(0.5, 1, 600))
    correct = rng.random(600) < confidence
    accuracy_B, confidence_B = calibration_curve(correct, confidence, n_bins=12, strategy="quantile")
    expected = np.abs(accuracy_B - confidence_B).mean()
    rows = np.stack([confidence, 1 - confidence], axis=1)
    assert adaptive_ece(rows, (~correct).astype(int), bins=12) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("bins", [10, 15, 20])
def test_equal_width_agrees_with_scikit_learn(bins: int) -> None:
    """`calibration_curve` has bins (lo, hi] too. Its edges come from linspace, an ulp off b/bins for some b."""
    rng = np.random.default_rng(bins)
    confidence = rng.random(5000)
    correct = rng.random(5000) < confidence
    table = CalibrationSums.from_top(confidence, correct).bins(bins)
    accuracy_B, confidence_B = calibration_curve(correct, confidence, n_bins=bins)
    np.testing.assert_allclose(table.accuracy_B, accuracy_B, rtol=1e-12)
    np.testing.assert_allclose(table.mean_confidence_B, confidence_B, rtol=1e-12)
    edge = 7 / 10  # np.linspace(0, 1, 11)[7] is 0.7000000000000001, which puts the next float above .7 below its edge
    above = float(np.nextafter(edge, 1))
    assert CalibrationSums.from_top([above], [1]).bins(10).count_B[7] == 1
    assert np.searchsorted(np.linspace(0, 1, 11)[1:-1], above) == 6


@pytest.mark.parametrize("metric", [adaptive_ece, debiased_ece])
@pytest.mark.parametrize("bins", [0, -1, 1.5, True, "15", None, 10**9])
def test_equal_mass_bins_are_checked(metric: Callable[..., float], bins: object) -> None:
    with pytest.raises(ValueError, match=r"bins is .*; allowed are whole numbers from 1 to 1,000,000"):
        metric([[0.9, 0.1]], [0], bins=bins)


@pytest.mark.parametrize("metric", [ece, label_binned_ece, mce, debiased_ece, sweep_ece, brier_decomposition])
def test_binning_is_checked(metric: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"unknown binning 'masses'; allowed: width, mass. Did you mean 'mass'"):
        metric([[0.9, 0.1]], [0], binning="masses")


@pytest.mark.parametrize("metric", [adaptive_ece, label_binned_ece, sweep_ece])
def test_norm_is_checked(metric: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="unknown norm 'L1'; allowed: l1, l2, max"):
        metric([[0.9, 0.1]], [0], norm="L1")


@pytest.mark.parametrize("kind", ["float16", "float32", "fortran", "reversed"])
def test_layout_and_precision_do_not_matter(kind: Literal["float16", "float32", "fortran", "reversed"]) -> None:
    rows, labels = drawn(300)
    changed: npt.NDArray[Any]
    if kind.startswith("float"):
        changed = rows.astype(kind)
        rows = changed.astype(np.float64)
    else:
        changed = np.asfortranarray(rows) if kind == "fortran" else rows[::-1].copy()[::-1]
    for metric in METRICS:
        value, expected = metric(changed, labels), metric(rows, labels)
        assert value == expected, metric


WIDTH: list[Callable[..., Any]] = [
    *(ece, mce, label_binned_ece, noise_floor, ece_interval, calibration_test, brier_decomposition, classwise_ece),
    *(mce_interval, mce_noise_floor, classwise_ece_interval),
    lambda p, y, bins: debiased_ece(p, y, bins=bins, binning="width"),
    lambda p, y, bins: noise_floor_per_class(p, bins=bins),
    lambda p, y, bins: classwise_noise_floor(p, bins=bins),
    lambda p, y, bins: CalibrationSums.from_probabilities(p, y).bins(bins),
    lambda p, y, bins: weighted_ece(CalibrationSums.from_probabilities(p, y), np.ones(3000), bins=bins),
]


@pytest.mark.parametrize("metric", WIDTH)
@pytest.mark.parametrize("bins", [15.0, 1.5, True, None, "15", 7])
def test_equal_width_bins_are_checked(metric: Callable[..., Any], bins: Any) -> None:
    with pytest.raises(ValueError, match=f"bins is {bins!r}; allowed are the divisors of 3000"):
        metric([[0.9, 0.1]], [0], bins=bins)


@pytest.mark.parametrize("metric", WIDTH)
def test_bins_may_be_a_small_numpy_integer(metric: Callable[..., Any]) -> None:
    metric([[0.9, 0.1], [0.2, 0.8]], [0, 1], bins=np.uint8(15))


@pytest.mark.parametrize("wrong", [None, "a", True, [0.5]])
def test_numbers_of_a_wrong_type_are_named(wrong: Any) -> None:
    rows: tuple[Any, Any] = ([[0.9, 0.1]], [0])
    sums = CalibrationSums.from_probabilities(*rows)
    calls: dict[str, list[Callable[[], object]]] = {
        "level": [
            lambda: ece_interval(*rows, level=wrong),
            lambda: mce_interval(*rows, level=wrong),
            lambda: classwise_ece_interval(*rows, level=wrong),
            lambda: gap_sequence(*rows, level=wrong),
            lambda: binomial_interval(1, 2, level=wrong),
            lambda: weighted_ece(sums, np.ones(3000), level=wrong),
        ],
        "threshold": [lambda: fraction_above(*rows, threshold=wrong), lambda: classwise_ece(*rows, threshold=wrong)],
        "ratio": [lambda: sensitivity(sums, np.ones(3000), ratio=wrong)],
        "bandwidth": [lambda: sece(*rows, bandwidth=wrong)],
    }
    if wrong is not None:  # the rule of thumb
        calls["bandwidth"].append(lambda: kde_ece(*rows, bandwidth=wrong))
    for name, made in calls.items():
        for call in made:
            with pytest.raises(ValueError, match=re.escape(f"{name} is {wrong!r}; allowed is")):
                call()


def test_lists_that_are_no_arrays_are_named() -> None:
    with pytest.raises(ValueError, match="probabilities is ragged"):
        ece([[0.9, 0.1], [1.0]], [0, 0])
    with pytest.raises(ValueError, match="labels is ragged"):
        ece([[0.9, 0.1], [0.5, 0.5]], [[0], [0, 1]])
    with pytest.raises(ValueError, match="probabilities has dtype"):
        ece([["0.9", "0.1"]], [0])
    with pytest.raises(ValueError, match="answers has dtype"):
        weighted_ece(CalibrationSums.from_top([0.5], [1]), ["1"] * 3000)
