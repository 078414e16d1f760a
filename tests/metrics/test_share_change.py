"""ShareChange against a slow twin that multiplies chances value by value, and its false alarms and power."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from trueodds.metrics.alarms.share_change import ShareChange, moment


def kt(values: list[bool]) -> float:
    """The Jeffreys mixture's chance of the values, one prediction at a time (Krichevsky and Trofimov)."""
    chance, ones = 1.0, 0
    for n, value in enumerate(values):
        p = (ones + 0.5) / (n + 1)
        chance *= p if value else 1 - p
        ones += value
    return chance


def twin(values: list[bool]) -> float:
    """The evidence of all values at once."""
    n, k = len(values), sum(values)
    total, left = 0.0, 1.0
    for j in range(50):
        m, weight = moment(j), 1 / ((j + 1) * (j + 2))
        if m < n:
            total += weight * kt(values[:m]) * kt(values[m:])
            left -= weight
    return (total + left * kt(values)) / max((p / 1000) ** k * (1 - p / 1000) ** (n - k) for p in range(1001))


@pytest.mark.parametrize(("before", "after"), [(0.03, 0.2), (0.5, 0.5), (0.9, 0.2), (0.0, 0.0), (0.0, 1.0)])
def test_the_evidence_is_that_of_the_twin_however_the_stream_is_cut(before: float, after: float) -> None:
    rng = np.random.default_rng(3)
    values = [*(rng.random(100) < before).tolist(), *(rng.random(80) < after).tolist()]
    test, at = ShareChange.start(), 0
    assert test.log_e == 0 and test.shares is None
    for size in (1, 15, 0, 1, 40, 3, 120):
        test, at = test.advance(values[at : at + size]), at + size
        assert test == ShareChange.start().advance(values[:at])
        assert test.log_e == pytest.approx(math.log(twin(values[:at])), abs=2e-3), "the twin's shares are in steps"
        assert ShareChange.from_json(json.dumps(test.to_json())) == test
    assert test.values == 180 and test.ones == sum(values)


def test_a_law_of_all_streams_has_the_sum_one() -> None:
    """The numerator sums to 1 over all streams of 18 values, past the first moment of a change."""
    n, total = 18, 0.0
    for first in range(17):  # ones among the first 16 values
        for rest in range(3):
            streams = math.comb(16, first) * math.comb(2, rest)
            k = first + rest
            test = ShareChange(n, k, (first,))
            best = sum(c * math.log(c / n) for c in (k, n - k) if c)
            total += streams * math.exp(test.log_e + best)
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("share", [0.002, 0.03, 0.5])
def test_a_constant_share_rarely_alarms_however_often_one_looks(share: float) -> None:
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(60):
        test = ShareChange.start()
        for _ in range(40):
            test = test.advance(rng.random(25) < share)
            if test.log_e >= math.log(20):
                alarms += 1
                break
    assert alarms <= 6  # P(more) < 1% at 5%


@pytest.mark.parametrize(("before", "after", "within"), [(0.03, 0.12, 900), (0.0, 0.05, 400), (0.2, 0.4, 500)])
def test_a_rise_is_found_and_a_fall_is_no_rise(before: float, after: float, within: int) -> None:
    rng, found = np.random.default_rng(1), 0
    for _ in range(20):
        test = ShareChange.start().advance(rng.random(1000) < before).advance(rng.random(within) < after)
        found += test.log_e >= math.log(20) and test.is_rise
    assert found >= 18
    fall = ShareChange.start().advance(rng.random(1000) < 0.3).advance(rng.random(1000) < 0.1)
    assert fall.log_e >= math.log(20) and not fall.is_rise


@pytest.mark.parametrize(
    "change",
    [
        {"form": "x"},
        {"ones": 30},
        {"ones": -1},
        {"ones_before": [1]},
        {"ones_before": [2, 1]},
        {"values": 1.5},
        {"x": 1},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    tree = ShareChange.start().advance([True] + [False] * 20).to_json()
    assert ShareChange.from_json(tree).ones == 1
    with pytest.raises(ValueError, match=r"state|counts|moments"):
        ShareChange.from_json({**tree, **change})
