"""The confidence sequence of a mean gain by its definition: one label and one stake at a time, limits by halving."""

from __future__ import annotations

import math

STAKES = [0.98 / 1.5**k for k in range(14)]
HARMONIC = sum(1 / k for k in range(1, 14))
SHARES = [0.4, *(0.6 / (k * HARMONIC) for k in range(1, 14))]


def log_wealth(gains: list[float], least: float, mean: float, weights: list[float] | None = None) -> float:
    """log of the mixture of bets that the mean of the expected gains is above `mean`."""
    size = len(gains) if weights is None else sum(weights)
    logs = []
    for share, portion in zip(STAKES, SHARES, strict=True):
        stake, log, total = share / -least, 0.0, 0.0
        for n, gain in enumerate(gains):
            if weights is not None:
                log += math.log(1 + stake * weights[n] * gain)
                continue
            centre = min(total / (10 + n), least + 0.98 / stake)
            log += math.log(1 + stake * (gain - centre)) + stake * centre
            total += gain
        logs.append(math.log(portion) + log - stake * size * mean)
    most = max(logs)
    return most + math.log(sum(math.exp(log - most) for log in logs))


def lower(gains: list[float], least: float, level: float = 0.95, weights: list[float] | None = None) -> float:
    """The mean up to which all are refuted."""
    low, high = least - 20 * -least, -2 * least + max(gains) * 2
    for _ in range(200):
        middle = (low + high) / 2
        refuted = log_wealth(gains, least, middle, weights) > math.log(2 / (1 - level))
        low, high = (middle, high) if refuted else (low, middle)
    return max(low, least)
