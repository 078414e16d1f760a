"""Intervals of ordered classes: of the ranked probability score, and of the bias of the expected level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.intervals.confidence_sequence import GAP_STAKES, WIDTH, gap_sequence
from trueodds.metrics.intervals.proper_scores import RARE, Parts, ScoreInterval, rare_errors, score_interval, spread
from trueodds.metrics.ranked_probability import OrderedPredictions, as_ordered_sums, rps
from trueodds.metrics.scores import accuracy, mean_confidence, signed_gap
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.ordered import FEWEST_LEVELS, OrderedSums
from trueodds.sums.positive import sums_of_top

RESIDUAL_WIDTH = 2 * WIDTH
"""Width of a cell of the residual, which runs from -1 to 1."""


@dataclass(frozen=True)
class LevelBias:
    """Bias of the expected level, expected - true level, and limits of its expectation. Positive means too high.

    Examples:
        >>> probabilities, labels = [[0.5, 0.25, 0.25], [0.1, 0.4, 0.5]] * 50, [0, 2] * 50
        >>> found = metrics.level_bias(probabilities, labels)
        >>> round(found.bias, 3), found.lower < found.bias < found.upper
        (0.075, True)
    """

    bias: float
    """Mean of expected level - true level, in levels."""
    lower: float
    upper: float
    level: float
    expected: float
    """Mean expected level, counted from 0."""
    observed: float
    """Mean true level, counted from 0."""


def rps_interval(
    predictions: OrderedPredictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> ScoreInterval:
    """Compute a confidence interval for the expected ranked probability score, for one look at these rows.

    It follows `score_interval`. A row counts as right if its true level is the median level, which has the least score.
    The interval is Student's, unless the effective number of the other rows, (sum l)^2 / sum l^2 of their scores l, is
    below 20. Then their share of the mean has the limits of Fay and Feuer. One more such row is assumed to cost what a
    level other than the median costs on average, by the probabilities of all rows; or the root mean square of the
    observed scores l if that is larger. With two levels it is the interval of the Brier score of p(positive).

    Args:
        predictions: Probabilities, shape (N, K), the lowest level first, or `OrderedSums`.
        labels_N: True levels, shape (N,): indices, or names with `classes`. Leave it out with `OrderedSums`.
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the levels in the order of the columns, if the labels are names.

    Returns:
        The mean score and its limits, in levels.

    Raises:
        ValueError: The input is invalid, there are no rows, or `level` is outside (0, 1).

    References:
        Fay and Feuer 1997, Confidence intervals for directly standardized rates. Zou and Donner 2008, Construction of
        confidence limits about effect measures.

    Examples:
        >>> found = metrics.rps_interval([[0.5, 0.25, 0.25], [0.1, 0.4, 0.5]] * 50, [0, 2] * 50)
        >>> round(found.lower, 3), round(found.upper, 3)
        (0.281, 0.291)
    """
    check_level(level)
    sums = as_ordered_sums(predictions, labels_N, classes)
    n, most = sums.n, float(sums.levels - 1)
    if sums.levels == FEWEST_LEVELS:
        both = score_interval(sums_of_top(sums.at_least[0]), score="brier", level=level)
        return ScoreInterval(both.value / 2, both.lower / 2, both.upper / 2, level)
    mean = rps(sums)
    if n == 1:
        return ScoreInterval(mean, 0.0, most, level)
    t, parts = float(scipy.special.stdtrit(n - 1, (1 + level) / 2)), _parts(sums)
    if _is_rare(parts):
        below, above = rare_errors(parts, n, t, (1 - level) / 2)
    else:
        below = above = t * spread(parts.right + parts.wrong, parts.right_squares + parts.wrong_squares, n)
    return ScoreInterval(mean, max(mean - below / n, 0.0), min(mean + above / n, most), level)


def level_bias(
    predictions: OrderedPredictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
    anytime: bool = False,
    classes: Sequence[object] | None = None,
) -> LevelBias:
    """Compute the bias of the expected level E_p[level] - level, with limits of its expectation.

    With `anytime`, the limits hold after every label at once, for any number of looks. They come from bets, as in
    `gap_sequence`, on the residual r = (level - E_p[level]) / (K - 1) in [-1, 1]. All means m are kept for which

        mean_L exp sum_n log(1 + L (r_n - m)) < 2 / (1 - level),  and the same with (m - r_n)

    The sums know the mean residual of each of 3,000 cells of width w = 2/3000. So L^2 w^2 / (8 b^2) is subtracted for
    each row, where b is the smallest factor in its cell.

    Without `anytime`, the limits are for one look. They are Student's, unless the effective number of rows off their
    median level is below 20 (see `rps_interval`). Student's limits would then ignore the errors that were not drawn, so
    the limits of the bets are used. With two levels, the limits are those of the signed gap of p(positive).

    Args:
        predictions: Probabilities, shape (N, K), the lowest level first, or `OrderedSums`.
        labels_N: True levels, shape (N,): indices, or names with `classes`. Leave it out with `OrderedSums`.
        level: Confidence level of both limits together, inside (0, 1).
        anytime: Whether the limits hold after every label.
        classes: Names of the levels in the order of the columns, if the labels are names.

    Returns:
        The bias and its limits, in levels.

    Raises:
        ValueError: The input is invalid, there are no rows, or `level` is outside (0, 1).

    References:
        Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting.

    Examples:
        >>> found = metrics.level_bias([[0.5, 0.25, 0.25], [0.1, 0.4, 0.5]] * 50, [0, 2] * 50, anytime=True)
        >>> round(found.lower, 2), round(found.upper, 2)
        (-0.21, 0.36)
    """
    check_level(level)
    sums = as_ordered_sums(predictions, labels_N, classes)
    expected, observed, gap = (sum(map(of, sums.at_least)) for of in (mean_confidence, accuracy, signed_gap))
    if sums.levels == FEWEST_LEVELS:
        lower, upper = _of_two(sums, level, anytime)
    elif not anytime and sums.n > 1 and not _is_rare(_parts(sums)):
        lower, upper = _students(sums, level)
    else:
        lower, upper = _of_bets(sums, level)
    return LevelBias(-gap, lower, upper, level, expected, observed)


def _parts(sums: OrderedSums) -> Parts:
    """Split the score's sums into rows at their median level and the others."""
    count_2, _, score_2, squares_2, if_off_2 = sums.rows.reshape(len(sums.rows), 2, CELLS).sum(axis=2)
    score_2, squares_2 = np.maximum(score_2, 0.0), np.maximum(squares_2, 0.0)
    seen = math.sqrt(squares_2[1] / count_2[1]) if count_2[1] else 0.0
    dearest = max(float(if_off_2.sum()) / sums.n, seen)
    right, wrong = ((float(score_2[k]), float(squares_2[k])) for k in (0, 1))
    return Parts(*right, *wrong, dearest, 0.0)


