"""Kernel-smoothed calibration errors against direct sums, in closed form, and at the ends of [0, 1]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference_metrics as twin
from tests.metrics.rows import sums_of
from trueodds.metrics import CalibrationSums, cell_of, kde_ece, sece, smooth_ece
from trueodds.metrics.smooth import _triweight

Rows = list[tuple[float, int]]
METRICS: list[Callable[..., float]] = [smooth_ece, kde_ece, sece]
confidences = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5]))
rows_of = st.lists(st.tuples(confidences, st.integers(0, 1)), min_size=1, max_size=8)


def drawn(n: int, seed: int, off: float = 1.0) -> Rows:
    """Confidences as a network's (many at 1), right with probability c^off."""
    rng = np.random.default_rng(seed)
    confidence = 1 - 0.7 * rng.random(n) ** 3
    confidence[rng.random(n) < 0.05] = 1.0
    return list(zip(confidence.tolist(), (rng.random(n) < confidence**off).astype(int).tolist(), strict=True))


@pytest.mark.parametrize(("n", "off"), [(12, 1.0), (30, 3.0)])
def test_smooth_ece_is_the_fixed_point_of_the_direct_sum(n: int, off: float) -> None:
    rows = drawn(n, 0, off)
    value = smooth_ece(sums_of(rows))
    bound = sum(abs(a - c) for c, a in rows) / n / 3000 / value / np.sqrt(2 * np.pi)
    assert twin.smooth_ece_at(rows, value) == pytest.approx(value, abs=bound)
    assert twin.smooth_ece_at(rows, value) == pytest.approx(value, abs=2e-4)
    # residuals moved to their cells' centres, which is what the cosine transforms smooth: equal to rounding
    centre = [(int(k) + 0.5) / 3000 for k in cell_of([c for c, _ in rows])]
    moved = [(m, m + a - c) for m, (c, a) in zip(centre, rows, strict=True)]
    assert twin.smooth_ece_at(moved, value) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_kde_ece_is_the_direct_sum(seed: int) -> None:
    rows = drawn(40, seed, 2.0)
    for bandwidth in (0.02, 0.05, 0.3):
        off = abs(kde_ece(sums_of(rows), bandwidth=bandwidth) - twin.kde_ece(rows, bandwidth))
        assert off <= (0.5 + 35 / 48 / bandwidth) / 3000
        assert off <= 5e-4


def test_the_triweight_transform_is_its_integral() -> None:
    u = (np.arange(20_000) + 0.5) / 10_000 - 1
    for w in (0.0, 1e-4, 0.0099, 0.0101, 0.5, 3.0, 40.0):
        expected = (35 / 32 * (1 - u**2) ** 3 * np.cos(w * u)).mean() * 2
        assert _triweight(np.array([w]))[0] == pytest.approx(expected, abs=1e-8)


