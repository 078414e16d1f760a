"""Noise floor and interval of the ECE: figures of the note, exact simulation, properties and coverage."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from trueodds.metrics import CalibrationSums, EceInterval, NoiseFloor, ece, ece_interval, noise_floor, whole_bins
from trueodds.metrics.intervals import inversion
from trueodds.metrics.intervals.calibration_error import RARE, exact_gap_limits
from trueodds.metrics.intervals.inversion import DRAWS, normals
from trueodds.processes.choices import Binning
from trueodds.sums.bins import bin_of

Array = npt.NDArray[np.float64]
some_rows = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


@cache
def pool(shape: str, n: int = 50_000) -> Array:
    """Confidences of the shapes A, B and C of the interval's note."""
    rng = np.random.default_rng(5)
    if shape == "C":
        return 1 / (1 + np.exp(-np.abs(rng.normal(0, 1.3, n))))
    classes, mean, spread = {"A": (100, 9.9, 5.6), "B": (10, 10.0, 4.1)}[shape]
    logits = rng.normal(0, 1.2, (n, classes))
    logits[:, 0] += np.maximum(rng.normal(mean, spread, n), 0)
    confidence: Array = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return confidence


PUBLISHED = {
    ("A", 500): (0.0327, 0.0437),
    ("A", 5_000): (0.0103, 0.0138),
    ("A", 50_000): (0.0033, 0.0044),
    ("B", 500): (0.0212, 0.0290),
    ("B", 5_000): (0.0068, 0.0093),
    ("B", 50_000): (0.0021, 0.0029),
    ("C", 500): (0.0414, 0.0620),
    ("C", 5_000): (0.0132, 0.0196),
    ("C", 50_000): (0.0041, 0.0062),
}


def evenly(shape: str, n: int) -> Array:
    """n confidences at evenly spaced ranks of the shape: its distribution without the noise of a draw."""
    chosen: Array = np.sort(pool(shape))[((np.arange(n) + 0.5) / n * len(pool(shape))).astype(int)]
    return chosen


@pytest.mark.parametrize(("shape", "n"), PUBLISHED)
def test_floor_of_the_note(shape: str, n: int) -> None:
    floor = noise_floor(CalibrationSums.from_top(evenly(shape, n), np.ones(n)))
    mean, p95 = PUBLISHED[shape, n]
    assert floor.mean == pytest.approx(mean, rel=0.02, abs=6e-5)  # four decimals are printed
    assert floor.p95 == pytest.approx(p95, rel=0.02, abs=6e-5)


@pytest.mark.parametrize("bins", [15, 1000])
@pytest.mark.parametrize("shape", "ABC")
def test_floor_against_exact_simulation(shape: str, bins: int) -> None:
    """Labels tossed with the stated confidences: mean within 1.5%, 95th percentile within 2.5% (1% and the noise)."""
    confidence, runs = evenly(shape, 500), 4000
    rng = np.random.default_rng(0)
    bin_N = bin_of(confidence, bins)
    gap_RN = (rng.random((runs, 500)) < confidence) - confidence
    gap_BR = np.stack([gap_RN[:, bin_N == b].sum(axis=1) for b in np.unique(bin_N)])
    eces = np.abs(gap_BR).sum(axis=0) / 500
    floor = noise_floor(CalibrationSums.from_top(confidence, np.ones(500)), bins=bins)
    assert floor.mean == pytest.approx(eces.mean(), rel=0.015)
    assert floor.p95 == pytest.approx(np.quantile(eces, 0.95), rel=0.025)


def test_floor_of_one_bin_by_hand() -> None:
    """100 rows at .5 in one bin: E|X - 50| = 50 C(100, 50) / 2^100; labels play no part."""
    floors = [noise_floor(CalibrationSums.from_top([0.5] * 100, [a] * 100)) for a in (0, 1)]
    assert floors[0] == floors[1]
    assert floors[0].mean == pytest.approx(50 * math.comb(100, 50) / 2**100 / 100)
    # |N(0, .05)| has its 95th percentile at 1.96 sd; the gamma with the same mean and variance comes within 3%
    assert floors[0].p95 == pytest.approx(1.96 * 0.05, rel=0.03)


