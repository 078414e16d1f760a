"""Since when: the split is that of a plain search, those of real changes, and hardly ever one of chance."""

from __future__ import annotations

import math
from dataclasses import astuple
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from trueodds.metrics.changes import gap_change, gap_segments


def twin(labels: list[int], right: list[int], claimed: list[float]) -> tuple[int, float]:
    """The split and its p-value, by a loop over all splits and over the periods of each side."""
    p = (sum(right) + 1) / (sum(labels) + 2)
    sizes: dict[int, float] = {}
    for k in range(1, len(labels)):
        n_before, n_after = sum(labels[:k]), sum(labels[k:])
        if not labels[k] or not n_before:
            continue
        before, after = (sum(right[:k]) - sum(claimed[:k])) / n_before, (sum(right[k:]) - sum(claimed[k:])) / n_after
        sizes[k] = abs(after - before) / math.sqrt(p * (1 - p) * (1 / n_before + 1 / n_after))
    best = max(sizes, key=sizes.__getitem__)
    return best, min(1.0, len(sizes) * 2 * (1 - NormalDist().cdf(sizes[best])))


def drawn(rng: Any, periods: int, off: float = 0.0, begin: int = 0, end: int = 99) -> tuple[Any, Any, Any]:
    """Labels, accuracies and confidences; the periods from `begin` before `end` are right less often by `off`."""
    labels_T = rng.integers(0, 60, periods)
    labels_T[0] += 1
    confidence_T = rng.uniform(0.6, 0.9, periods)
    t_T = np.arange(periods)
    right_T = rng.binomial(labels_T, confidence_T - off * ((t_T >= begin) & (t_T < end)))
    return labels_T, right_T / np.maximum(labels_T, 1), confidence_T


def test_a_split_is_that_of_a_plain_search() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        labels_T, accuracy_T, confidence_T = drawn(rng, 12, off=0.1, begin=6)
        right_T, claimed_T = labels_T * accuracy_T, labels_T * confidence_T
        change = gap_change(labels_T, right_T, claimed_T)
        assert change is not None
        expected = twin(labels_T.tolist(), np.rint(right_T).astype(int).tolist(), claimed_T.tolist())
        assert (change.first, change.p_value) == pytest.approx(expected)


def test_by_hand() -> None:
    """Two periods with labels have one split; z = (.4 - 0) / sqrt(p (1 - p) 2 / 10) with p = 15 / 22."""
    change = gap_change(*(np.array(v, float) for v in ([10, 0, 10], [5, 0, 9], [5, 0, 5])))
    z = 0.4 / math.sqrt(15 / 22 * 7 / 22 * 0.2)
    assert change is not None and change.first == 2
    assert change.p_value == pytest.approx(2 * (1 - NormalDist().cdf(z)))
    assert gap_change(*(np.array(v, float) for v in ([0, 30], [0, 30], [0, 30]))) is None
    (one,) = gap_segments([30, 0], [0.9, math.nan], [0.8, math.nan])
    assert astuple(one) == pytest.approx((0, 30, 0.1))
    with pytest.raises(ValueError, match="2 periods, 1 accuracies"):
        gap_segments([1, 1], [1], [1, 1])


def test_changes_are_dated_and_chance_is_not() -> None:
    rng = np.random.default_rng(1)
    once = [gap_segments(*drawn(rng, 30, off=0.3, begin=18)) for _ in range(50)]
    assert sum(len(s) == 2 and abs(s[1].first - 18) <= 1 for s in once) >= 40
    passed = [gap_segments(*drawn(rng, 40, off=0.3, begin=12, end=28)) for _ in range(50)]
    ends = [[s.first for s in segments] for segments in passed]
    assert sum(len(e) == 3 and abs(e[1] - 12) <= 1 and abs(e[2] - 28) <= 1 for e in ends) >= 35
    assert sum(len(gap_segments(*drawn(rng, 30))) > 1 for _ in range(200)) <= 3
