"""Student's interval of NLL and Brier, from sums and squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipeline.metrics import CalibrationSums, score_interval


def sums_of(nll: Any, brier: Any) -> CalibrationSums:
    return CalibrationSums.from_top(np.full(len(nll), 0.7), np.ones(len(nll)), nll_N=nll, brier_N=brier)


def test_by_hand() -> None:
    """1, 2, 3, 4: mean 2.5, s^2 = 5/3, t(3, .975) = 3.18245."""
    found = score_interval(sums_of([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4]))
    half = 3.182446305 * math.sqrt(5 / 3 / 4)
    assert (found.value, found.lower, found.upper) == pytest.approx((2.5, 2.5 - half, 2.5 + half))
    brier = score_interval(sums_of([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4]), score="brier", level=0.5)
    half = 0.764892328 * math.sqrt(5 / 300 / 4)
    assert (brier.value, brier.lower, brier.upper) == pytest.approx((0.25, 0.25 - half, 0.25 + half))


def test_limits_stay_where_scores_can_be() -> None:
    assert score_interval(sums_of([0.0, 0.1], [2.0, 1.0]), score="brier").upper == 2
    assert score_interval(sums_of([0.0, 0.1], [2.0, 1.0])).lower == 0
    one = score_interval(sums_of([0.3], [0.2]))
    assert (one.value, one.lower, one.upper) == (0.3, 0, math.inf)
    same = score_interval(sums_of([0.3] * 9, [0.2] * 9))
    assert same.upper - same.lower < 1e-6


def test_coverage() -> None:
    """Exponential losses, 1,000 rows: 95% of 400 intervals hold the mean; fewer than 362 has probability .1%."""
    rng = np.random.default_rng(0)
    found = [score_interval(sums_of(rng.exponential(0.5, 1000), np.zeros(1000))) for _ in range(400)]
    assert 362 <= sum(one.lower <= 0.5 <= one.upper for one in found) <= 396


def test_input_is_checked() -> None:
    with pytest.raises(ValueError, match="unknown score 'mse'; allowed: nll, brier"):
        score_interval(sums_of([1.0], [1.0]), score="mse")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hold no nll"):
        score_interval(CalibrationSums.from_top([0.5, 0.5], [1, 1]))
    with pytest.raises(ValueError, match="level is 1"):
        score_interval(sums_of([1.0], [1.0]), level=1)
