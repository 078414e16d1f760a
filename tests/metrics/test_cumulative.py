"""The p-value of the KS error: exact where errors are rare, a Brownian motion's elsewhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.streams import pool
from trueodds.metrics import CalibrationSums, ks_error, ks_test
from trueodds.metrics.significance.kolmogorov_smirnov import _brownian

rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0]), st.booleans()), min_size=1, max_size=9
)


@settings(max_examples=60)
@given(rows)
def test_against_every_outcome(data: list[tuple[float, bool]]) -> None:
    """All 2^n labels, each with its chance; the walk is looked at where a confidence ends."""
    data = sorted(data)
    confidence = [c for c, _ in data]

    def largest(labels: tuple[bool, ...] | list[bool]) -> float:
        total, best = 0.0, 0.0
        for k, (c, a) in enumerate(zip(confidence, labels, strict=True)):
            total += a - c
            if k + 1 == len(data) or confidence[k + 1] != c:
                best = max(best, abs(total))
        return best

    seen, p_value = largest([a for _, a in data]), 0.0
    for labels in itertools.product([False, True], repeat=len(data)):
        chance = math.prod(c if a else 1 - c for c, a in zip(confidence, labels, strict=True))
        p_value += chance * (largest(labels) >= seen - 1e-9)
    result = ks_test(CalibrationSums.from_top(confidence, [a for _, a in data]))
    assert result.ks == pytest.approx(seen / len(data), abs=1e-12)
    assert result.p_value == pytest.approx(p_value if seen > 1e-9 else 1.0, abs=1e-9)


def test_brownian_motion() -> None:
    """P(max |W| < 1) = .3708 (Feller); far out it is four normal tails."""
    assert 1 - _brownian(1.0) == pytest.approx(0.37077, abs=1e-5)
    assert _brownian(2.2414) == pytest.approx(0.05, abs=1e-4)
    assert _brownian(5.0) == pytest.approx(2 * math.erfc(5 / math.sqrt(2)), rel=1e-9)
    assert _brownian(0.0) == _brownian(0.29) == 1.0


@pytest.mark.parametrize(("shape", "n"), [("A", 500), ("A", 20_000), ("B", 1_000), ("C", 5_000)])
def test_size_and_power(shape: str, n: int) -> None:
    """5% of calibrated samples are below .05 (23 of 200: 4 standard errors), and every sample at T = 2.5."""
    drawn, rng, below, seen = pool(shape, 20_000), np.random.default_rng([1, n]), 0, 0
    for k in range(200):
        row = rng.integers(0, 20_000, n)
        c = drawn.confidence_M[row]
        below += ks_test(CalibrationSums.from_top(c, rng.random(n) < c)).p_value < 0.05
        if k < 10:
            right = rng.random(n) < drawn.chances["T = 2.5"][row]
            seen += ks_test(CalibrationSums.from_top(c, right)).p_value < 1e-3
    assert 1 <= below <= 23
    assert seen == 10


def test_the_statistic_is_that_of_the_metric_and_the_words_fit() -> None:
    rng = np.random.default_rng(0)
    c = rng.uniform(0.5, 1, 2000)
    for shift, word in [(0.0, "no larger"), (0.2, "more than chance")]:
        sums = CalibrationSums.from_top(c, rng.random(2000) < c - shift)
        result = ks_test(sums)
        assert result.ks == pytest.approx(ks_error(sums), abs=1e-12)
        assert word in result.reading


def test_certain_answers() -> None:
    assert ks_test(CalibrationSums.from_top([1.0] * 50, [1] * 50)).p_value == 1
    assert ks_test(CalibrationSums.from_top([1.0] * 50, [1] * 49 + [0])).p_value == 0
    with pytest.raises(ValueError, match="no labelled rows"):
        ks_test(CalibrationSums.zero())
