"""The p-value of the ECE: a slow twin, the binomial's, tails, its level; and marks in tables of many rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, false_discovery_control

from tests import reference_metrics as twin
from trueodds.metrics import CELLS, CalibrationSums, cell_of, ece, ece_test, noise_floor
from trueodds.reports import ReportOptions, slices_of
from trueodds.reports.slices import FALSE_DISCOVERY_RATE, benjamini_hochberg
from trueodds.sums.answers import AnswerSums


@pytest.mark.parametrize("seed", range(6))
def test_twin(seed: int) -> None:
    """Distances are rounded up to 2,048 steps, so p is too large by what lies within a hundredth beyond them."""
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.uniform(0.3, 1, 14), 2).tolist()
    rows = [(c, int(rng.random() < c - 0.2)) for c in confidence]
    test = ece_test(CalibrationSums.from_top(confidence, [a for _, a in rows]), bins=5)
    assert test.ece == pytest.approx(ece(CalibrationSums.from_top(confidence, [a for _, a in rows]), bins=5))
    wanted = twin.ece_p_value(rows, 5)
    assert wanted - 1e-12 <= test.p_value <= wanted * 1.1 + 1e-12


def test_of_one_confidence_it_is_the_binomial_test() -> None:
    """At .5, where the two-sided test is symmetric; down to 1e-11."""
    for right in (50, 55, 40, 80, 85):
        test = ece_test(CalibrationSums.from_top([0.5] * 100, [1] * right + [0] * (100 - right)))
        assert test.p_value == pytest.approx(binomtest(right, 100, 0.5).pvalue, rel=1e-6, abs=1e-12)
        assert ("more than chance" in test.reading) == (test.p_value < 0.05)


def test_edges() -> None:
    assert ece_test(CalibrationSums.from_top([1.0] * 50, [1] * 50)).p_value == 1
    assert ece_test(CalibrationSums.from_top([1.0] * 50, [1] * 49 + [0])).p_value == 0
    assert ece_test(CalibrationSums.from_top([0.75] * 4, [1, 1, 1, 0])).p_value == 1
    assert ece_test(CalibrationSums.from_top([0.0] * 50 + [0.5] * 50, [0] * 75 + [1] * 25)).p_value == 1
    assert ece_test(CalibrationSums.from_top([0.0] * 50, [0] * 49 + [1])).p_value == 0
    assert ece_test(CalibrationSums.from_top([0.999] * 100_000, [0] * 100_000)).p_value <= 1e-10
    with pytest.raises(ValueError, match="row"):
        ece_test(CalibrationSums.zero())


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_it_asks_what_the_noise_floor_asks(binning: str) -> None:
    """p < .05 where the ECE is above the floor's percentile, but for a few near it; the level holds."""
    rng = np.random.default_rng(3)
    small = above = different = 0
    for _ in range(200):
        c = rng.beta(6, 1.2, 300)
        sums = CalibrationSums.from_top(c, rng.random(300) < c)
        test, floor = ece_test(sums, binning=binning), noise_floor(sums, binning=binning)  # type: ignore[arg-type]
        small += test.p_value <= 0.05
        above += test.ece > floor.p95
        different += (test.p_value <= 0.05) != (test.ece > floor.p95)
    assert small < 22 and different <= 3  # 5% of 200; 22 or more have a probability of .07%


@pytest.mark.parametrize("seed", range(4))
def test_rejected_are_those_of_scipys_adjusted_p_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p_values = np.round(rng.beta(0.3, 2, 200), 4).tolist()
    assert benjamini_hochberg(p_values, 0.05) == (false_discovery_control(p_values) <= 0.05).tolist()
    assert benjamini_hochberg([], 0.05) == [] and benjamini_hochberg([0.9, 0.2], 0.05) == [False, False]


def group(rng: np.random.Generator, n: int, off: float = 0.0) -> AnswerSums:
    c = rng.uniform(0.5, 1, n)
    return AnswerSums(np.bincount(cell_of(c), minlength=CELLS), CalibrationSums.from_top(c, rng.random(n) < c - off))


@pytest.mark.full
def test_sound_rows_are_marked_in_few_tables() -> None:
    """50 tables of 20 calibrated rows: one at a time 5% are above their floor, so two tables in three have one."""
    rng = np.random.default_rng(0)
    marked = alone = 0
    for _ in range(50):
        rows = slices_of({str(k): group(rng, 40) for k in range(20)}, ReportOptions())
        marked += any(row.more_than_chance for row in rows)
        alone += any((row.ece or 0) > (row.floor_p95 or 0) for row in rows)
    assert alone > 20 and marked <= 7  # 5% of 50; 8 or more have a probability of .4%


def test_rows_that_are_off_are_found_among_many() -> None:
    """5 of 100 rows off by .1 with 500 labels each; a row without labels has no p-value and no part in it."""
    rng = np.random.default_rng(1)
    named = {str(k): group(rng, 500, 0.1 if k < 5 else 0.0) for k in range(100)}
    rows = slices_of({**named, "new": AnswerSums.zero()}, ReportOptions())
    marked = {row.name for row in rows if row.more_than_chance}
    assert len(marked & set("01234")) >= 4 and len(marked - set("01234")) <= 1
    assert rows[-1].p_value is None and not rows[-1].more_than_chance
    largest = max(row.p_value or 0 for row in rows if row.more_than_chance)
    assert largest <= FALSE_DISCOVERY_RATE * len(marked) / 100
