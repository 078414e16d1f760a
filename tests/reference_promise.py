"""Slow, obvious twins of the evidence about a promised error rate: plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

ODDS = (1.25, 1.5, 2, 3, 5, 10, 30)
LOG_RATIOS = [0.005 * math.sqrt(2) ** k for k in range(21)]


def claims(risk: float) -> list[float]:
    """The error probability that each bet claims."""
    odds = [ratio * risk / (1 - risk) for ratio in ODDS]
    return [o / (1 + o) for o in odds]


def e_value(wrong: Sequence[bool], risk: float) -> float:
    """The capital after all labels: one pot for each bet and each label at which it was laid, and what was not laid."""
    n = len(wrong)
    total = 1 / (1 + math.log2(n + 1))
    for first in range(1, n + 1):
        laid = 1 / (1 + math.log2(first)) - 1 / (1 + math.log2(first + 1))
        for q in claims(risk):
            pot = laid / len(ODDS)
            for is_wrong in wrong[first - 1 :]:
                pot *= q / risk if is_wrong else (1 - q) / (1 - risk)
            total += pot
    return total


def wealth(wrong: int, labels: int, m: float, sign: int) -> float:
    """The mean over the bets on one side that the mean error probability is not m."""
    total = 0.0
    for log_ratio in LOG_RATIOS:
        ratio = math.exp(sign * log_ratio)
        log_paid = wrong * math.log(ratio) - labels * math.log(1 + m * (ratio - 1))
        total += math.exp(min(log_paid, 100))  # what is refuted by far need not be exact
    return total / len(LOG_RATIOS)


def limits(wrong: int, labels: int, level: float, steps: int = 20_000) -> tuple[float, float]:
    """The smallest and the largest m of a grid that neither side refutes."""
    threshold = 2 / (1 - level)
    kept = [
        m
        for m in (k / steps for k in range(1, steps))
        if wealth(wrong, labels, m, 1) < threshold and wealth(wrong, labels, m, -1) < threshold
    ]
    return kept[0], kept[-1]
