"""Calibration in the large: its exact interval, and how many positives settle it."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from trueodds import metrics
from trueodds.metrics import CalibrationSums, calibration_ratio, needed_positives
from trueodds.metrics.intervals.calibration_ratio import mean_limits


def sums(p_N: Any, positive_N: Any) -> CalibrationSums:
    return CalibrationSums.from_top(p_N, positive_N)


def poisson_binomial(p_N: list[float]) -> np.ndarray[Any, Any]:
    """P(sum = k) of unlike tosses, by all their outcomes."""
    chance_K = np.zeros(len(p_N) + 1)
    for outcome in product((0, 1), repeat=len(p_N)):
        chance_K[sum(outcome)] += math.prod(p if y else 1 - p for p, y in zip(p_N, outcome, strict=True))
    return chance_K


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_limits_cover_the_mean_of_unlike_tosses(level: float) -> None:
    """Exactly, over all outcomes: few tosses, certain ones and rare ones among them, where one positive decides."""
    rng = np.random.default_rng(0)
    cases = [rng.uniform(0, 1, 6) ** power for power in (0.2, 1, 5, 20) for _ in range(30)]
    cases += [np.array([x, *[0.0] * 5]) for x in (0.01, 0.024, 0.0252, 0.5, 0.9749, 0.99)]
    for p_N in [*cases, *(1 - p_N for p_N in cases)]:
        inside_K = [low <= p_N.sum() <= high for low, high in (mean_limits(k, 6, level) for k in range(7))]
        assert poisson_binomial(p_N.tolist())[inside_K].sum() >= level - 1e-12, p_N


def test_a_known_case_and_what_is_said_of_none() -> None:
    found = calibration_ratio(sums([0.02] * 1000, [True] * 5 + [False] * 995))
    low, high = stats.binomtest(5, 1000).proportion_ci(method="exact")
    assert found.expected == pytest.approx(20) and found.observed == 5
    assert found.lower == pytest.approx(0.02 / high) and found.upper == pytest.approx(0.02 / low)
    none = calibration_ratio(sums([0.01] * 300, [False] * 300))
    assert none.ratio == none.upper == math.inf and none.lower == pytest.approx(3 / (300 * (1 - 0.025 ** (1 / 300))))
    assert not none.is_within() and none.positives_to_come() == needed_positives()
    assert none.labels_to_come() == math.ceil(needed_positives() * 300 / none.expected)
    with pytest.raises(ValueError, match="ratio is 1"):
        needed_positives(1.0)


@pytest.mark.parametrize(("most", "needed"), [(1.2, 324), (1.5, 66), (1.1, 1165)])
def test_so_many_positives_settle_it_for_a_calibrated_model(most: float, needed: int) -> None:
    """The slow twin: every number of positives by scipy's exact Poisson limits."""

    def chance(mean: int) -> float:
        number_K = np.arange(0, 3 * mean + 30)
        upper_K, lower_K = stats.chi2.ppf(0.975, 2 * number_K + 2) / 2, stats.chi2.ppf(0.025, 2 * number_K) / 2
        inside_K = (mean / upper_K >= 1 / most) & (mean <= most * np.nan_to_num(lower_K))
        return float(stats.poisson.pmf(number_K, mean)[inside_K].sum())

    assert needed_positives(most) == pytest.approx(needed, abs=5)
    found = needed_positives(most)
    assert chance(found) >= 0.8 > chance(found - 1)


def test_green_at_a_wrong_ratio_in_at_most_5_percent() -> None:
    """A hundred tables of each prevalence whose p is 1.2 times too high, just what is put up with."""
    rng, green, tables = np.random.default_rng(0), 0, 0
    for prevalence in (0.001, 0.02, 0.3):
        p_RN = np.minimum(rng.gamma(0.5, 2 * 1.2 * prevalence, (100, 8000)), 1)
        positive_RN = rng.random(p_RN.shape) < p_RN / 1.2
        for p_N, positive_N in zip(p_RN, positive_RN, strict=True):
            green += calibration_ratio(sums(p_N, positive_N)).is_within()
            tables += 1
    assert green <= stats.binom.ppf(0.999, tables, 0.025)


def test_how_many_more_depends_on_what_was_seen() -> None:
    rate = np.full(100_000, 0.01)

    def of(positives: int) -> metrics.CalibrationRatio:
        return calibration_ratio(sums(rate, np.arange(100_000) < positives))

    assert of(1000).positives_to_come() == 0 and of(1000).labels_to_come() == 0
    assert of(400).positives_to_come() is None and of(400).labels_to_come() is None
    near = of(870)
    assert near.ratio == pytest.approx(1.149, abs=1e-3) and not near.is_within() and near.upper > 1.2
    more = near.positives_to_come()
    assert more is not None and more > 1000, "nearer the limit it takes more than for a ratio of 1"