def test_floor_of_a_single_row_cannot_vary() -> None:
    """At .5 either label leaves a gap of .5; at .9 the mean of |a - c| is 2 * .9 * .1."""
    assert noise_floor(CalibrationSums.from_top([0.5], [1])) == NoiseFloor(0.5, 0.5)
    assert noise_floor(CalibrationSums.from_top([0.9], [1])).mean == pytest.approx(0.18)


@settings(max_examples=60)
@given(some_rows, st.sampled_from([1, 15, 1000]))
def test_floor_is_in_order_whatever_the_rows(data: list[tuple[float, bool]], bins: int) -> None:
    floor = noise_floor(CalibrationSums.from_top([c for c, _ in data], [a for _, a in data]), bins=bins)
    assert 0 <= floor.mean <= floor.p95 <= 1 + 1e-12


@pytest.mark.parametrize(
    ("confidence", "bins"),
    [
        ([0.5, 0.52, 0.7, 0.9, 0.9, 0.97, 0.98, 0.99], 15),
        ([0.5, 0.52, 0.7, 0.9, 0.9, 0.97, 0.98, 0.99], 1),
        ([0.05, 0.06, 0.02, 0.3, 0.31, 0.95, 0.999], 10),
        ([0.999] * 9, 15),
    ],
)
def test_floor_of_rare_errors_equals_its_twin(confidence: list[float], bins: int) -> None:
    """Every way in which the labels may fall: the percentile is one of their ECEs, and the least that will do."""
    floor = noise_floor(CalibrationSums.from_top(confidence, np.ones(len(confidence))), bins=bins)
    outcomes = sorted(reference.ece_distribution(confidence, bins))
    assert floor.mean == pytest.approx(sum(value * chance for value, chance in outcomes), abs=1e-9)
    value = next(v for v, _ in outcomes if sum(chance for u, chance in outcomes if u <= v + 1e-12) >= 0.95)
    assert sum(chance for v, chance in outcomes if v > floor.p95) <= 0.05
    assert floor.p95 == pytest.approx(max(value, floor.mean), rel=2e-3)


@pytest.mark.parametrize("expected", [0.02, 0.15, 0.5, 1, 3, 5, 10, 15, 19])
@pytest.mark.parametrize("confidence", [0.9995, 0.999, 0.97, 0.9, 0.001, 0.1])
def test_floor_of_rare_errors_is_exceeded_in_one_of_twenty(confidence: float, expected: float) -> None:
    """One confidence, so the ECE is |X - expected| / n, X binomial; below c = .5 right answers are the rare ones."""
    rare = min(confidence, 1 - confidence)
    n = max(round(expected / rare), 1)
    floor = noise_floor(CalibrationSums.from_top(np.full(n, confidence), np.ones(n)))
    chance_K = [
        math.exp(math.log(math.comb(n, k)) + k * math.log(rare) + (n - k) * math.log1p(-rare))
        for k in range(min(n, 100) + 1)
    ]
    away_K = [abs(k - n * rare) / n for k in range(min(n, 100) + 1)]
    assert sum(p for p, away in zip(chance_K, away_K, strict=True) if away > floor.p95) <= 0.05
    assert floor.mean == pytest.approx(sum(p * away for p, away in zip(chance_K, away_K, strict=True)), rel=1e-9)


@pytest.mark.parametrize("expected", [20.5, 25, 40, 100])
@pytest.mark.parametrize("confidence", [0.999, 0.9])
def test_floor_of_more_errors_is_exceeded_about_as_often(confidence: float, expected: float) -> None:
    """By the gamma distribution; the docstring says 6.5% at most."""
    n = round(expected / (1 - confidence))
    floor, rare = noise_floor(CalibrationSums.from_top(np.full(n, confidence), np.ones(n))), 1 - confidence
    beyond = 0.0
    for k in range(min(n, 300) + 1):
        if abs(k - n * rare) / n > floor.p95:
            beyond += math.exp(math.log(math.comb(n, k)) + k * math.log(rare) + (n - k) * math.log1p(-rare))
    assert 0.035 <= beyond <= 0.065


