"""Pooled figures with the row as the unit: slow twins, one label, dependence, and coverage on populations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from trueodds import metrics
from trueodds.metrics.intervals import clustered
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.intervals.clustered import Pairs, bins_of_pairs, clustered_ece, count_limits
from trueodds.metrics.intervals.inversion import normals
from trueodds.metrics.ranked import whole_bins
from trueodds.sums.positive import PositiveClass


def draw(rows: int, labels: int, seed: int, *, same: float = 0.0, base: float = -1.0) -> Pairs:
    """Calibrated pairs. `same` is the correlation of a row's normal scores; about a fifth of the truths is unknown."""
    rng = np.random.default_rng(seed)
    p_NL = scipy.special.expit(rng.normal(base, 1.5, (rows, labels)))
    score_NL = math.sqrt(same) * rng.normal(size=(rows, 1)) + math.sqrt(1 - same) * rng.normal(size=(rows, labels))
    hit_NL, known_NL = scipy.special.ndtr(score_NL) < p_NL, rng.random((rows, labels)) < 0.8
    known_NL[:, 0] = True
    row_M, _ = np.nonzero(known_NL)
    return Pairs(p_NL[known_NL], hit_NL[known_NL], row_M.astype(np.intp))


def test_the_bins_are_those_of_the_sums() -> None:
    pairs = draw(300, 4, 0)
    for binning in ("width", "mass"):
        sums = PositiveClass.sums_of(pairs.p_M, pairs.hit_M)
        table = whole_bins(sums, 15, binning)
        bin_M = bins_of_pairs(table.hi_B, pairs.p_M)
        assert np.bincount(bin_M, minlength=len(table.count_B)).tolist() == table.count_B.tolist()
        assert np.bincount(bin_M, pairs.hit_M, len(table.count_B)).tolist() == table.correct_B.tolist()


def test_design_effects_equal_loops_over_the_rows() -> None:
    pairs = draw(200, 5, 1, same=0.5)
    sums = PositiveClass.sums_of(pairs.p_M, pairs.hit_M)
    table = whole_bins(sums, 5, "mass")
    bin_M = bins_of_pairs(table.hi_B, pairs.p_M)
    gap_B = table.gap_B / table.count_B
    for b in range(len(gap_B)):
        by_row, own = dict[int, float](), 0.0
        for p, hit, row, one in zip(pairs.p_M, pairs.hit_M, pairs.row_M, bin_M, strict=True):
            if one == b:
                e = float(hit) - p - gap_B[b]
                by_row[row] = by_row.get(row, 0.0) + e
                own += e * e
        twin = sum(value * value for value in by_row.values()) / own
        found = clustered_ece(sums, pairs, bins=5).effect_B[b]
        assert found == pytest.approx(max(twin, 1.0), rel=1e-9)
    gaps = pairs.hit_M - pairs.p_M
    centred = gaps - gaps.mean()
    row_sums = [centred[pairs.row_M == row].sum() for row in range(pairs.rows)]
    assert clustered.design_effect(pairs) == pytest.approx(np.square(row_sums).sum() / (centred @ centred))


def test_one_label_a_row_is_the_interval_of_independent_rows() -> None:
    pairs = draw(400, 1, 2)
    sums = PositiveClass.sums_of(pairs.p_M, pairs.hit_M)
    found = clustered_ece(sums, pairs, level=0.9)
    assert found.interval == metrics.ece_interval(sums, binning="mass", level=0.9)
    assert found.floor == metrics.noise_floor(sums, binning="mass")
    assert clustered.design_effect(pairs) == pytest.approx(1.0)


def test_the_identity_as_dependence_changes_nothing_but_the_rare_limits() -> None:
    from trueodds.metrics.intervals.calibration_error import Dependence, interval_of
    from trueodds.metrics.intervals.inversion import GapTerms

    pairs = draw(3_000, 1, 3)
    table = whole_bins(PositiveClass.sums_of(pairs.p_M, pairs.hit_M), 10, "mass")
    n, skew_B = table.n, table.count_B - 2 * table.confidence_B
    terms = GapTerms(table.gap_B / n, table.count_B / n, table.variance_B / n**2, skew_B / n**2, table.count_B / n**2)
    observed, share = float(np.abs(table.gap_B).sum() / n), float(table.correct_B.sum()) / n
    identity = Dependence(np.eye(10), normals(10), None)
    assert interval_of(terms, observed, share, 0.95, identity) == interval_of(terms, observed, share, 0.95)


