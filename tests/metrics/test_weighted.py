"""Weighted ECE: labels chosen by confidence stand for all answers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sequential import Pool, pool
from pipeline.metrics import CELLS, CalibrationSums, ece, ece_interval, inverse_probability_ece, weighted, weighted_ece
from pipeline.metrics.bins import cell_of
from pipeline.metrics.honesty import EceInterval, interval_of
from pipeline.metrics.inversion import GapTerms
from tests import reference_sequential as twin

Array = npt.NDArray[np.float64]
some_rows = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=40)


def counts(confidence: npt.ArrayLike) -> Array:
    return np.bincount(cell_of(confidence), minlength=CELLS).astype(np.float64)


@settings(max_examples=20)
@given(some_rows)
def test_all_labelled_is_the_plain_interval(rows: list[twin.Row]) -> None:
    confidence, correct = [c for c, _ in rows], [a for _, a in rows]
    sums = CalibrationSums.from_top(confidence, correct)
    found, plain = weighted_ece(sums, counts(confidence)), ece_interval(sums)
    for name in ("ece", "estimate", "lower", "upper"):
        assert getattr(found.interval, name) == pytest.approx(getattr(plain, name), abs=3e-6)
    assert found.effective_n == pytest.approx(len(rows))
    assert (found.unlabelled, found.interval.level) == (0, 0.95)
    assert found.accuracy == pytest.approx(np.mean(correct))
    assert found.signed_gap == pytest.approx(np.mean(correct) - np.mean(confidence))


def test_two_strata_by_hand() -> None:
    """900 answers at .9 of which 10 are labelled (8 right), 100 at .6 of which 50 are (40 right)."""
    sums = CalibrationSums.from_top([0.9] * 10 + [0.6] * 50, [1] * 8 + [0] * 2 + [1] * 40 + [0] * 10)
    found = weighted_ece(sums, counts([0.9] * 900 + [0.6] * 100))
    assert found.interval.ece == pytest.approx(0.9 * 0.1 + 0.1 * 0.2)
    assert found.accuracy == pytest.approx(0.9 * 0.8 + 0.1 * 0.8)
    assert found.mean_confidence == pytest.approx(0.87)
    assert found.effective_n == pytest.approx(1 / (10 * 0.09**2 + 50 * 0.002**2))
    assert ece(sums) == pytest.approx((10 * 0.1 + 50 * 0.2) / 60)  # what the labels alone would say
    assert found.reading == "These labels say as much as 12 chosen at random would."


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1), st.floats(0.01, 1)), min_size=1, max_size=30))
def test_terms_equal_their_twin(data: list[tuple[float, int, float]]) -> None:
    captured: list[GapTerms] = []

    def kept(terms: GapTerms, observed: float, accuracy: float, level: float) -> EceInterval:
        captured.append(terms)
        return interval_of(terms, observed, accuracy, level)

    rows, probability = [(c, a) for c, a, _ in data], [p for _, _, p in data]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted, "interval_of", kept)
        found = inverse_probability_ece([c for c, _ in rows], [a for _, a in rows], probability)
    terms, expected = captured[0], twin.weighted_terms(rows, [1 / p for p in probability], 15)
    columns = (terms.gap_B, terms.weight_B, terms.variance_B, terms.skew_B, terms.square_B)
    np.testing.assert_allclose(np.transpose(columns), expected, atol=1e-12)
    assert found.interval.ece == pytest.approx(sum(abs(row[0]) for row in expected))
    assert found.effective_n == pytest.approx(1 / sum(row[4] for row in expected))


def test_known_probabilities_and_strata_agree() -> None:
    """Where a stratum's labels were all chosen with one probability n_k / N_k, both give the same weights."""
    rng = np.random.default_rng(0)
    answers = rng.uniform(0.5, 1, 4_000)
    stratum = np.ceil(answers * 120).astype(int)
    chosen = rng.random(4_000) < np.where(stratum % 2, 0.4, 0.1)
    correct = rng.random(4_000) < answers - 0.05
    share = np.bincount(stratum, chosen, 121)[stratum] / np.bincount(stratum, minlength=121)[stratum]
    one = weighted_ece(CalibrationSums.from_top(answers[chosen], correct[chosen]), counts(answers))
    other = inverse_probability_ece(answers[chosen], correct[chosen], share[chosen])
    assert one.unlabelled == 0
    assert one.interval.ece == pytest.approx(other.interval.ece, abs=1e-9)
    assert one.interval.upper == pytest.approx(other.interval.upper, abs=1e-4)  # c(1-c) from cells or from rows
    assert one.effective_n == pytest.approx(other.effective_n)


def test_strata_without_labels_are_spoken_for_by_their_neighbours() -> None:
    sums = CalibrationSums.from_top([0.61, 0.91], [1, 0])
    found = weighted_ece(sums, counts([0.61] * 2 + [0.65] + [0.85] + [0.91] * 4))
    assert found.unlabelled == pytest.approx(2 / 8)
    assert found.interval.ece == pytest.approx(3 / 8 * 0.39 + 5 / 8 * 0.91)  # .65 joins .61, .85 joins .91
    assert found.reading.endswith("25% of the answers have confidences of which no label is known.")


@pytest.fixture(scope="module")
def shape_a() -> Pool:
    return pool("A", 20_000)


def test_labels_chosen_by_confidence(shape_a: Pool) -> None:
    """The note's case: A at T = 1.25, true ECE .061, 5% of 100,000 answers labelled, more where confidence is low."""
    rng = np.random.default_rng(4)
    c, chance = shape_a.confidence_M, shape_a.chances["T = 1.25"]
    gap_B = np.bincount(np.ceil(c * 15).astype(int), chance - c)
    true = float(np.abs(gap_B).sum() / len(c))
    keep = np.maximum(1 - c, 0.02)
    keep *= 0.05 / keep.mean()
    runs, covered, plain_covered, estimates = 40, 0, 0, []
    for _ in range(runs):
        row = rng.integers(0, len(c), 100_000)
        chosen = row[rng.random(100_000) < keep[row]]
        sums = CalibrationSums.from_top(c[chosen], rng.random(len(chosen)) < chance[chosen])
        found = weighted_ece(sums, counts(c[row])).interval
        covered += found.lower <= true <= found.upper
        plain = ece_interval(sums)
        plain_covered += plain.lower <= true <= plain.upper
        estimates.append(found.estimate)
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
    with pytest.raises(ValueError, match=r"confidences 0.4917 to 0.5000 have 1 labels but 0 answers"):
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
