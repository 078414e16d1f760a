"""Confidence sequence of the signed gap: valid from the sums alone, equal to its twin, sane at the edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from tests import reference_sequential as twin
from tests.metrics.rows import sums_of
from trueodds.metrics import CELLS, CalibrationSums, gap_sequence, signed_gap
from trueodds.metrics.intervals.confidence_sequence import _log_wealth


def wealth_of(rows: list[twin.Row], m: float, sign: int) -> float:
    cells = sums_of(rows).cells[:3]
    count, confidence, correct = cells[:, cells[0] > 0]
    return _log_wealth(correct, count - correct, confidence / count, sign, m)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, CELLS - 1), st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=30),
    st.booleans(),
    st.floats(-1, 1),
    st.sampled_from([-1, 1]),
)
def test_sums_never_claim_more_than_the_rows(
    places: list[tuple[int, float, int]], together: bool, m: float, sign: int
) -> None:
    """Validity: whatever the labels' places in their cells, the wealth from the sums is at most that of the rows."""
    rows = [((places[0][0] if together else cell) / CELLS + share / CELLS, a) for cell, share, a in places]
    rows = [(min(c, 1.0), a) for c, a in rows]
    assert wealth_of(rows, m, sign) <= twin.log_gap_wealth(rows, m, sign) + 1e-9


def test_worst_places_in_a_cell() -> None:
    """All right answers at one end of their cell and all wrong ones at the other: the slack is needed."""
    lo, hi = 1500.0001 / CELLS, 1501 / CELLS
    for right_at, wrong_at, sign in itertools.product((lo, hi), (lo, hi), (-1, 1)):
        rows = [(right_at, 1)] * 500 + [(wrong_at, 0)] * 500
        for m in (-0.3, -0.02, 0.0, 0.02, 0.3):
            assert wealth_of(rows, m, sign) <= twin.log_gap_wealth(rows, m, sign) + 1e-9


@pytest.mark.parametrize("confidence", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("chance", [0.1, 0.6, 1.0])
def test_expected_wealth_is_at_most_one(confidence: float, chance: float) -> None:
    """All outcomes of 5 labels, at the true gap: E[K+] and E[K-] <= 1."""
    for sign in (-1, 1):
        mean = 0.0
        for outcome in itertools.product((0, 1), repeat=5):
            likelihood = math.prod(chance if a else 1 - chance for a in outcome)
            rows = [(confidence, a) for a in outcome]
            mean += likelihood * math.exp(wealth_of(rows, chance - confidence, sign))
        assert 0.999 <= mean <= 1 + 1e-12


@pytest.mark.parametrize("n", [1, 30, 300])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_equal_to_its_twin(n: int, level: float) -> None:
    """The limits contain those from the rows, and are wider by less than 1e-4 (a cell is 3.3e-4)."""
    rng = np.random.default_rng(n)
    confidence = rng.uniform(0.4, 1, n)
    rows = [(float(c), int(a)) for c, a in zip(confidence, rng.random(n) < confidence - 0.1, strict=True)]
    sequence = gap_sequence(sums_of(rows), level=level)
    lower, upper = twin.gap_limits(rows, level)
    assert lower - 1e-4 <= sequence.lower <= lower + 1e-9
    assert upper - 1e-9 <= sequence.upper <= upper + 1e-4
    assert sequence.gap == pytest.approx(signed_gap(sums_of(rows)))


def test_one_label_says_nothing() -> None:
    sequence = gap_sequence(CalibrationSums.from_top([0.7], [1]))
    assert (sequence.lower, sequence.upper) == (-1.0, 1.0)


def test_always_wrong_by_hand() -> None:
    """200 labels at confidence 1, all wrong: a - c = -1, so mean_L (1 - L (-1 - m))^200 = 40 at the upper limit."""
    sequence = gap_sequence(CalibrationSums.from_top([1.0] * 200, [0] * 200))
    stakes = [0.98 * x for x in (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5)]
    upper = reference.bisect(lambda m: sum((1 + L * (1 + m)) ** 200 for L in stakes) / 8 - 40, -1, 1)
    assert (sequence.gap, sequence.lower) == (-1, -1)
    assert sequence.upper == pytest.approx(upper, abs=1e-4)
    assert sequence.upper >= upper


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
@settings(max_examples=50)
def test_ordered_and_nested(rows: list[twin.Row]) -> None:
    sequences = [gap_sequence(sums_of(rows), level=level) for level in (0.5, 0.9, 0.99)]
    for one in sequences:
        assert -1 <= one.lower <= one.gap <= one.upper <= 1
    for narrow, wide in itertools.pairwise(sequences):
        assert wide.lower <= narrow.lower + 1e-9
        assert narrow.upper <= wide.upper + 1e-9


def test_mirrored() -> None:
    """Swap right and wrong, confidence and its complement: the sequence changes its sign."""
    rng = np.random.default_rng(0)
    c, a = rng.uniform(0.001, 0.999, 400), rng.integers(0, 2, 400)
    one, other = gap_sequence(CalibrationSums.from_top(c, a)), gap_sequence(CalibrationSums.from_top(1 - c, 1 - a))
    assert (one.lower, one.gap, one.upper) == pytest.approx((-other.upper, -other.gap, -other.lower), abs=1e-8)


def test_widths_of_the_note() -> None:
    """Shape A calibrated: .050 at 1,000 labels, .016 at 10,000 (any shape of the same variance gives the same)."""
    for n, width in ((1_000, 0.050), (10_000, 0.016)):
        c = np.where(np.arange(n) % 10 < 5, 0.9965, 0.870)  # variance c(1-c) .0584, that of shape A
        a = (np.arange(n) % 10 < 5) | (np.arange(n) % 100 < 87)
        sequence = gap_sequence(CalibrationSums.from_top(c, a))
        assert sequence.upper - sequence.lower == pytest.approx(width, rel=0.15)


def test_stays_useful_and_fast_to_ten_million() -> None:
    cells = [[k, 1e4, 1e4 * (k + 0.5) / CELLS, round(1e4 * (k + 0.5) / CELLS), 0, 0, 0, 0] for k in range(1500, 2500)]
    sequence = gap_sequence(CalibrationSums.from_cells(cells))
    assert 0 < sequence.upper - sequence.lower < 0.003
    assert sequence.lower < 0 < sequence.upper


def test_takes_probabilities() -> None:
    assert gap_sequence([[0.7, 0.3], [0.2, 0.8]], [0, 0]) == gap_sequence(CalibrationSums.from_top([0.7, 0.8], [1, 0]))


@pytest.mark.parametrize("level", [0, 1, -0.5, math.nan])
def test_levels_outside_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match=r"allowed is \(0, 1\), such as 0.95"):
        gap_sequence([[0.5, 0.5]], [0], level=level)


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="no labelled rows"):
        gap_sequence(CalibrationSums.zero())
