"""Confidence sequence of the signed gap: limits that are valid after every label at once, for any number of looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, check_level

GAP_STAKES = 0.98 * np.array([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5])
WIDTH = 1 / CELLS


@dataclass(frozen=True)
class GapSequence:
    """Observed signed gap (accuracy - mean confidence), and anytime-valid limits of its expectation.

    Attributes:
        gap: Observed signed gap.
        lower: Lower limit.
        upper: Upper limit.
        level: Confidence level.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> sequence = metrics.gap_sequence(sums)
        >>> sequence.lower < sequence.gap < sequence.upper
        True
    """

    gap: float
    lower: float
    upper: float
    level: float


def gap_sequence(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> GapSequence:
    """Compute anytime-valid limits of E[a - c] from the sums of all labels since the start.

    With probability `level` the limits hold after every label, for ever. So they may be watched continuously. The sums
    are the whole state. The limits come from bets against the hypothesis E[a - c] <= m, averaged over the stakes L in
    .98 x {.005, .01, .02, .04, .08, .16, .3, .5}:

        K+(m) = mean_L exp sum_n log(1 + L (a_n - c_n - m)),    K-(m) the same with (c_n - a_n + m)

    The sequence is all m with K+(m) and K-(m) below 2 / (1 - level). The sums know the mean confidence of a cell, but
    not which of its labels are right. By the concavity of log, a cell of n labels (r right, w wrong) can pay less than
    at its mean by at most L^2 (h r w / (n b1 b0) + n h^2 / (8 b^2)). Here h = 1/3000, b1 and b0 are the two factors,
    and b is the smaller of them at the cell's edge. This amount is subtracted, so the limits stay valid. It costs about
    L h / 6, far less than their width.

    If the gap is constant, the sequence is exact and earlier limits may be intersected with later ones. If the gap
    changes, `lower` is valid for its largest value so far and `upper` for its smallest. The guarantee assumes that no
    label is removed or corrected later.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The gap and its limits.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `level` is outside (0, 1).

    References:
        Ville 1939. Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.gap_sequence(sums).upper, 3)
        -0.096
    """
    check_level(level)
    count_C, confidence_C, correct_C = as_sums(predictions, labels_N, classes).cells[:3]
    cell = np.flatnonzero(count_C)
    right_M, wrong_M = correct_C[cell], count_C[cell] - correct_C[cell]
    mean_M = np.clip(confidence_C[cell] / count_C[cell], 0.0, 1.0)
    gap = float((right_M.sum() - confidence_C[cell].sum()) / count_C[cell].sum())
    threshold = math.log(2 / (1 - level))
    # first guess: the limit of the best single bet; that of the mixture is a little further out
    variance = float((mean_M * (1 - mean_M)) @ count_C[cell])
    guess = max(1.3 * math.sqrt(2 * threshold * variance) / count_C.sum(), 1e-3 / count_C.sum())

    def limit(sign: float) -> float:
        """Find the last m, from the observed gap towards `sign`, that is not refuted."""

        def excess(x: float) -> float:
            # bets against E[a - c] being as far out as m; at x = 0 they have won nothing
            return _log_wealth(right_M, wrong_M, mean_M, -sign, gap + sign * x) - threshold

        reach, low = 1 - sign * gap, 0.0
        high = min(guess, reach)
        while excess(high) <= 0:
            if high == reach:
                return sign
            low, high = high, min(2 * high, reach)
        return gap + sign * float(scipy.optimize.brentq(excess, low, high, xtol=1e-9))

    return GapSequence(gap, limit(-1.0), limit(1.0), level)


def _log_wealth(right_M: Array, wrong_M: Array, mean_M: Array, sign: float, m: float) -> float:
    """Compute log K+(m) for sign 1 or log K-(m) for sign -1, minus the cost of not knowing places within cells."""
    L_S1, count_M = GAP_STAKES[:, None], right_M + wrong_M
    if_right_SM, if_wrong_SM = (1 + sign * L_S1 * (a - mean_M - m) for a in (1.0, 0.0))
    least_SM = np.minimum(if_right_SM, if_wrong_SM) - L_S1 * WIDTH
    lost_SM = WIDTH * right_M * wrong_M / (count_M * if_right_SM * if_wrong_SM) + count_M * WIDTH**2 / (8 * least_SM**2)
    log_S = np.log(if_right_SM) @ right_M + np.log(if_wrong_SM) @ wrong_M - (L_S1**2 * lost_SM).sum(axis=1)
    most = float(log_S.max())  # scipy's logsumexp takes as long as all the rest
    return most + math.log(float(np.exp(log_S - most).mean()))