def test_copies_of_a_label_count_once() -> None:
    """Four copies of each row's label tell as much as one: the interval is as wide, not half as wide."""
    one = draw(500, 1, 4)
    four = Pairs(np.repeat(one.p_M, 4), np.repeat(one.hit_M, 4), np.repeat(one.row_M, 4))
    sums = [PositiveClass.sums_of(pairs.p_M, pairs.hit_M) for pairs in (one, four)]
    alone, copied = (clustered_ece(s, pairs) for s, pairs in zip(sums, (one, four), strict=True))
    assert copied.effect_B == pytest.approx(np.full(15, 4.0))
    assert copied.interval.upper == pytest.approx(alone.interval.upper, rel=0.08)
    assert copied.floor.mean == pytest.approx(alone.floor.mean, rel=0.03)
    naive = metrics.ece_interval(sums[1], binning="mass")
    assert naive.upper - naive.lower < 0.7 * (copied.interval.upper - copied.interval.lower)
    assert clustered.clustered_gap(four, 0.95).upper == pytest.approx(clustered.clustered_gap(one, 0.95).upper)


def test_means_equal_a_twin_and_ignore_the_order_of_the_pairs() -> None:
    pairs = draw(80, 3, 5, same=0.4)
    value_M = np.random.default_rng(0).normal(size=len(pairs.p_M))
    found = clustered.clustered_mean(pairs, value_M, 0.9)
    totals = [value_M[pairs.row_M == row].sum() for row in range(pairs.rows)]
    sizes = [(pairs.row_M == row).sum() for row in range(pairs.rows)]
    mean = sum(totals) / sum(sizes)
    squares = [(x - mean * n) ** 2 for x, n in zip(totals, sizes, strict=True)]
    freedom = sum(squares) ** 2 / sum(s * s for s in squares) - 1
    away = scipy.special.stdtrit(freedom, 0.95) * math.sqrt(80 / 79 * sum(squares)) / sum(sizes)
    assert found.value == pytest.approx(mean)
    assert [found.lower, found.upper] == pytest.approx([mean - away, mean + away])


def test_limits_of_counts() -> None:
    """Counts of 0 and 1 give the exact limits of a Poisson count, close to the binomial ones of rare events."""
    counts = np.zeros(10_000)
    assert [*count_limits(counts, 1.0, 0.025)] == pytest.approx([0.0, 3.689], abs=1e-3)
    counts[:5] = 1
    low, high = count_limits(counts, 1.0, 0.025)
    assert [low, high] == pytest.approx([1.623, 11.668], abs=1e-3)
    binomial = binomial_interval([5.0], [10_000], level=0.95)
    assert [low, high] == pytest.approx([1e4 * float(limit[0]) for limit in binomial], rel=0.01)
    clustered_counts = np.zeros(10_000)
    clustered_counts[0] = 5  # one row with five labels tells less than five rows
    assert count_limits(clustered_counts, 1.0, 0.025)[1] > 1.5 * high


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("rows", "labels", "same", "base"), [(150, 6, 0.6, -1.0), (60, 30, 0.6, -4.0), (400, 2, 0.0, 0)]
)
def test_the_interval_covers(rows: int, labels: int, same: float, base: float) -> None:
    """Calibrated pairs have an ECE of 0 in any bins: at most 5% of intervals may exclude it, and 9 of 60 are more."""
    missed = gaps = 0
    for seed in range(60):
        pairs = draw(rows, labels, 100 + seed, same=same, base=base)
        sums = PositiveClass.sums_of(pairs.p_M, pairs.hit_M)
        missed += clustered_ece(sums, pairs).interval.lower > 0
        gap = clustered.clustered_gap(pairs, 0.95)
        gaps += not gap.lower <= 0 <= gap.upper
    assert missed < 9 and gaps < 9
