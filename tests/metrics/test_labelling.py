"""Warnings about the choice and the delay of labels, and what a selective choice could hide."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.evidence.labelling import FEW, piled, scaled, within_bins
from benchmarks.streams import pool
from tests import reference_sequential as twin
from tests.metrics.rows import counts
from trueodds.metrics import (
    CELLS,
    CalibrationSums,
    choice_of_labels,
    ece,
    fullest_cell,
    label_delay,
    noise_floor,
    sensitivity,
    weighted_ece,
)

Array = npt.NDArray[np.float64]


def test_chi_square_by_hand() -> None:
    """8 of 40 answers labelled: 7 of 20 at .5, 1 of 20 at .9; expected 4 and 4."""
    choice = choice_of_labels(CalibrationSums.from_top([0.5] * 7 + [0.9], [1] * 8), counts([0.5] * 20 + [0.9] * 20))
    assert choice.chi_square == pytest.approx(9 / 4 + 9 / 4)
    tail = 2 * sum(math.comb(20, k) * math.comb(20, 8 - k) for k in (7, 8)) / math.comb(40, 8)
    assert choice.p_value == pytest.approx(tail, abs=0.01)
    assert not choice.warning
    assert "random choice" in choice.reading


@pytest.mark.parametrize("labels", [(0, 2, 3, 0), (1, 1, 1, 2), (0, 0, 5, 0)])
def test_chi_square_against_every_choice(labels: tuple[int, ...]) -> None:
    """Bins with less than one expected label: the p-value is exact up to the draws."""
    answers, places = (2, 9, 12, 1 + labels[3]), (0.1, 0.4, 0.7, 0.95)
    confidence = [c for c, n in zip(places, labels, strict=True) for _ in range(n)]
    all_c = [c for c, n in zip(places, answers, strict=True) for _ in range(n)]
    choice = choice_of_labels(CalibrationSums.from_top(confidence, [1] * len(confidence)), counts(all_c))
    exact = twin.chi_square_tail(labels, answers)
    draws = 1000 if exact > 0.1 else 5000
    assert choice.p_value == pytest.approx(exact, abs=3.5 * math.sqrt(exact * (1 - exact) / draws) + 3e-4)


@pytest.mark.parametrize("few", [400, 410, 425, 445, 360])
def test_large_counts_against_the_hypergeometric_law(few: int) -> None:
    """Two bins of 4,000 and 6,000 answers, 1,000 labels: exact but for the step that a count takes."""
    confidence, everything = ([0.5] * n + [0.9] * m for n, m in ((few, 1000 - few), (4000, 6000)))
    choice = choice_of_labels(CalibrationSums.from_top(confidence, [1] * 1000), counts(everything))
    law = stats.hypergeom(10_000, 4_000, 1_000)
    off = abs(few - 400)
    exact = law.cdf(400 - off) + law.sf(400 + off - 1) if off else 1.0
    assert choice.p_value == pytest.approx(exact, abs=1.1 * law.pmf(few) + 1e-5)


def test_choice_at_random_and_by_confidence() -> None:
    """A warning in 1% of random choices (4 of 60 have p = .3%), and in every choice by confidence or correctness."""
    rng = np.random.default_rng(0)
    c = pool("A", 20_000).confidence_M
    a = rng.random(len(c)) < c

    def warned(keep: Array | float) -> bool:
        k = rng.random(len(c)) < keep
        return choice_of_labels(CalibrationSums.from_top(c[k], a[k]), counts(c)).warning

    assert sum(warned(0.05) for _ in range(60)) <= 3
    assert all(warned(0.1 * (1.2 - c)) for _ in range(5))
    assert all(warned(np.where(a, 0.05, 0.1)) for _ in range(5))


@pytest.mark.parametrize(("shape", "least"), [("A", 28), ("B", 28), ("C", 28), ("W", 28), ("V", 20)])
def test_choice_within_bins(shape: str, least: int) -> None:
    """400 labels of 8,000 answers, in each of 15 bins the upper half a third as often: seen in nearly every run.

    The bins themselves have their fair share. Of V 75% lie in one cell. At random 1% warn (5 of 100 have p = .3%).
    """
    rows, rng = piled(shape, 50_000) if shape in "WV" else pool(shape, 50_000), np.random.default_rng(3)

    def warned(keep: Array) -> bool:
        row = rng.integers(0, len(keep), FEW)
        confidence = rows.confidence_M[row[rng.random(FEW) < keep[row]]]
        sums, answers_C = CalibrationSums.from_top(confidence, np.ones(len(confidence))), counts(rows.confidence_M[row])
        return choice_of_labels(sums, answers_C).warning

    chosen = scaled(within_bins(rows.confidence_M))
    assert sum(warned(chosen) for _ in range(30)) >= least
    assert sum(warned(np.full(50_000, 0.05)) for _ in range(100)) <= 4


def test_everything_labelled_is_a_fair_choice() -> None:
    c = [0.3, 0.5, 0.99]
    choice = choice_of_labels(CalibrationSums.from_top(c, [1, 1, 1]), counts(c))
    assert (choice.chi_square, choice.p_value) == (0, 1)


def test_delay_by_hand() -> None:
    """Two bins. Fast: 4 at .9 (3 right), 2 at .5 (0 right); slow: 12 at .9 (12 right), 2 at .5 (2 right)."""
    fast = CalibrationSums.from_top([0.9] * 4 + [0.5] * 2, [1, 1, 1, 0, 0, 0])
    slow = CalibrationSums.from_top([0.9] * 12 + [0.5] * 2, [1] * 14)
    delay = label_delay(fast, slow)
    weights = (4 * 12 / 16, 2 * 2 / 4)
    numerator = weights[0] * (-0.25) + weights[1] * (-1.0)
    variances = (0.09, 0.25)  # a = 15/16: a(1-a) = .0586 is below c(1-c); at .5 both are .25
    assert delay.difference == pytest.approx(numerator / sum(weights))
    assert delay.z == pytest.approx(numerator / math.sqrt(sum(w * v for w, v in zip(weights, variances, strict=True))))
    assert delay.p_value == pytest.approx(math.erfc(abs(delay.z) / math.sqrt(2)))
    mirrored = label_delay(slow, fast)
    assert (mirrored.z, mirrored.difference) == pytest.approx((-delay.z, -delay.difference))


@pytest.mark.parametrize("truth", ["calibrated", "T = 2.5"])
def test_delays_that_are_harmless_and_not(truth: str) -> None:
    """1% of harmless delays warn (5 of 100 have p = .3%), and all when wrong answers come twice as fast.

    At T = 2.5 the variance c(1-c) alone would warn of every fifth harmless case.
    """
    rows = pool("B", 20_000)
    rng = np.random.default_rng(1)

    def warned(factor: float) -> bool:
        i = rng.integers(0, len(rows.confidence_M), 5_000)
        c, a = rows.confidence_M[i], rng.random(5_000) < rows.chances[truth][i]
        delay = rng.exponential(1, 5_000) / np.where(a, 1, factor)
        fast = delay <= np.median(delay)
        result = label_delay(CalibrationSums.from_top(c[fast], a[fast]), CalibrationSums.from_top(c[~fast], a[~fast]))
        assert ("wrong answers arrive sooner" in result.reading) == (result.warning and result.difference < 0)
        return result.warning

    assert sum(warned(1) for _ in range(100)) <= 4
    assert sum(warned(2) for _ in range(10)) == 10


def test_delay_without_doubt() -> None:
    certain = CalibrationSums.from_top([1.0] * 3, [1] * 3)
    delay = label_delay(certain, certain)
    assert (delay.z, delay.p_value, delay.warning) == (0, 1, False)
    assert delay.reading == "Fast and slow labels show no significant difference."


def test_sensitivity_by_hand() -> None:
    """8 right and 4 wrong of 120 at .8: if wrong ones are labelled twice as often a fifth is, and nothing is off."""
    sums = CalibrationSums.from_top([0.8] * 12, [1] * 8 + [0] * 4)
    plain, doubled = (sensitivity(sums, counts([0.8] * 120), ratio=ratio) for ratio in (1, 2))
    assert (plain.ece, plain.accuracy, plain.signed_gap) == pytest.approx((0.8 - 8 / 12, 8 / 12, 8 / 12 - 0.8))
    assert (doubled.ece, doubled.accuracy, doubled.signed_gap) == pytest.approx((0, 0.8, 0), abs=1e-12)
    assert plain.reading == "If labels do not depend on whether the answer was right, the ECE is 0.133."
    assert doubled.reading == (
        "If wrong answers are 2 times as likely to be labelled, accuracy is 80.0% and the ECE 0.000. Whatever the"
        " missing labels are, accuracy lies between 6.7% (all wrong) and 96.7% (all right)."
    )


def test_sensitivity_says_nothing_impossible() -> None:
    """997 of 1,000 labelled, accuracy .835: with all others right it is .8355, with all wrong .8325."""
    sums = CalibrationSums.from_top([0.9] * 997, [1] * 832 + [0] * 165)
    doubled, halved = (sensitivity(sums, counts([0.9] * 1000), ratio=ratio) for ratio in (2, 0.5))
    assert (doubled.lowest_accuracy, doubled.highest_accuracy) == pytest.approx((0.832, 0.835))
    assert (halved.accuracy, doubled.accuracy) == pytest.approx((0.832, 0.835))
    assert doubled.ece == pytest.approx(0.065) and doubled.impossible == 1
    assert "2 times as likely to be labelled, as far as there are answers without labels, accuracy" in doubled.reading


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=20),
    st.lists(st.floats(0, 1), max_size=20),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_sensitivity_equals_its_twin(rows: list[twin.Row], others: list[float], ratio: float) -> None:
    """Rows weighted one by one; cells know no more than their mean confidence."""
    answers = [c for c, _ in rows] + others
    sums = CalibrationSums.from_top([c for c, _ in rows], [a for _, a in rows])
    result = sensitivity(sums, counts(answers), ratio=ratio)
    weights = twin.sensitivity(rows, answers, ratio)
    assert sum(weights) == pytest.approx(1)
    terms = twin.weighted_terms(rows, weights, 15)
    assert result.ece == pytest.approx(sum(abs(t[0]) for t in terms), abs=1 / CELLS)
    assert result.signed_gap == pytest.approx(sum(t[0] for t in terms), abs=1 / CELLS)
    assert result.accuracy == pytest.approx(sum(w for w, (_, a) in zip(weights, rows, strict=True) if a), abs=1e-9)
    if ratio == 1 and not fullest_cell(sums, counts(answers)).is_refused:
        assert result.ece == pytest.approx(weighted_ece(sums, counts(answers)).interval.ece, abs=1e-9)
        assert result.impossible == 0


def test_sensitivity_undoes_a_selective_choice() -> None:
    """Calibrated, wrong answers labelled twice as often: looks like .048 for shape A, is noise at ratio 2."""
    rng = np.random.default_rng(2)
    rows = pool("A", 20_000)
    i = rng.integers(0, 20_000, 200_000)
    c, a = rows.confidence_M[i], rng.random(200_000) < rows.confidence_M[i]
    k = rng.random(200_000) < np.where(a, 0.25, 0.5)
    sums, answers_C = CalibrationSums.from_top(c[k], a[k]), counts(c)
    assert ece(sums) == pytest.approx(0.048, abs=0.006)
    assert sensitivity(sums, answers_C, ratio=1).ece == pytest.approx(0.041, abs=0.006)
    assert sensitivity(sums, answers_C).ece < 1.5 * noise_floor(sums).p95


def test_input_is_checked() -> None:
    one, none = CalibrationSums.from_top([0.5], [1]), CalibrationSums.zero()
    for ratio in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="allowed is any number above 0"):
            sensitivity(one, np.ones(CELLS), ratio=ratio)
    with pytest.raises(ValueError, match="no labelled rows"):
        sensitivity(none, np.ones(CELLS))
    with pytest.raises(ValueError, match="no labelled rows"):
        label_delay(one, none)
    with pytest.raises(ValueError, match="share no bin"):
        label_delay(one, CalibrationSums.from_top([0.9], [1]))
    with pytest.raises(ValueError, match=r"confidences 0.4997 to 0.5000 have 1 labels but 0 answers"):
        choice_of_labels(one, np.zeros(CELLS))
    with pytest.raises(ValueError, match="answers has shape"):
        choice_of_labels(one, np.ones(15))
