"""Intervals for mean scores, from their sums and sums of squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from pipeline.config import unknown
from pipeline.metrics.inputs import check_level
from pipeline.metrics.scores import Given, as_sums

Score = Literal["nll", "brier"]
MOST: dict[Score, float] = {"nll": float("inf"), "brier": 2.0}


@dataclass(frozen=True)
class ScoreInterval:
    """A mean score of the rows and the limits of its expectation."""

    value: float
    lower: float
    upper: float
    level: float


def score_interval(
    given: Given, labels_N: npt.ArrayLike | None = None, *, score: Score = "nll", level: float = 0.95
) -> ScoreInterval:
    """Student's interval mean +- t s / sqrt(n) of NLL (nats) or Brier, cut at what the score can be.

    s^2 = (sum x^2 - n mean^2) / (n - 1). One row alone says nothing of its spread: all that is possible. The NLL of
    rare, very sure errors is so skewed that a few hundred rows may cover less than they promise.

    Raises:
        ValueError: bad input, no rows, sums without the score, an unknown score, or a level outside (0, 1).
    """
    if score not in MOST:
        raise unknown("score", score, MOST)
    check_level(level)
    sums = as_sums(given, labels_N, scores=True)
    n, total, squares = sums.n, sums.total(score), sums.total(f"{score}_squared")
    mean = total / n
    if n == 1:
        return ScoreInterval(mean, 0.0, MOST[score], level)
    variance = max(squares - n * mean**2, 0.0) / (n - 1)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * float(np.sqrt(variance / n))
    return ScoreInterval(mean, max(mean - half, 0.0), min(mean + half, MOST[score]), level)
