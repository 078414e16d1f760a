"""Interval and noise floor of the MCE: twins, by hand, coverage, how often calibrated models exceed the floor."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from trueodds.metrics import (
    CalibrationSums,
    NoiseFloor,
    binomial_interval,
    mce,
    mce_interval,
    mce_noise_floor,
    whole_bins,
)
from trueodds.processes.choices import Binning

some_rows = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


@pytest.mark.parametrize("bins", [1, 3, 10])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_equals_its_twin(bins: int, level: float) -> None:
    confidence = [0.05, 0.3, 0.31, 0.33, 0.7, 0.71, 0.72, 0.75, 0.95, 0.96, 0.97, 0.98]
    correct = [0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]
    interval = mce_interval(CalibrationSums.from_top(confidence, correct), bins=bins, level=level)
    limits = reference.mce_limits(confidence, correct, bins, (1 - level) / 2)
    assert (interval.lower, interval.upper) == pytest.approx(limits, abs=1e-9)
    assert interval.mce == pytest.approx(reference.ece(confidence, correct, bins, "max"), abs=1e-12)


def test_one_bin_has_the_binomial_limits_of_its_accuracy() -> None:
    """100 rows at .9, 70 right: the limits of .7 at 95% (upper), and at 97.5% (lower: q on both sides together)."""
    interval = mce_interval(CalibrationSums.from_top([0.9] * 100, [1] * 70 + [0] * 30), bins=1)
    assert interval.upper == pytest.approx(0.9 - float(binomial_interval(70, 100)[0]))
    assert interval.lower == pytest.approx(0.9 - float(binomial_interval(70, 100, level=0.975)[1]))


def test_a_bin_of_one_row_leaves_almost_everything_open() -> None:
    rows = [0.4] + [0.9] * 1000
    interval = mce_interval(CalibrationSums.from_top(rows, [0] + [1] * 900 + [0] * 100))
    assert interval.lower == 0
    assert interval.upper == pytest.approx(0.975 - 0.4)  # a row that was wrong: accuracies up to .975 are open


@settings(max_examples=60)
@given(some_rows, st.sampled_from([1, 10, 15]), st.sampled_from(["width", "mass"]))
def test_interval_is_ordered_and_grows_with_the_level(
    data: list[tuple[float, bool]], bins: int, binning: Binning
) -> None:
    sums = CalibrationSums.from_top([c for c, _ in data], [a for _, a in data])
    intervals = [mce_interval(sums, bins=bins, level=level, binning=binning) for level in (0.5, 0.95, 0.99)]
    for interval in intervals:
        assert 0 <= interval.lower <= interval.mce + 1e-12
        assert interval.mce <= interval.upper + 1e-12 <= 1 + 1e-9
        if binning == "width":
            assert interval.mce == pytest.approx(mce(sums, bins=bins), abs=1e-12)
    for narrow, wide in pairwise(intervals):
        assert wide.lower <= narrow.lower
        assert narrow.upper <= wide.upper


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("wrong", [0.0, 0.15])
def test_coverage_and_the_share_above_the_floor(binning: Binning, wrong: float) -> None:
    """At least 95% whatever the rows, so of 200 samples 181 or more but for one in a thousand; floor: at most 5%."""
    rng = np.random.default_rng(7)
    c_N = rng.beta(4, 1, 400)
    chance_N = np.clip(c_N - wrong * (c_N > 0.6), 0.0, 1.0)
    table = whole_bins(CalibrationSums.from_top(c_N, np.ones(400)), 10, binning)
    bin_N = np.minimum(np.searchsorted(table.hi_B, c_N), len(table.hi_B) - 1)
    count_B = np.bincount(bin_N, minlength=len(table.hi_B))
    gap_B = np.abs(np.bincount(bin_N, chance_N - c_N, len(table.hi_B)))
    truth = float((gap_B[count_B > 0] / count_B[count_B > 0]).max())
    floor = mce_noise_floor(CalibrationSums.from_top(c_N, np.ones(400)), bins=10, binning=binning)
    covered = above = 0
    for _ in range(200):
        sums = CalibrationSums.from_top(c_N, rng.random(400) < chance_N)
        interval = mce_interval(sums, bins=10, binning=binning)
        covered += interval.lower <= truth <= interval.upper
        above += interval.mce > floor.p95
    assert covered >= 181
    if wrong == 0:
        assert above <= 21


@pytest.mark.parametrize(
    ("confidence", "bins"),
    [
        ([0.5, 0.5, 0.7, 0.9, 0.9, 0.98, 0.98, 0.98], 15),
        ([0.3, 0.3, 0.3, 0.3, 0.3], 1),
        ([0.1, 0.4, 0.7, 0.95], 10),
        ([0.999] * 9, 15),
    ],
)
def test_floor_equals_its_twin(confidence: list[float], bins: int) -> None:
    """Every way in which the labels may fall; the percentile is one of their MCEs, the least that will do."""
    floor = mce_noise_floor(CalibrationSums.from_top(confidence, np.ones(len(confidence))), bins=bins)
    outcomes = sorted(reference.ece_distribution(confidence, bins, "max"))
    mean = sum(value * chance for value, chance in outcomes)
    value = next(v for v, _ in outcomes if sum(chance for u, chance in outcomes if u <= v + 1e-12) >= 0.95)
    assert floor.mean == pytest.approx(mean, rel=2e-3, abs=1e-3)
    assert floor.p95 == pytest.approx(max(value, floor.mean), abs=1e-8)
    assert sum(chance for v, chance in outcomes if v > floor.p95) <= 0.05 + 1e-12


def test_floor_of_unlike_rows_is_that_of_drawn_labels() -> None:
    """300 rows from .4 to 1, a third in each of three bins: 4,000 draws of the labels, within four standard errors."""
    rng = np.random.default_rng(3)
    c_N = rng.uniform(0.4, 1, 300)
    bin_N = np.ceil(c_N * 5).astype(int) - 1
    gap_RN = (rng.random((4000, 300)) < c_N) - c_N
    drawn_R = np.max([np.abs(gap_RN[:, bin_N == b].mean(axis=1)) for b in np.unique(bin_N)], axis=0)
    floor = mce_noise_floor(CalibrationSums.from_top(c_N, np.ones(300)), bins=5)
    assert abs(floor.mean - drawn_R.mean()) < 4 * drawn_R.std() / np.sqrt(4000)
    assert 0.03 <= np.mean(drawn_R > floor.p95) <= 0.06


def test_floor_by_hand() -> None:
    """Four coins: |X - 2| / 4 is 0, 1/4, 1/2 in 6, 8 and 2 of 16 cases. One row at .4: .4 or .6. Certain rows: 0."""
    coins = mce_noise_floor(CalibrationSums.from_top([0.5] * 4, [1] * 4))
    assert coins.mean == pytest.approx(3 / 16, abs=1e-3)
    assert coins.p95 == pytest.approx(0.5)
    alone = mce_noise_floor(CalibrationSums.from_top([0.4], [1]))
    assert (alone.mean, alone.p95) == pytest.approx((0.48, 0.6), abs=1e-3)
    assert mce_noise_floor(CalibrationSums.from_top([1.0] * 5 + [0.0], [1] * 6)) == NoiseFloor(0.0, 0.0)


@settings(max_examples=40)
@given(some_rows, st.sampled_from([1, 15, 1000]))
def test_floor_is_in_order_whatever_the_rows(data: list[tuple[float, bool]], bins: int) -> None:
    floor = mce_noise_floor(CalibrationSums.from_top([c for c, _ in data], [a for _, a in data]), bins=bins)
    assert 0 <= floor.mean <= floor.p95 <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1}, r"level is 1; allowed is \(0, 1\), such as 0.95"),
        ({"bins": 7}, "bins is 7; allowed are the divisors of 3000"),
        ({"binning": "depth"}, "unknown binning 'depth'; allowed: width, mass"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mce_interval([[0.5, 0.5]], [0], **options)
    if "level" not in options:
        with pytest.raises(ValueError, match=message):
            mce_noise_floor([[0.5, 0.5]], [0], **options)
