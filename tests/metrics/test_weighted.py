"""Weighted ECE: labels chosen by confidence stand for all answers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evidence.labelling import RULES, ece_of, piled, scaled
from benchmarks.streams import Pool, pool
from tests import reference_sequential as twin
from tests.metrics.rows import counts
from trueodds.metrics import (
    CELLS,
    CalibrationSums,
    CrowdedCellError,
    ece,
    ece_interval,
    fullest_cell,
    inverse_probability_ece,
    weighted_ece,
)
from trueodds.metrics.intervals.calibration_error import EceInterval, interval_of
from trueodds.metrics.intervals.inversion import GapTerms
from trueodds.metrics.labelling import weighted_ece as weighted_ece_module
from trueodds.metrics.labelling.strata import Strata
from trueodds.sums.bins import cell_of

Array = npt.NDArray[np.float64]
some_rows = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=40)


@settings(max_examples=20)
@given(some_rows)
def test_all_labelled_is_the_plain_interval(rows: list[twin.Row]) -> None:
    confidence, correct = [c for c, _ in rows], [a for _, a in rows]
    sums = CalibrationSums.from_top(confidence, correct)
    estimate, plain = weighted_ece(sums, counts(confidence)), ece_interval(sums)
    for name in ("ece", "estimate", "lower", "upper"):
        assert getattr(estimate.interval, name) == pytest.approx(getattr(plain, name), abs=3e-6)
    assert estimate.effective_n == pytest.approx(len(rows))
    assert (estimate.unlabelled, estimate.interval.level) == (0, 0.95)
    assert estimate.accuracy == pytest.approx(np.mean(correct))
    assert estimate.signed_gap == pytest.approx(np.mean(correct) - np.mean(confidence))


def test_two_strata_by_hand() -> None:
    """500 answers at .9 of which 10 are labelled (8 right), 500 at .6 of which 50 are (40 right)."""
    sums = CalibrationSums.from_top([0.9] * 10 + [0.6] * 50, [1] * 8 + [0] * 2 + [1] * 40 + [0] * 10)
    estimate = weighted_ece(sums, counts([0.9] * 500 + [0.6] * 500))
    assert estimate.interval.ece == pytest.approx(0.5 * 0.1 + 0.5 * 0.2)
    assert estimate.accuracy == pytest.approx(0.5 * 0.8 + 0.5 * 0.8)
    assert estimate.mean_confidence == pytest.approx(0.75)
    assert estimate.effective_n == pytest.approx(1 / (10 * 0.05**2 + 50 * 0.01**2))
    assert (estimate.heaviest, estimate.unlabelled, estimate.crowded) == pytest.approx((0.05, 0, 0.5))
    assert ece(sums) == pytest.approx((10 * 0.1 + 50 * 0.2) / 60)  # what the labels alone would say
    assert estimate.reading == (
        "These labels are as informative as 33 randomly chosen ones. 50% of the answers share one cell, in which no"
        " selection can be corrected."
    )


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.2, 0.5, 0.9, 0.901, 1.0]) | st.floats(0, 1), st.integers(1, 9)),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([1, 300, 700, 5000]),
)
def test_strata_equal_their_twin(piles: list[tuple[float, int]], labels: int) -> None:
    answers = [c for c, many in piles for _ in range(many)]
    strata, expected = Strata(counts(answers), labels), twin.strata(answers, labels)
    assert {k: int(strata.stratum_C[k]) for k in expected} == expected
    np.testing.assert_array_equal(strata.answers_K, np.bincount(strata.stratum_C[cell_of(answers)]))


def test_strata_are_equal_shares_and_full_cells_alone() -> None:
    """As many as 1 for 20 labels, none of more than one and a half shares but cells that hold more."""
    rng = np.random.default_rng(0)
    answers_C = counts(np.concatenate([rng.uniform(0.9, 1, 40_000), np.full(60_000, 1.0), np.full(40_000, 0.95)]))
    strata = Strata(answers_C, 4_000)
    for full in (CELLS - 1, int(cell_of([0.95])[0])):
        assert strata.answers_K[strata.stratum_C[full]] == answers_C[full] >= 40_000
    others = strata.answers_K[strata.answers_K < 40_000]
    assert others.min() > 0.6 * 700 and others.max() < 1.5 * 700
    assert 55 <= len(others) <= 60  # 40,000 of 140,000 answers at 700 each


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1), st.floats(0.01, 1)), min_size=1, max_size=30))
def test_terms_equal_their_twin(data: list[tuple[float, int, float]]) -> None:
    captured: list[GapTerms] = []

    def kept(terms: GapTerms, observed: float, accuracy: float, level: float) -> EceInterval:
        captured.append(terms)
        return interval_of(terms, observed, accuracy, level)

    rows, probability = [(c, a) for c, a, _ in data], [p for _, _, p in data]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted_ece_module, "interval_of", kept)
        estimate = inverse_probability_ece([c for c, _ in rows], [a for _, a in rows], probability)
    terms, expected = captured[0], twin.weighted_terms(rows, [1 / p for p in probability], 15)
    columns = (terms.gap_B, terms.weight_B, terms.variance_B, terms.skew_B, terms.square_B)
    np.testing.assert_allclose(np.transpose(columns), expected, atol=1e-12)
    assert estimate.interval.ece == pytest.approx(sum(abs(row[0]) for row in expected))
    assert estimate.effective_n == pytest.approx(1 / sum(row[4] for row in expected))


def test_known_probabilities_and_strata_agree() -> None:
    """Where a stratum's labels were all chosen with one probability n_k / N_k, both give the same weights; and the
    counts mend probabilities that are all wrong by the same factor in a stratum."""
    rng = np.random.default_rng(0)
    answers = rng.uniform(0.5, 1, 4_000)
    chosen = rng.random(4_000) < np.where(np.ceil(answers * 120) % 2, 0.4, 0.1)
    correct = rng.random(4_000) < answers - 0.05
    stratum = Strata(counts(answers), int(chosen.sum())).stratum_C[cell_of(answers)]
    share = (np.bincount(stratum, chosen) / np.bincount(stratum))[stratum]
    one = weighted_ece(CalibrationSums.from_top(answers[chosen], correct[chosen]), counts(answers))
    rows = answers[chosen], correct[chosen]
    wrong = (0.01 + stratum / 100)[chosen]
    for p, all_C in ((share[chosen], None), (wrong, counts(answers))):
        other = inverse_probability_ece(*rows, p, all_C)
        assert one.unlabelled == other.unlabelled == 0
        assert one.interval.ece == pytest.approx(other.interval.ece, abs=1e-9)
        assert one.interval.upper == pytest.approx(other.interval.upper, abs=1e-4)  # c(1-c) from cells or from rows
        assert one.effective_n == pytest.approx(other.effective_n)


def test_answers_too_unlikely_to_be_chosen_may_outweigh_the_others() -> None:
    """One of 100 labels with 10/109 of the weight: without counts the lower limit is 0, and the reading says so."""
    rows = [0.9] * 50 + [0.95] * 50, [0] * 60 + [1] * 40
    even, one = np.full(100, 0.1), np.where(np.arange(100) == 3, 0.01, 0.1)
    assert inverse_probability_ece(*rows, even).interval.lower > 0.3
    estimate = inverse_probability_ece(*rows, one)
    assert (estimate.interval.lower, estimate.heavy) == (0, True)
    assert estimate.heaviest == pytest.approx(10 / 109)
    assert "One label has 9% of the weight" in estimate.reading
    assert inverse_probability_ece(*rows, one, counts([0.9] * 500 + [0.95] * 500)).interval.lower > 0.2


def test_strata_without_labels_are_spoken_for_by_their_neighbours() -> None:
    sums = CalibrationSums.from_top([0.61, 0.91], [1, 0])
    answers = [0.61] * 2 + [0.65] + [0.85] + [0.91] * 4
    estimate = weighted_ece(sums, counts(answers))
    assert estimate.unlabelled == pytest.approx(2 / 8)
    assert estimate.interval.ece == pytest.approx(3 / 8 * 0.39 + 5 / 8 * 0.91)  # .65 joins .61, .85 joins .91
    assert "25% of the answers have confidences without any label." in estimate.reading
    assert sorted(many for _, many in twin.spoken_for(answers, [0.61, 0.91])) == [3, 5]


def test_one_cell_with_more_than_half_of_the_answers_is_refused() -> None:
    """Unless the chances are known, or all answers of that cell have labels."""
    sums = CalibrationSums.from_top([0.99999] * 3 + [0.6] * 4, [1] * 3 + [0] * 4)
    half, more = counts([1.0] * 500 + [0.6] * 500), counts([1.0] * 501 + [0.6] * 499)
    assert weighted_ece(sums, half).crowded == fullest_cell(sums, half).share == 0.5
    with pytest.raises(
        CrowdedCellError, match=r"50\.1% of the answers have confidences from 0\.9997 to 1\.0000.*propensity"
    ):
        weighted_ece(sums, more)
    assert fullest_cell(sums, more).is_refused
    assert inverse_probability_ece([1.0] * 3, [1] * 3, [0.1] * 3, more).crowded == 0
    labelled = CalibrationSums.from_top([1.0] * 501 + [0.6] * 4, [1] * 505)
    assert weighted_ece(labelled, more).crowded == pytest.approx(0.499)


@pytest.mark.few(1)
@pytest.mark.parametrize("labelling", [name for name in RULES if name != "at random"])
def test_nets_whose_confidences_pile_up_at_one(labelling: str) -> None:
    """W and V (benchmarks/evidence/labelling.py): 87% and 89% of the answers above 119/120, 45% and 75% in the last
    cell.

    True ECE .057; the unweighted interval lies above it in every run.
    """
    for shape in ("W", "V"):
        rows, rng, runs = piled(shape, 50_000), np.random.default_rng(5), 20
        c, chance, keep = rows.confidence_M, rows.chances["ECE 0.057"], scaled(RULES[labelling](rows.confidence_M))
        true, covered, known, alone, plain = ece_of(rows, chance), 0, 0, 0, 0
        for _ in range(runs):
            row = rng.integers(0, len(c), 50_000)
            chosen = row[rng.random(50_000) < keep[row]]
            right, answers_C = rng.random(len(chosen)) < chance[chosen], counts(c[row])
            sums = CalibrationSums.from_top(c[chosen], right)
            interval = inverse_probability_ece(c[chosen], right, keep[chosen], answers_C).interval
            known += interval.lower <= true <= interval.upper
            interval = inverse_probability_ece(c[chosen], right, keep[chosen]).interval
            alone += interval.lower <= true <= interval.upper
            plain += ece_interval(sums).lower <= true
            if shape == "V":
                with pytest.raises(CrowdedCellError, match=r"7[456]\.\d% of the answers"):
                    weighted_ece(sums, answers_C)
            else:
                interval = weighted_ece(sums, answers_C).interval
                covered += interval.lower <= true <= interval.upper
        assert plain == 0
        assert min(known, alone) >= 17  # 93% are promised; fewer than 17 of 20 then have p = 1.5%
        assert covered >= 17 or shape == "V"


@pytest.fixture(scope="module")
def shape_a() -> Pool:
    return pool("A", 20_000)


def test_labels_chosen_by_confidence(shape_a: Pool) -> None:
    """The note's case: A at T = 1.25, true ECE .061, 5% of 100,000 answers labelled, more where confidence is low."""
    rng = np.random.default_rng(4)
    c, chance = shape_a.confidence_M, shape_a.chances["T = 1.25"]
    gap_B = np.bincount(np.ceil(c * 15).astype(int), chance - c)
    true = float(np.abs(gap_B).sum() / len(c))
    keep = scaled(np.maximum(1 - c, 0.02))
    runs, covered, plain_covered, estimates = 40, 0, 0, []
    for _ in range(runs):
        row = rng.integers(0, len(c), 100_000)
        chosen = row[rng.random(100_000) < keep[row]]
        sums = CalibrationSums.from_top(c[chosen], rng.random(len(chosen)) < chance[chosen])
        interval = weighted_ece(sums, counts(c[row])).interval
        covered += interval.lower <= true <= interval.upper
        plain = ece_interval(sums)
        plain_covered += plain.lower <= true <= plain.upper
        estimates.append(interval.estimate)
    assert covered >= 35  # 93% are promised; fewer than 35 of 40 then have p = 2%, measured 98%
    assert plain_covered < 8
    assert np.mean(estimates) == pytest.approx(true, abs=0.003)


