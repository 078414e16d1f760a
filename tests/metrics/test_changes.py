"""Since when: the split is that of a plain search, the one of a real change, and hardly ever one of chance."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from trueodds.metrics.changes import gap_change


def twin(labels: list[int], right: list[int], confidence: list[float]) -> tuple[int, float]:
    """The split and its p-value, by a loop over all splits and over the periods of each side."""
    n, p = sum(labels), (sum(right) + 1) / (sum(labels) + 2)
    sizes: dict[int, float] = {}
    for k in range(1, len(labels)):
        if not labels[k] or not sum(labels[:k]):
            continue
        before, after = ((sum(v[:k]), sum(v[k:])) for v in (labels, right)), sum(labels[k:])
        (n_before, n_after), (right_before, right_after) = before
        claimed = [m * c for m, c in zip(labels, confidence, strict=True)]
        difference = (right_after - sum(claimed[k:])) / n_after - (right_before - sum(claimed[:k])) / n_before
        sizes[k] = abs(difference) / math.sqrt(p * (1 - p) * (1 / n_before + 1 / n_after))
        assert after + n_before == n
    best = max(sizes, key=sizes.__getitem__)
    return best, min(1.0, len(sizes) * 2 * (1 - NormalDist().cdf(sizes[best])))


def drawn(rng: Any, periods: int, off: float = 0.0, change: int = 0) -> tuple[Any, Any, Any]:
    labels_T = rng.integers(0, 60, periods)
    labels_T[0] += 1
    confidence_T = rng.uniform(0.6, 0.9, periods)
    truth_T = confidence_T - off * (np.arange(periods) >= change)
    right_T = rng.binomial(labels_T, truth_T)
    return labels_T, right_T / np.maximum(labels_T, 1), confidence_T


def test_it_is_that_of_a_plain_search() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        labels_T, accuracy_T, confidence_T = drawn(rng, 12, off=0.1, change=6)
        change = gap_change(labels_T, accuracy_T, confidence_T)
        right = np.rint(labels_T * accuracy_T).astype(int).tolist()
        assert change is not None
        assert (change.first, change.p_value) == pytest.approx(twin(labels_T.tolist(), right, confidence_T.tolist()))


def test_by_hand() -> None:
    """Two periods have one split; z = (.4 - 0) / sqrt(p (1 - p) 2 / 10) with p = 15 / 22."""
    change = gap_change([10, 0, 10], [0.5, 0.0, 0.9], [0.5, 0.0, 0.5])
    assert change is not None and (change.first, change.labels_before, change.labels_after) == (2, 10, 10)
    assert (change.before, change.after) == pytest.approx((0, 0.4))
    z = 0.4 / math.sqrt(15 / 22 * 7 / 22 * 0.2)
    assert change.p_value == pytest.approx(2 * (1 - NormalDist().cdf(z)))
    assert gap_change([0, 30], [0, 1], [0, 1]) is None and gap_change([], [], []) is None
    with pytest.raises(ValueError, match="2 periods, 1 accuracies"):
        gap_change([1, 1], [1], [1, 1])


def test_a_change_is_dated_and_chance_is_not() -> None:
    rng = np.random.default_rng(1)
    dated = [gap_change(*drawn(rng, 30, off=0.3, change=18)) for _ in range(50)]
    assert all(change and change.shown for change in dated)
    assert sum(abs(change.first - 18) <= 1 for change in dated if change) >= 40
    chance = [gap_change(*drawn(rng, 30)) for _ in range(200)]
    assert sum(change.shown for change in chance if change) <= 3
