"""Intervals for mean scores, from their sums and sums of squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, stdtrit

from trueodds.errors import unknown
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.cells import COLUMNS
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.losses import SMALLEST_PROBABILITY, WORST_NLL
from trueodds.sums.sums import CalibrationSums

Score = Literal["nll", "brier"]
MOST: dict[Score, float] = {"nll": float("inf"), "brier": 2.0}
RARE = 20  # as in `trueodds.metrics.intervals.calibration_error`
MOST_CLASSES = 1e6  # no more than that can be told from a difference of sums


@dataclass(frozen=True)
class ScoreInterval:
    """A mean score of the rows and the limits of its expectation.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> interval = metrics.score_interval(probabilities, labels)
    >>> interval.lower <= interval.value <= interval.upper
    True
    """

    value: float
    lower: float
    upper: float
    level: float
    unseen: float | None = None
    """Cost of a wrong row at the surest confidence, where none as dear was seen and one alone would lift the mean above
    `upper`: the limits do not allow for it. None elsewhere."""


@dataclass(frozen=True)
class Parts:
    """Sums of a score over the right rows and over the wrong ones, what one more wrong row costs on average, and at
    the surest confidence of cells in which none was seen (0 where it is less than what errors have cost)."""

    right: float
    right_squared: float
    wrong: float
    wrong_squared: float
    dearest: float
    unseen: float


def score_interval(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, score: Score = "nll", level: float = 0.95
) -> ScoreInterval:
    """Interval for the expected NLL (nats) or Brier score: Student's mean +- t s / sqrt(n), cut at what scores can be.

    s^2 = (sum x^2 - n mean^2) / (n - 1). One row alone says nothing of its spread: all that is possible.

    Where wrong answers are worth fewer than 20 of equal cost, (sum l)^2 / sum l^2 < 20 with l their losses, Student's
    interval holds the truth in .03 to .9 of samples, for it knows nothing of the errors that were not drawn. There the
    wrong rows' share of the mean has Fay and Feuer's limits (1997), the gamma quantiles that are the exact ones of a
    Poisson count where every error costs the same:

        lower = v/y G(q; y^2/v),   upper = v'/y' G(1-q; y'^2/v')
        y = sum l,  v = sum l^2 - y^2/n,  y' = y + w,  v' = v + w^2,  q = (1 - level) / 2

    with w the dearest error: the mean over all rows of what each would lose if it were wrong, -log(1 - c) + log of the
    effective number of other classes (NLL; 1 + c^2 for Brier), or what errors have cost in one cell, if that is more.
    Student's limits of the right rows' share are added (Zou and Donner 2008): distances from the mean as the root of
    the sum of squares. Where right rows are rarer, and fewer than 20, the lower limit also leaves room for as many of
    them as the exact binomial limit of their share allows.

    Measured coverage at a nominal 95% (benchmarks/intervals/scores.py, 96 settings, 50 to 5,000 rows): at least 95%
    where fewer than 20 errors are to be expected, 93% elsewhere. Not promised where no error was seen and errors would
    prefer the surest answers, or classes that the model thinks least of: then one costs more than w. Nor where one row
    in thousands costs a hundred times the others. `unseen` says where a single such row would lie outside.

    Raises:
        ValueError: bad input, no rows, sums without the score, an unknown score, or a level outside (0, 1).

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.score_interval(probabilities, labels, score="brier").value, 4)
    0.25
    """
    if score not in MOST:
        raise unknown("score", score, MOST)
    check_level(level)
    sums = as_sums(predictions, labels_N, scores=True)
    n, total, squares = sums.n, sums.total(score), sums.total(f"{score}_squared")
    mean = total / n
    if n == 1:
        return ScoreInterval(mean, 0.0, MOST[score], level)
    t, right = float(stdtrit(n - 1, (1 + level) / 2)), sums.total("correct")
    parts = _parts(sums, score)
    if parts.wrong**2 < RARE * parts.wrong_squared or right == n:
        below, above = _rare_errors(parts, n, t, (1 - level) / 2)
    else:
        below = above = t * _spread(total, squares, n)
    lower, upper = mean - below / n, mean + above / n
    if right < min(RARE, n - right):
        _, most = binomial_interval([right], [n], level=level)
        lower = min(lower, (1 - float(most[0])) * parts.wrong / max(n - right, 1))
    upper = min(upper, MOST[score])
    unseen = parts.unseen if mean + parts.unseen / n > upper else None
    return ScoreInterval(mean, max(lower, 0.0), upper, level, unseen)


def _rare_errors(parts: Parts, n: int, t: float, q: float) -> tuple[float, float]:
    """Distances of the limits from the sum of the score."""
    of_right = t * _spread(parts.right, parts.right_squared, n)
    lost, variance = parts.wrong, max(parts.wrong_squared - parts.wrong**2 / n, 0.0)
    least = variance / lost * float(gammaincinv(lost**2 / variance, q)) if variance > 1e-12 * lost**2 else lost
    more, wider = lost + parts.dearest, variance + parts.dearest**2
    most = wider / more * float(gammaincinv(more**2 / wider, 1 - q)) if more else 0.0
    return float(np.hypot(of_right, lost - least)), float(np.hypot(of_right, most - lost))


def _spread(total: float, squares: float, n: int) -> float:
    """Standard deviation of a sum over n rows."""
    return float(np.sqrt(max(squares - total**2 / n, 0.0) * n / (n - 1)))


def _parts(sums: CalibrationSums, score: Score) -> Parts:
    """A right row's NLL is -log c, its Brier score (1-c)^2 (1 + 1/k), k the effective number of other classes.

    Of a cell: c is its mean confidence.
    """
    count, confidence, right = sums.cells[:3, occupied := np.flatnonzero(sums.cells[0])]
    row = COLUMNS.index(score)
    total, squares = sums.cells[row : row + 2, occupied]
    share = np.clip(confidence / count, SMALLEST_PROBABILITY, 1.0)
    rest, others = np.clip(1 - share, SMALLEST_PROBABILITY, 1.0), _other_classes(sums)
    if score == "nll":
        of_right, if_wrong = -np.log(share), np.minimum(np.log(others) - np.log(rest), WORST_NLL)
    else:
        of_right, if_wrong = rest**2 * (1 + 1 / others), 1 + share**2
    wrong = count - right
    of_wrong, squares_of_wrong = (
        np.where(wrong > 0, np.maximum(v, 0.0), 0.0) for v in (total - right * of_right, squares - right * of_right**2)
    )
    seen = np.sqrt(np.divide(squares_of_wrong, wrong, out=np.zeros_like(wrong), where=wrong > 0)).max()
    surest = float(if_wrong[wrong <= 0].max(initial=0.0))
    sure, sure_squared = (
        np.where(wrong > 0, expected, v) for v, expected in ((total, right * of_right), (squares, right * of_right**2))
    )
    return Parts(
        right=float(sure.sum()),
        right_squared=float(sure_squared.sum()),
        wrong=float(of_wrong.sum()),
        wrong_squared=float(squares_of_wrong.sum()),
        dearest=max(float(if_wrong @ count) / sums.n, float(seen)),
        unseen=surest if surest > seen else 0.0,
    )


def _other_classes(sums: CalibrationSums) -> float:
    """Effective number of classes that share 1 - c: (1-c)^2 / sum of their squares, over the cells without errors.

    There NLL and Brier give both: nll^2 is (log c)^2 and brier (1-c)^2 + sum of squares. 1 where they are unknown.
    """
    count, confidence, right, _, nll_squared, brier, _ = sums.cells
    known = (count > 0) & (right == count) & (confidence > 0) & (confidence < count)
    share: Array = confidence[known] / count[known]
    rest = float((nll_squared[known] * ((1 - share) / np.log(share)) ** 2).sum())
    squares = float(brier[known].sum()) - rest
    return min(max(rest / squares, 1.0), MOST_CLASSES) if squares > 0 and np.isfinite(rest) else 1.0
