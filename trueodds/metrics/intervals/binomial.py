"""Counts of successes: the exact interval of a share (Clopper and Pearson 1934), and their mean deviation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, gammaln

from trueodds.sums.inputs import Array, as_numbers, check_level


def binomial_interval(right: npt.ArrayLike, count: npt.ArrayLike, *, level: float = 0.95) -> tuple[Array, Array]:
    """Limits of the success probability after `right` successes in `count` trials, elementwise; (0, 1) for no trials.

    With q = (1 - level) / 2 they are the quantiles BetaInv(q; k, n-k+1) and BetaInv(1-q; k+1, n-k): the coverage is
    at least `level` for every n.

    Raises:
        ValueError: successes outside 0..count, or a level outside (0, 1).

    >>> lower, upper = metrics.binomial_interval(9, 10)
    >>> round(float(lower), 4), round(float(upper), 4)
    (0.555, 0.9975)
    """
    right_B, count_B = (as_numbers(v, n).astype(np.float64) for v, n in ((right, "right"), (count, "count")))
    if not ((right_B >= 0) & (right_B <= count_B)).all():
        raise ValueError("right must lie between 0 and count in every entry")
    check_level(level)
    q, wrong_B = (1 - level) / 2, count_B - right_B
    low_B = np.where(right_B > 0, betaincinv(np.maximum(right_B, 1), wrong_B + 1, q), 0.0)
    high_B = np.where(wrong_B > 0, betaincinv(right_B + 1, np.maximum(wrong_B, 1), 1 - q), 1.0)
    return low_B, high_B


def mean_deviation(mean_B: Array, count_B: Array, variance_B: Array) -> Array:
    """E|X - mean| of the number X of successes in `count` unlike tosses with this mean and variance, elementwise.

    De Moivre's 2 v (1-p) P(X = v), v = floor(mean) + 1, for the binomial of the same mean and variance: p =
    1 - variance / mean in mean / p trials, which need not be whole; successes or failures, whichever are rarer. Exact
    for like tosses. The normal's sqrt(2 variance / pi) is 4% off on 600 rows in 15 bins, and 20% in 1,000.
    """
    rarer_B = np.minimum(mean_B, count_B - mean_B)
    some_B = (rarer_B > 1e-12) & (variance_B > 1e-12)  # sums leave crumbs of rounding in empty bins
    mean = rarer_B[some_B]
    p = np.maximum(1 - np.minimum(variance_B[some_B] / mean, 1.0), 1e-12)  # the least: Poisson
    n, v = mean / p, np.floor(mean) + 1
    chance = gammaln(n + 1) - gammaln(v + 1) - gammaln(n - v + 1) + v * np.log(p) + (n - v) * np.log1p(-p)
    deviation_B = np.zeros(len(rarer_B))
    deviation_B[some_B] = 2 * v * (1 - p) * np.exp(chance)
    return deviation_B