def test_input_is_checked() -> None:
    one = CalibrationSums.from_top([0.5], [1])
    with pytest.raises(ValueError, match=r"answers has shape \(2,\); expected \(3000,\)"):
        weighted_ece(one, [1, 2])
    for bad in (-1.0, 0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"answers holds {bad}; allowed are whole numbers"):
            weighted_ece(one, np.where(np.arange(CELLS) == 3, bad, 1.0))
    with pytest.raises(ValueError, match=r"confidences 0.4997 to 0.5000 have 1 labels but 0 answers"):
        weighted_ece(one, np.zeros(CELLS))
    with pytest.raises(ValueError, match="no labelled rows"):
        weighted_ece(CalibrationSums.zero(), np.ones(CELLS))
    with pytest.raises(ValueError, match="bins is 7"):
        weighted_ece(one, np.ones(CELLS), bins=7)
    with pytest.raises(ValueError, match="level is 1"):
        weighted_ece(one, np.ones(CELLS), level=1)
    for p in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=f"probability holds {p}; allowed is"):
            inverse_probability_ece([0.5], [1], [p])
    with pytest.raises(ValueError, match="one for each label"):
        inverse_probability_ece([0.5], [1], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"confidence holds 1\.5"):
        inverse_probability_ece([1.5], [1], [0.5])
