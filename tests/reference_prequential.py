"""The slow, obvious twin of the prequential comparison: every block's fits from scratch, over all labels before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

Row = tuple[float, int]  # confidence, right or wrong

HALF_LIVES = (math.inf, 5000.0, 500.0)
PRIOR = (0.5, 0.2, 0.2, 0.1)
SHARE = 0.002
SERVED = 0.1
LIMIT = 1e-6


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def odds(confidence: float) -> float:
    clipped = min(max(confidence, LIMIT), 1 - LIMIT)
    return math.log(clipped / (1 - clipped))


def middle(confidence: float) -> float:
    """Log odds of the middle of the confidence's group."""
    group = min(max(math.floor((odds(confidence) + 4) / 0.32), 0), 40)
    return -4 + 0.32 * (group + 0.5)


def fitted(blocks: Sequence[Sequence[Row]], half_life: float) -> tuple[float, float]:
    """(a, b) with the least penalised log loss over some blocks, of which older ones count less."""
    later = [sum(len(b) for b in blocks[j + 1 :]) for j in range(len(blocks))]
    rows = [
        (middle(c), a, 0.5 ** (age / half_life)) for block, age in zip(blocks, later, strict=True) for c, a in block
    ]

    def loss(ab: Any) -> float:
        total = 5.0 * ((ab[0] - 1) ** 2 + ab[1] ** 2)
        for x, a, weight in rows:
            z = ab[0] * x + ab[1]
            total += weight * math.log1p(math.exp(-z if a else z))
        return float(total)

    precise: Any = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 2000}
    minimum = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead", options=precise)
    return float(minimum.x[0]), float(minimum.x[1])


def compare(blocks: Sequence[Sequence[Row]], refit: int = 5) -> tuple[float, float]:
    """log E, and the summed loss of the served confidences."""
    shares, e, served = list(PRIOR), 1.0, 0.0
    for j, block in enumerate(blocks):
        known = j // refit * refit
        likelihood = []
        for half_life in (None, *HALF_LIVES):
            a, b = (1.0, 0.0) if half_life is None or not known else fitted(blocks[:known], half_life)
            chances = [min(max(sigmoid(a * odds(c) + b), LIMIT), 1 - LIMIT) for c, _ in block]
            likelihood.append(math.prod(q if right else 1 - q for q, (_, right) in zip(chances, block, strict=True)))
        paid = [share * one / likelihood[0] for share, one in zip(shares, likelihood, strict=True)]
        e, served = e * sum(paid), served - math.log(likelihood[0])
        shares = [(1 - SHARE) * x / sum(paid) + SHARE * prior for x, prior in zip(paid, PRIOR, strict=True)]
        shares = [(1 - SERVED) * share + (SERVED if k == 0 else 0) for k, share in enumerate(shares)]
    return math.log(e), served


def log_evidence(gains: Sequence[float], served_shares: Sequence[float]) -> float:
    """That the mean gain of the blocks is above 0: stakes are shares of the largest for a loss of log 10 nats."""
    logs = []
    for k in range(14):
        stake, log = 0.98 / 1.5**k / math.log(10), 0.0
        for j, (gain, share) in enumerate(zip(gains, served_shares, strict=True)):
            centre = min(sum(gains[:j]) / (10 + j), math.log(share) + 0.98 / stake)
            log += math.log(1 + stake * (gain - centre)) + stake * centre
        logs.append(log + math.log(0.4 if k == 0 else 0.6 / (k * sum(1 / n for n in range(1, 14)))))
    return math.log(sum(math.exp(log) for log in logs))


def numeric_gradient(loss: Callable[[Any], float], at: Any, step: float = 1e-5) -> list[float]:
    gradient = []
    for k in range(len(at)):
        move = np.zeros(len(at))
        move[k] = step
        gradient.append((loss(at + move) - loss(at - move)) / (2 * step))
    return gradient