@pytest.mark.few(1)
@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("bins", [15, 300])
def test_floor_of_rare_errors_in_many_bins(bins: int, binning: Binning) -> None:
    """1,200 near-certain rows, 17 errors expected: of 4,000 tosses of the labels at most 5% exceed it, and 3.5% do."""
    confidence = 1 - (np.arange(1200) + 0.5) / 1200 * np.geomspace(1e-6, 0.08, 1200)
    rng = np.random.default_rng(2)
    floor = noise_floor(CalibrationSums.from_top(confidence, np.ones(1200)), bins=bins, binning=binning)
    eces = []
    for _ in range(4000):
        table = whole_bins(CalibrationSums.from_top(confidence, rng.random(1200) < confidence), bins, binning)
        eces.append(np.abs(table.gap_B).sum() / 1200)
    assert 0.035 <= np.mean(np.array(eces) > floor.p95) <= 0.06
    assert floor.mean == pytest.approx(np.mean(eces), rel=0.02)


def test_floor_without_doubt_is_zero() -> None:
    floor = noise_floor(CalibrationSums.from_top([1.0] * 5 + [0.0], [1] * 6))
    assert (floor.mean, floor.p95) == (0.0, 0.0)


@settings(max_examples=60)
@given(some_rows, st.sampled_from([1, 10, 15, 100]))
def test_interval_is_ordered_and_grows_with_the_level(data: list[tuple[float, bool]], bins: int) -> None:
    sums = CalibrationSums.from_top([c for c, _ in data], [a for _, a in data])
    intervals = [ece_interval(sums, bins=bins, level=level) for level in (0.5, 0.8, 0.95, 0.99)]
    for interval in intervals:
        assert 0 <= interval.lower <= interval.estimate <= interval.upper <= 1
        assert interval.ece == pytest.approx(ece(sums, bins=bins), abs=1e-15)
    for narrow, wide in pairwise(intervals):
        assert wide.lower <= narrow.lower
        assert narrow.upper <= wide.upper
        assert narrow.estimate == wide.estimate


@pytest.mark.parametrize(
    "shifts", [(0.0, 0.0, 0.0, 0.0), (-0.03, 0.05, -0.02, 0.04), (-0.1, 0.1, 0.1, -0.1), (-0.3, 0.0, 0.02, 0.0)]
)
def test_interval_equals_its_twin(shifts: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Error nowhere, everywhere and in one bin: the three directions matter in turn."""
    centres = (0.55, 0.65, 0.75, 0.85)
    confidence = [c for c in centres for _ in range(100)]
    correct = [int(i < round(100 * (c + s))) for c, s in zip(centres, shifts, strict=True) for i in range(100)]
    correct[0], correct[250] = 1 - correct[0], 1 - correct[250]  # no gap is exactly 0
    few_BR = np.ascontiguousarray(normals(10)[:, :512])  # the twin is slow
    monkeypatch.setattr(inversion, "DRAWS", 512)
    monkeypatch.setattr(inversion, "normals", lambda bins: few_BR)
    interval = ece_interval(CalibrationSums.from_top(confidence, correct), bins=10)
    lower, estimate, upper = reference.ece_limits(confidence, correct, 10, 0.025, few_BR.tolist())
    assert (interval.lower, interval.estimate) == pytest.approx((lower, estimate), abs=1e-4)
    certain = 1.959963984540054 * math.sqrt(sum(c * (1 - c) for c in confidence)) / 400
    assert interval.upper == pytest.approx(max(upper, certain), abs=1e-4)


def test_one_bin_is_a_score_interval() -> None:
    """One bin, one confidence: T* is |theta + sd Z|, so the limits are those of the accuracy's score interval."""
    n, c, right = 4000, 0.8, 3000
    interval = ece_interval(CalibrationSums.from_top([c] * n, [1] * right + [0] * (n - right)), bins=1)
    gap, z = c - right / n, 1.959963984540054

    def score(p: float) -> float:
        return (p - right / n) / math.sqrt(p * (1 - p) / n)

    low = reference.bisect(lambda p: score(p) + z, 0.5, 0.75)
    high = reference.bisect(lambda p: score(p) - z, 0.75, 0.99)
    assert interval.ece == pytest.approx(gap)
    assert interval.estimate == pytest.approx(gap, abs=2e-4)
    assert interval.lower == pytest.approx(c - high, abs=1.5e-3)  # the fixed draws leave .3% of the level: .1 of a sd
    assert interval.upper == pytest.approx(c - low, abs=1.5e-3)


def test_all_right_at_high_confidence_stays_open() -> None:
    interval = ece_interval(CalibrationSums.from_top([0.999] * 10, [1] * 10))
    assert interval.lower == 0
    assert interval.upper == pytest.approx(0.999 - 0.025 ** (1 / 10), abs=1e-9)  # Clopper-Pearson: .69


def test_certain_and_right() -> None:
    """All confidences exactly 1, no error, ECE 0: the upper limit is the rule of three's exact form."""
    interval = ece_interval(CalibrationSums.from_top([1.0] * 1000, [1] * 1000))
    assert (interval.ece, interval.lower, interval.estimate) == (0, 0, 0)
    assert interval.upper == pytest.approx(1 - 0.025 ** (1 / 1000), rel=1e-9)


def test_certain_and_sometimes_wrong() -> None:
    interval = ece_interval(CalibrationSums.from_top([1.0] * 1000, [0] * 100 + [1] * 900))
    assert interval.ece == pytest.approx(0.1)
    assert 0.080 < interval.lower < 0.0835 < 0.1 < 0.119 < interval.upper < 0.122  # score interval: .0829 to .1201


def test_no_gap_at_all() -> None:
    interval = ece_interval(CalibrationSums.from_top([0.5] * 400, [0, 1] * 200))
    assert (interval.ece, interval.lower, interval.estimate) == (0, 0, 0)
    assert interval.upper == pytest.approx(1.959963984540054 * 0.5 / 20)  # not 0: the gap is known to +-.049


@pytest.mark.parametrize("correct", [0, 1])
@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0])
def test_a_single_row_says_little(confidence: float, correct: int) -> None:
    interval = ece_interval(CalibrationSums.from_top([confidence], [correct]))
    assert interval.upper - interval.lower >= 0.66
    if correct == confidence:  # as far off as a single row can be from what was said: still no proof
        assert interval.lower == 0


