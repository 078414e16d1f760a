"""Exact binomial confidence intervals (Clopper and Pearson 1934), and the mean deviation of counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array, as_numbers, check_level


def binomial_interval(right: npt.ArrayLike, count: npt.ArrayLike, *, level: float = 0.95) -> tuple[Array, Array]:
    """Compute exact (Clopper-Pearson) limits of a success probability, elementwise.

    With q = (1 - level) / 2 they are the quantiles BetaInv(q; k, n-k+1) and BetaInv(1-q; k+1, n-k). The coverage is at
    least `level` for every n.

    Args:
        right: Numbers of successes k.
        count: Numbers of trials n.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The lower and the upper limits; (0, 1) for no trials.

    Raises:
        ValueError: Successes are outside 0..count, or `level` is outside (0, 1).

    References:
        Clopper and Pearson 1934, The use of confidence or fiducial limits.

    Examples:
        >>> lower, upper = metrics.binomial_interval(9, 10)
        >>> round(float(lower), 4), round(float(upper), 4)
        (0.555, 0.9975)
    """
    right_B, count_B = (as_numbers(v, n).astype(np.float64) for v, n in ((right, "right"), (count, "count")))
    if not ((right_B >= 0) & (right_B <= count_B)).all():
        raise ValueError("right must lie between 0 and count in every entry")
    check_level(level)
    q, wrong_B = (1 - level) / 2, count_B - right_B
    low_B = np.where(right_B > 0, scipy.special.betaincinv(np.maximum(right_B, 1), wrong_B + 1, q), 0.0)
    high_B = np.where(wrong_B > 0, scipy.special.betaincinv(right_B + 1, np.maximum(wrong_B, 1), 1 - q), 1.0)
    return low_B, high_B


def mean_deviation(mean_B: Array, count_B: Array, variance_B: Array) -> Array:
    """Compute `E|X - mean|` for the number X of successes in `count` independent tosses, elementwise.

    The tosses may have unequal probabilities; only the mean and the variance of X are given. This is De Moivre's 2 v
    (1-p) P(X = v) with v = floor(mean) + 1, for the binomial of the same mean and variance. That binomial has p = 1 -
    variance / mean and mean / p trials, which need not be a whole number. The rarer of successes and failures is
    counted. The result is exact for tosses of equal probability. The normal approximation sqrt(2 variance / pi) is
    wrong by 4% for 600 rows in 15 bins, and by 20% in 1,000 bins.
    """
    rarer_B = np.minimum(mean_B, count_B - mean_B)
    some_B = (rarer_B > 1e-12) & (variance_B > 1e-12)  # empty bins may hold rounding errors
    mean = rarer_B[some_B]
    p = np.maximum(1 - np.minimum(variance_B[some_B] / mean, 1.0), 1e-12)  # the smallest p: a Poisson distribution
    n, v = mean / p, np.floor(mean) + 1
    chance = (
        scipy.special.gammaln(n + 1)
        - scipy.special.gammaln(v + 1)
        - scipy.special.gammaln(n - v + 1)
        + v * np.log(p)
        + (n - v) * np.log1p(-p)
    )
    deviation_B = np.zeros(len(rarer_B))
    deviation_B[some_B] = 2 * v * (1 - p) * np.exp(chance)
    return deviation_B
