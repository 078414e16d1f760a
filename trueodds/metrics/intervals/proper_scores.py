"""Confidence intervals for mean proper scores, from their sums and sums of squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.errors import unknown
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.cells import COLUMNS
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.losses import SMALLEST_PROBABILITY, WORST_NLL
from trueodds.sums.rounding import Given
from trueodds.sums.sums import CalibrationSums

Score = Literal["nll", "brier"]
MOST: dict[Score, float] = {"nll": float("inf"), "brier": 2.0}
RARE = 20  # as in `trueodds.metrics.intervals.calibration_error`
MOST_CLASSES = 1e6  # a difference of sums cannot resolve more


@dataclass(frozen=True)
class ScoreInterval:
    """A mean score of the rows, and confidence limits of its expectation.

    Examples:
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
    """Cost of a wrong row at the highest confidence, or None.

    It is given if no row so costly was seen and a single one would lift the mean above `upper`.

    The limits do not allow for such a row. None otherwise.
    """


@dataclass(frozen=True)
class Parts:
    """Sums of a score over the right rows and over the wrong rows, and the costs of one more wrong row."""

    right: float
    right_squares: float
    wrong: float
    wrong_squares: float
    dearest: float
    unseen: float


def score_interval(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    score: Score = "nll",
    level: float = 0.95,
    classes: Sequence[object] | None = None,
    resolution: Given = None,
) -> ScoreInterval:
    """Compute a confidence interval for the expected NLL (nats) or Brier score.

    In general it is Student's mean +- t s / sqrt(n), cut to the possible range of scores, with
    s^2 = (sum x^2 - n mean^2) / (n - 1). A single row has no spread, so its interval is the whole range.

    Rare errors need more care. Let l be the losses of the wrong answers, and (sum l)^2 / sum l^2 their effective
    number. If it is below 20, Student's interval contains the truth in only .03 to .9 of samples, because it ignores
    the errors that were not drawn. There the wrong rows' share of the mean has the limits of Fay and Feuer. These are
    gamma quantiles, exact for a Poisson count if every error costs the same:

        lower = v/y G(q; y^2/v),   upper = v'/y' G(1-q; y'^2/v')
        y = sum l,  v = sum l^2 - y^2/n,  y' = y + w,  v' = v + w^2,  q = (1 - level) / 2

    w is the largest cost of one more error. It is the mean, over all rows, of each row's loss if it were wrong. For the
    NLL that loss is -log(1 - c) + log of the effective number of other classes; for Brier it is 1 + c^2. If errors in
    one cell cost more than this mean, w is their cost. The limits of the wrong rows' share and Student's limits of the
    right rows' share are combined: the squared distances from the means add up (Zou and Donner 2008). If right rows are
    rarer, and fewer than 20, the lower limit also allows for as many right rows as the exact binomial limit of their
    share permits.

    Measured coverage at a nominal 95% (benchmarks/intervals/scores.py, 96 settings, 50 to 5,000 rows): at least 95% if
    fewer than 20 errors are expected, 93% otherwise. The coverage is not guaranteed in two cases. In the first, no
    error was seen, and errors prefer the highest confidences or the classes that the model finds least likely; then one
    costs more than w. In the second, one row in thousands costs a hundred times as much as the others.
    `ScoreInterval.unseen` then has the cost of such a row, if a single one would lift the mean above `upper`.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        score: "nll" or "brier".
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].
        resolution: Step of rounded probabilities, as in `nll`. The limits then are those of the estimate: they allow
            for the choice of the rows and not for the rounding.

    Returns:
        The mean score and its limits.

    Raises:
        ValueError: The input is invalid, there are no rows, the sums lack the score, the score is unknown, or `level`
            is outside (0, 1).

    References:
        Fay and Feuer 1997, Confidence intervals for directly standardized rates. Zou and Donner 2008, Construction of
        confidence limits about effect measures.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.score_interval(probabilities, labels, score="brier").value, 4)
        0.25
    """
    if score not in MOST:
        raise unknown("score", score, MOST)
    check_level(level)
    sums = as_sums(predictions, labels_N, classes, scores=True, resolution=resolution)
    n, total, squares = sums.n, sums.total(score), sums.total(f"{score}_squared")
    mean = total / n
    if n == 1:
        return ScoreInterval(mean, 0.0, MOST[score], level)
    t, right = float(scipy.special.stdtrit(n - 1, (1 + level) / 2)), sums.total("correct")
    parts = _parts(sums, score)
    if parts.wrong**2 < RARE * parts.wrong_squares or right == n:
        below, above = rare_errors(parts, n, t, (1 - level) / 2)
    else:
        below = above = t * spread(total, squares, n)
    lower, upper = mean - below / n, mean + above / n
    if right < min(RARE, n - right):
        _, most = binomial_interval([right], [n], level=level)
        lower = min(lower, (1 - float(most[0])) * parts.wrong / max(n - right, 1))
    upper = min(upper, MOST[score])
    unseen = parts.unseen if mean + parts.unseen / n > upper else None
    return ScoreInterval(mean, max(lower, 0.0), upper, level, unseen)


def rare_errors(parts: Parts, n: int, t: float, q: float) -> tuple[float, float]:
    """Return the distances of the limits from the sum of the score."""
    of_right = t * spread(parts.right, parts.right_squares, n)
    lost, variance = parts.wrong, max(parts.wrong_squares - parts.wrong**2 / n, 0.0)
    least = (
        variance / lost * float(scipy.special.gammaincinv(lost**2 / variance, q))
        if variance > 1e-12 * lost**2
        else lost
    )
    more, wider = lost + parts.dearest, variance + parts.dearest**2
    most = wider / more * float(scipy.special.gammaincinv(more**2 / wider, 1 - q)) if more else 0.0
    return float(np.hypot(of_right, lost - least)), float(np.hypot(of_right, most - lost))


def spread(total: float, squares: float, n: int) -> float:
    """Return the standard deviation of a sum over n rows."""
    return float(np.sqrt(max(squares - total**2 / n, 0.0) * n / (n - 1)))


def _parts(sums: CalibrationSums, score: Score) -> Parts:
    """Split the sums of a score into right and wrong rows.

    A right row's NLL is -log c, and its Brier score is (1-c)^2 (1 + 1/k), with the effective number k of other classes.
    c is the mean confidence of the cell.
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
        right_squares=float(sure_squared.sum()),
        wrong=float(of_wrong.sum()),
        wrong_squares=float(squares_of_wrong.sum()),
        dearest=max(float(if_wrong @ count) / sums.n, float(seen)),
        unseen=surest if surest > seen else 0.0,
    )


def _other_classes(sums: CalibrationSums) -> float:
    """Estimate the number of classes that share 1 - c: (1-c)^2 / sum of their squares, over the cells without errors.

    NLL and Brier give both parts there: nll^2 is (log c)^2, and brier is (1-c)^2 + sum of squares. The result is 1 if
    they are unknown.
    """
    count, confidence, right, _, nll_squared, brier, _ = sums.cells
    known = (count > 0) & (right == count) & (confidence > 0) & (confidence < count)
    share: Array = confidence[known] / count[known]
    rest = float((nll_squared[known] * ((1 - share) / np.log(share)) ** 2).sum())
    squares = float(brier[known].sum()) - rest
    return min(max(rest / squares, 1.0), MOST_CLASSES) if squares > 0 and np.isfinite(rest) else 1.0