@pytest.mark.parametrize(("right", "n"), [(0, 7), (1, 7), (4, 9), (7, 7), (498, 500)])
def test_exact_limits_by_binomial_tails(right: int, n: int) -> None:
    c, q = 0.9, 0.025
    low = reference.bisect(lambda p: reference.binomial_tail(right, n, p) - q, 0, 1) if right else 0.0
    high = reference.bisect(lambda p: q - 1 + reference.binomial_tail(right + 1, n, p), 0, 1) if right < n else 1.0
    least, most = exact_gap_limits(right / n, c, n, q)
    assert most == pytest.approx(max(c - low, high - c), abs=1e-9)
    assert least == pytest.approx(max(low - c, c - high, 0), abs=1e-9)


def test_exact_limits_join_only_where_errors_are_rare() -> None:
    def width(wrong: int) -> float:
        interval = ece_interval(CalibrationSums.from_top(np.linspace(0.5, 1, 400), np.arange(400) >= wrong))
        return interval.upper - interval.lower

    assert width(RARE - 1) > width(RARE)


def test_draws_are_standard_normal_quantiles() -> None:
    normal_BR = normals(15)
    assert normal_BR.shape == (15, DRAWS)
    assert np.array_equal(np.sort(normal_BR[0]), np.sort(normal_BR[14]))
    assert np.abs(normal_BR.mean(axis=1)).max() < 1e-12
    assert normal_BR.var(axis=1) == pytest.approx(np.ones(15), abs=2e-3)
    assert np.abs(np.corrcoef(normal_BR) - np.eye(15)).max() < 0.08  # 5 standard errors
    assert not normal_BR.flags.writeable


def test_same_answer_every_time() -> None:
    sums = CalibrationSums.from_top(pool("A")[:300], np.arange(300) % 4 > 0)
    assert ece_interval(sums) == ece_interval(sums)
    assert isinstance(ece_interval(sums), EceInterval)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.21, 0.5, 0.9, 0.95, 1.0]), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 9),
)
def test_bins_of_equal_mass_are_whole_cells(data: list[tuple[float, bool]], bins: int) -> None:
    """Each cut of equal counts goes to the end of a group that is nearest in rows, the later of two as near."""
    sums = CalibrationSums.from_top([c for c, _ in data], [a for _, a in data])
    table = whole_bins(sums, bins, "mass")
    groups = sorted({c for c, _ in data})
    ends = [sum(c <= group for c, _ in data) for group in groups]
    last = {len(groups) - 1}
    for b in range(1, bins):
        away = [abs(end - b * len(data) / bins) for end in ends]
        last.add(max(k for k in range(len(ends)) if away[k] <= min(away) + 1e-9))
    starts = [0, *(k + 1 for k in sorted(last)[:-1])]
    for b, (low, high) in enumerate(zip(starts, sorted(last), strict=True)):
        inside = [(c, a) for c, a in data if groups[low] <= c <= groups[high]]
        assert table.count_B[b] == len(inside)
        assert table.correct_B[b] == sum(a for _, a in inside)
        assert table.confidence_B[b] == pytest.approx(sum(c for c, _ in inside))
        assert table.variance_B[b] == pytest.approx(sum(c * (1 - c) for c, _ in inside), abs=1e-9)
        assert all((table.lo_B[b] < c or c == 0) and c <= table.hi_B[b] for c, _ in inside)
    assert len(table.count_B) == len(last)


