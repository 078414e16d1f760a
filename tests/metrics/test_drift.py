"""Drift of the confidences: its statistic, its p-value, and that many answers alone raise no warning."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import kolmogorov

from benchmarks.streams import pool
from trueodds.metrics import confidence_drift
from trueodds.sums.bins import bin_of


def counts(confidence: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    count_B: list[int] = np.bincount(bin_of(confidence, 60), minlength=60).tolist()
    return count_B


def test_distance_by_hand() -> None:
    drift = confidence_drift([10, 20, 10], [5, 10, 25])
    assert drift.distance == pytest.approx(30 / 40 - 15 / 40)
    assert drift.p_value < 0.01
    assert confidence_drift([10, 20, 10], [1, 2, 1]).p_value == 1


def test_p_value_is_kolmogorovs_without_ties() -> None:
    """1,000 cells hold two rows each at most: the textbook's law applies."""
    rng = np.random.default_rng(0)
    for size in (0.03, 0.05, 0.07):
        one, other = rng.random(4000), np.clip(rng.random(4000) + size, 0, 0.9999)
        drift = confidence_drift(*(np.bincount((x * 1000).astype(int), minlength=1000) for x in (one, other)))
        expected = kolmogorov(drift.distance * np.sqrt(2000))
        assert drift.p_value == pytest.approx(expected, abs=4 * np.sqrt(expected / 2000) + 1e-3)


def test_size_where_half_of_the_answers_share_a_cell() -> None:
    """Of 300 pairs of samples of shape B 5% are below .05; 27 would be 3 standard errors above."""
    rng, c = np.random.default_rng(0), pool("B", 20_000).confidence_M
    below = [
        confidence_drift(counts(rng.choice(c, 2000)), counts(rng.choice(c, 500))).p_value < 0.05 for _ in range(300)
    ]
    assert 4 <= sum(below) <= 27


def test_a_warning_needs_a_size_that_matters() -> None:
    small = confidence_drift([510_000, 490_000], [500_000, 500_000])
    assert small.p_value < 0.01 and not small.warning
    assert confidence_drift([5600, 4400], [5000, 5000]).warning
    assert not confidence_drift([6, 4], [5, 5]).warning


def test_input_is_checked() -> None:
    for counts_K, reference_K, words in [
        ([1.0], [1.0, 2.0], "one length"),
        ([0.0], [1.0], "no rows"),
        ([1.5], [1.0], "whole numbers"),
    ]:
        with pytest.raises(ValueError, match=words):
            confidence_drift(counts_K, reference_K)