def _is_rare(parts: Parts) -> bool:
    """Return whether the rows off their median level amount to fewer than 20 equal ones."""
    return parts.wrong**2 < RARE * parts.wrong_squares or not parts.wrong


def _of_two(sums: OrderedSums, level: float, anytime: bool) -> tuple[float, float]:
    """Return the limits of the signed gap of p(positive), with the other sign."""
    positive = sums.at_least[0]
    if anytime:
        sequence = gap_sequence(positive, level=level)
        return -sequence.upper, -sequence.lower
    low, high = binomial_interval([positive.total("correct")], [positive.n], level=level)
    mean = mean_confidence(positive)
    return mean - float(high[0]), mean - float(low[0])


def _residuals(sums: OrderedSums) -> tuple[Array, Array]:
    """Return counts and mean residuals of the occupied cells."""
    count_M, residual_M = sums.rows[:2, np.flatnonzero(sums.rows[0])]
    return count_M, np.clip(residual_M / count_M, -1.0, 1.0)


def _students(sums: OrderedSums, level: float) -> tuple[float, float]:
    count_M, mean_M = _residuals(sums)
    n, total = sums.n, float(count_M @ mean_M)
    # A residual differs from the mean of its cell by at most the cell's width
    squares = float(count_M @ (mean_M**2)) + n * RESIDUAL_WIDTH**2 / 4
    off = float(scipy.special.stdtrit(n - 1, (1 + level) / 2)) * spread(total, squares, n)
    most = sums.levels - 1
    return max(most * (-total - off) / n, -most), min(most * (-total + off) / n, most)


def _of_bets(sums: OrderedSums, level: float) -> tuple[float, float]:
    """Return the limits of the bets on the mean residual, as a bias in levels."""
    count_M, mean_M = _residuals(sums)
    threshold, centre = math.log(2 / (1 - level)), float(count_M @ mean_M) / sums.n

    def limit(sign: float) -> float:
        """Find the last mean, from the observed one towards `sign`, that is not refuted."""

        def excess(x: float) -> float:
            return _log_wealth(count_M, mean_M, -sign, centre + sign * x) - threshold

        reach, low, high = 1 - sign * centre, 0.0, 1e-3
        while excess(high := min(high, reach)) <= 0:
            if high == reach:
                return sign
            low, high = high, 2 * high
        return centre + sign * float(scipy.optimize.brentq(excess, low, high, xtol=1e-9))

    most = sums.levels - 1
    return -most * limit(1.0), -most * limit(-1.0)


def _log_wealth(count_M: Array, mean_M: Array, sign: float, m: float) -> float:
    """Compute the log of the mean wealth of the bets against a mean m, less the cost of not knowing places in cells."""
    L_S1 = GAP_STAKES[:, None]
    factor_SM = 1 + sign * L_S1 * (mean_M - m)
    least_SM = factor_SM - L_S1 * RESIDUAL_WIDTH
    log_S = (np.log(factor_SM) - (L_S1 * RESIDUAL_WIDTH / least_SM) ** 2 / 8) @ count_M
    most = float(log_S.max())
    return most + math.log(float(np.exp(log_S - most).mean()))
