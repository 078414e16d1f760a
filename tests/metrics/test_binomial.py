"""The mean deviation of a count against sums over its whole distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueodds.metrics.intervals.binomial import mean_deviation


def exact(chances: list[float]) -> float:
    """E|X - mean| over all 2^n outcomes of unlike tosses."""
    total, mean = 0.0, sum(chances)
    for outcome in itertools.product((0, 1), repeat=len(chances)):
        weight = math.prod(p if hit else 1 - p for p, hit in zip(chances, outcome, strict=True))
        total += weight * abs(sum(outcome) - mean)
    return total


def approximation(chances: list[float]) -> float:
    p = np.array(chances)
    return float(mean_deviation(np.array([p.sum()]), np.array([len(p)]), np.array([(p * (1 - p)).sum()]))[0])


@pytest.mark.parametrize(("chance", "count"), [(0.5, 1), (0.5, 2), (0.1, 7), (0.93, 9), (1e-6, 10)])
def test_like_tosses_are_exact(chance: float, count: int) -> None:
    assert approximation([chance] * count) == pytest.approx(exact([chance] * count), rel=1e-6)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9))
def test_unlike_tosses_are_close(chances: list[float]) -> None:
    """Within a tenth of a toss at the worst, and never above the standard deviation."""
    deviation = math.sqrt(sum(p * (1 - p) for p in chances))
    assert approximation(chances) == pytest.approx(exact(chances), abs=0.1)
    assert 0 <= approximation(chances) <= deviation * (1 + 1e-6) + 1e-9


def test_two_coins_by_hand() -> None:
    """0, 1 or 2 heads with chances 1/4, 1/2, 1/4: E|X - 1| = 1/2. Many: the normal's sqrt(2 V / pi)."""
    assert approximation([0.5, 0.5]) == pytest.approx(0.5)
    many = mean_deviation(np.array([3e5]), np.array([1e6]), np.array([2.1e5]))
    assert many[0] == pytest.approx(math.sqrt(2 * 2.1e5 / math.pi), rel=1e-5)


def test_certain_and_empty_counts_do_not_deviate() -> None:
    assert (mean_deviation(np.array([0.0, 5.0, 0.0]), np.array([0.0, 5.0, 5.0]), np.zeros(3)) == 0).all()