def test_kde_ece_takes_the_rule_of_thumb() -> None:
    rows = drawn(400, 0)
    bandwidth = np.std([c for c, _ in rows]) * 800**-0.2
    assert kde_ece(sums_of(rows)) == pytest.approx(kde_ece(sums_of(rows), bandwidth=bandwidth), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_sece_is_the_direct_sum(seed: int) -> None:
    for n, bandwidth in ((5, 0.01), (150, 0.01), (150, 0.1), (60, 1 / 300)):
        rows = drawn(n, seed, 1.5)
        off = abs(sece(sums_of(rows), bandwidth=bandwidth) - twin.sece(rows, bandwidth))
        assert off <= (2e-4 if bandwidth >= 0.01 else 1e-3)


def test_sece_from_cells_is_as_near_as_it_says() -> None:
    rows = drawn(500, 0, 1.5)
    assert abs(sece(sums_of(rows)) - twin.sece(rows, 0.01)) <= 4e-5
    few = [(0.51037092, 0), (0.49667301, 1), (0.49699987, 0)]  # the last two share a cell
    assert 1.6e-3 < abs(sece(sums_of(few)) - twin.sece(few, 0.01)) <= 1.8e-3


def test_sece_by_hand() -> None:
    """Two rows one bandwidth apart, one right: soft accuracies 1 / (1 + w) and w / (1 + w), w = exp(-1/2)."""
    w = np.exp(-0.5)
    value = sece(CalibrationSums.from_top([0.60, 0.61], [1, 0]), bandwidth=0.01)
    assert value == pytest.approx((abs(1 / (1 + w) - 0.60) + abs(w / (1 + w) - 0.61)) / 2, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_certain_and_wrong_is_one(metric: Callable[..., float]) -> None:
    """Mass at 0 and 1 is reflected, not lost: the authors' smECE package, with its grid, loses half of it."""
    assert metric(CalibrationSums.from_top([1.0] * 7, [0] * 7)) == pytest.approx(1.0, abs=1 / 3000)
    assert metric(np.eye(2)[[0, 0, 1, 1]], [0, 1, 1, 1]) == pytest.approx(0.25, abs=1 / 3000)


@pytest.mark.parametrize("metric", METRICS)
def test_perfect_calibration_at_one_confidence(metric: Callable[..., float]) -> None:
    assert metric(CalibrationSums.from_top([0.75] * 4, [1, 1, 1, 0])) == pytest.approx(0, abs=1 / 3000)
    assert metric(CalibrationSums.from_top([1.0, 1.0], [1, 1])) == pytest.approx(0, abs=1 / 3000)


def test_smooth_ece_of_a_constant_gap_is_the_gap() -> None:
    """All residuals have one sign: smoothing keeps their sum, so smECE is |mean gap| at any sigma."""
    rows = [(c, 1) for c in (0.3, 0.5, 0.61, 0.999)]
    assert smooth_ece(sums_of(rows)) == pytest.approx(1 - (0.3 + 0.5 + 0.61 + 0.999) / 4, abs=1e-9)


def test_smooth_ece_cancels_within_the_bandwidth() -> None:
    """Opposite residuals close together nearly cancel; far apart they add."""
    near, far = sums_of([(0.5, 1), (0.5004, 0)]), sums_of([(0.2, 1), (0.8, 0)])
    assert smooth_ece(near) < 0.02
    assert smooth_ece(far) > 0.35


@given(rows_of)
def test_between_the_signed_gap_and_the_mean_residual(rows: Rows) -> None:
    residuals = [a - c for c, a in rows]
    low, high = abs(sum(residuals)) / len(rows), sum(map(abs, residuals)) / len(rows)
    assert low - 1e-9 <= smooth_ece(sums_of(rows)) <= high + 1e-9
    assert 0 <= kde_ece(sums_of(rows), bandwidth=0.05) <= 1 + 1e-6
    assert 0 <= sece(sums_of(rows)) <= 1


@given(rows_of, rows_of)
def test_merged_sums_are_the_whole(one: Rows, other: Rows) -> None:
    for metric in METRICS:
        assert metric(sums_of(one) + sums_of(other)) == pytest.approx(metric(sums_of(one + other)), abs=1e-9)


def test_probabilities_and_sums_give_the_same() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.full(7, 0.3), 300).astype(np.float32), rng.integers(0, 7, 300)
    for metric in METRICS:
        assert metric(p, y) == metric(CalibrationSums.from_probabilities(p, y))


def test_calibrated_rows_tend_to_zero() -> None:
    few, many = drawn(300, 1), drawn(100_000, 1)
    for metric in METRICS:
        assert metric(sums_of(many)) < 0.25 * metric(sums_of(few)), metric
        assert metric(sums_of(many)) < 0.01


def test_bandwidths_are_checked() -> None:
    for bandwidth in (0.0, -1.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match=r"bandwidth is .*; allowed is \(0, 1\]"):
            kde_ece([[0.9, 0.1]], [0], bandwidth=bandwidth)
    for bandwidth in (0.0, 0.001, float("nan")):
        with pytest.raises(ValueError, match=r"bandwidth is .*; allowed is 1/300"):
            sece([[0.9, 0.1]], [0], bandwidth=bandwidth)