@pytest.mark.parametrize("shape", "ABC")
def test_interval_and_floor_in_bins_of_equal_mass(shape: str) -> None:
    """Of 50 calibrated samples 5% exceed the floor's p95 (9: 4 standard errors); the intervals hold what is so."""
    c, rng, above, covered = pool(shape), np.random.default_rng(3), 0, 0
    for _ in range(50):
        c_N = c[rng.integers(0, len(c), 3000)]
        sums = CalibrationSums.from_top(c_N, rng.random(3000) < c_N)
        above += ece_interval(sums, binning="mass").ece > noise_floor(sums, binning="mass").p95
        wrong = CalibrationSums.from_top(c_N, rng.random(3000) < 0.9 * c_N)
        table, interval = whole_bins(wrong, 15, "mass"), ece_interval(wrong, binning="mass")
        assert interval.ece == pytest.approx(np.abs(table.gap_B).sum() / 3000)
        covered += interval.lower <= 0.1 * c_N.mean() <= interval.upper
    assert above <= 9
    assert covered >= 40  # 93% are promised; fewer than 40 then have probability .1%
    assert ece_interval(sums, binning="mass").ece == pytest.approx(ece(sums, binning="mass"), abs=0.01)


def test_an_unknown_binning_is_refused() -> None:
    for work in (ece_interval, noise_floor):
        with pytest.raises(ValueError, match="unknown binning 'depth'; allowed: width, mass"):
            work([[0.5, 0.5]], [0], binning="depth")  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, math.nan])
def test_levels_outside_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match=r"allowed is \(0, 1\), such as 0.95"):
        ece_interval([[0.5, 0.5]], [0], level=level)


TRUTHS = ("calibrated", "over-confident", "alternating")


@pytest.mark.few(4)
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(("shape", "n"), [("A", 500), ("A", 20_000), ("B", 500), ("C", 500), ("C", 20_000)])
def test_coverage(shape: str, n: int, truth: str) -> None:
    """At least 93% is promised. In 100 runs fewer than 85 covered then happen with probability .1%, per setting.

    benchmarks/intervals/ece.py has the full table.
    """
    confidence, runs = pool(shape), 100
    odds = confidence / (1 - confidence + 1e-12)
    bin_N = np.ceil(confidence * 15).astype(int) - 1
    chance = {
        "calibrated": confidence,
        "over-confident": np.maximum(odds**0.6 / (1 + odds**0.6), 0.01),
        "alternating": np.clip(confidence + np.where(bin_N % 2, 0.1, -0.1), 0, 1),
    }[truth]
    true_ece = np.abs(np.bincount(bin_N, chance - confidence)).sum() / len(confidence)
    rng = np.random.default_rng([n, TRUTHS.index(truth)])
    covered = below = 0
    for _ in range(runs):
        row_N = rng.integers(0, len(confidence), n)
        interval = ece_interval(CalibrationSums.from_top(confidence[row_N], rng.random(n) < chance[row_N]))
        covered += interval.lower <= true_ece <= interval.upper
        below += interval.lower == 0
    assert covered >= 85
    if truth == "calibrated":
        assert below >= 89  # 2.5% above zero are nominal, 4.5% measured: 12 of 100 is 3.6 standard errors away
    if n == 20_000 and truth != "calibrated":
        assert below == 0  # an ECE of .05 and more is seen for certain


def test_a_level_just_below_one_leaves_everything_open() -> None:
    """1 - q rounds to 1: more draws than there are would have to lie below."""
    sums = CalibrationSums.from_top(np.linspace(0.5, 1, 400), np.arange(400) >= 150)
    assert ece_interval(sums, level=float(np.nextafter(1, 0))).lower == 0.0
    assert ece_interval(sums, level=0.95).lower > 0.0
