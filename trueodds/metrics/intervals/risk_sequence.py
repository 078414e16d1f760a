"""Confidence sequence of an error rate that may change: limits that are valid after every label at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from trueodds.sums.inputs import Array, check_level, is_whole

LOG_RATIOS = 0.005 * 2 ** (np.arange(21) / 2)
"""Logarithms of the odds ratios of the bets, .005 to 5.12. The smaller ones win if there are many labels."""
LEAST = 1e-12


@dataclass(frozen=True)
class RiskSequence:
    """Share of wrong answers so far, and anytime-valid limits of the mean probability of being wrong.

    Attributes:
        risk: Share of wrong answers.
        lower: Lower limit.
        upper: Upper limit.
        level: Confidence level.

    Examples:
        >>> sequence = metrics.risk_sequence(5, 200)
        >>> sequence.lower < sequence.risk < sequence.upper
        True
    """

    risk: float
    lower: float
    upper: float
    level: float


def risk_sequence(wrong: int, labels: int, *, level: float = 0.95) -> RiskSequence:
    """Compute anytime-valid limits of the mean error probability of the answers so far, from the number of wrong ones.

    With probability `level`, mean_n = (p_1 + ... + p_n) / n lies between the limits after every label, for ever. p_i is
    the probability that answer i is wrong, given everything before it; it may change from label to label. A bet with
    odds ratio r pays r^wrong / (1 + p_i (r - 1)) on label i, with mean 1. log(1 + p (r - 1)) is concave in p. So by
    Jensen's inequality the product of the payoffs is at least

        K_r(m) = r^(wrong so far) / (1 + m (r - 1))^n    at m = mean_n,

    for every r > 0. The sequence is all m at which the mean of K_r over r > 1 and the mean over r < 1 are below 2 / (1
    - level). This is valid because a mean of products that never grow on average never grows on average either. If the
    probability is constant, K is the likelihood ratio of two binomials.

    Args:
        wrong: Number of wrong answers so far.
        labels: Number of labels so far.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The share of wrong answers and the limits.

    Raises:
        ValueError: The counts are not whole numbers with 0 <= wrong <= labels, there are no labels, or `level` is
            outside (0, 1).

    References:
        Ville 1939, Étude critique de la notion de collectif.

    Examples:
        >>> round(metrics.risk_sequence(0, 100).upper, 3)
        0.054
    """
    check_level(level)
    if not (is_whole(wrong) and is_whole(labels) and 0 <= wrong <= labels and labels >= 1):
        raise ValueError(f"{wrong!r} of {labels!r} labels are wrong; allowed are whole numbers, wrong <= labels >= 1")
    threshold, risk = math.log(2 / (1 - level)), wrong / labels

    def excess(m: float, sign: float) -> float:
        return _log_wealth(wrong, labels, m, sign) - threshold

    lower, upper = 0.0, 1.0
    if wrong > 0 and excess(LEAST, 1.0) > 0:
        lower = float(scipy.optimize.brentq(excess, LEAST, risk, args=(1.0,), xtol=1e-12))
    if wrong < labels and excess(1 - LEAST, -1.0) > 0:
        upper = float(scipy.optimize.brentq(excess, risk, 1 - LEAST, args=(-1.0,), xtol=1e-12))
    return RiskSequence(risk, lower, upper, level)


def _log_wealth(wrong: int, labels: int, m: float, sign: float) -> float:
    """Compute the log of the mean of K_r(m) over the odds ratios above 1 (sign 1) or below 1 (sign -1)."""
    log_ratio_K: Array = sign * LOG_RATIOS
    log_K = log_ratio_K * wrong - labels * np.log1p(m * np.expm1(log_ratio_K))
    return float(scipy.special.logsumexp(log_K)) - math.log(len(log_K))
