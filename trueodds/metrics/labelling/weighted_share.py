"""Limits of a share from rows with unequal weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array

STEPS = 100
"""Steps of the logarithm of the weights. Rows in one step share their mean weight, so both sums stay exact."""
NEAR = 1e-3
"""Distance from the centre below which the saddlepoint formula is replaced by its limit."""
SMALLEST = 1e-12
"""Distance of the search from the ends of an interval."""
PRECISE = 1e-9
"""Largest error of a limit."""
LEAST = 1e-60
"""Smaller weights, whose squares would underflow, are raised to it. The limits change by less than `PRECISE`."""


def weighted_share(
    hit_L: npt.NDArray[np.bool_], weight_L: Array, level: float = 0.95
) -> tuple[float | None, float, float]:
    """Compute a weighted share and its limits: exact for equal weights, Gaffke's for others.

    With weights w in (0, 1] and hits h the share is sum w h / sum w. The upper limit is the quantile (1 + level) / 2 of

        (sum w h D + D_0) / (sum w D + D_0)

    over independent standard exponential numbers D, one for each row, and D_0. D_0 is that of a hit of weight 1 which
    no row has shown. The lower limit adds a miss instead. With all weights 1 these are the limits of Clopper and
    Pearson. If rows are drawn with a probability proportional to 1 / w, a row gives a draw of w (h - p). It lies in
    [-p, 1 - p] and has mean 0 at the true share p. So this is Gaffke's bound on the mean of independent bounded
    numbers.

    Nobody has proved that Gaffke's bound covers for every distribution. No counterexample is known, and
    benchmarks/evidence/judge_rates.py measures it. Quantiles are computed by the saddlepoint formula of Lugannani and
    Rice, which is within .003 of the limits of Clopper and Pearson.

    Args:
        hit_L: Whether each row counts.
        weight_L: Weight of each row, relative to the largest that any row can have; in (0, 1].
        level: Confidence level of both limits together.

    Returns:
        The share (None without rows), and both limits.

    References:
        Gaffke 2005, Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
        variable.
        Phan, Thomas and Learned-Miller 2021, Towards practical mean bounds for small samples, section 3.
        Lugannani and Rice 1980, Saddle point approximation for the distribution of the sum of independent random
        variables.
    """
    if not len(hit_L):
        return None, 0.0, 1.0
    hits, q = int(hit_L.sum()), (1 - level) / 2
    value = 1.0 if hits == len(hit_L) else float(weight_L @ hit_L) / float(weight_L.sum())
    if (weight_L == 1).all():
        misses = len(hit_L) - hits
        lower = float(scipy.special.betaincinv(hits, misses + 1, q)) if hits else 0.0
        upper = float(scipy.special.betaincinv(hits + 1, misses, 1 - q)) if misses else 1.0
        return value, lower, upper
    of_hits, of_misses = _by_weight(weight_L[hit_L]), _by_weight(weight_L[~hit_L])
    return value, 1 - _upper(of_misses, of_hits, q), _upper(of_hits, of_misses, q)


def _by_weight(weight_L: Array) -> tuple[Array, Array]:
    """Return the weights of rows in steps of 1%, and the number of rows of each."""
    weight_L = np.maximum(weight_L, LEAST)
    code_L = np.rint(np.log(weight_L) * -STEPS).astype(np.intp)  # 0 to 13,816; np.unique would sort the rows
    count_C, sum_C = np.bincount(code_L), np.bincount(code_L, weights=weight_L)
    count_W = count_C[count_C > 0].astype(np.float64)
    return sum_C[count_C > 0] / count_W, count_W


def _upper(hits: tuple[Array, Array], misses: tuple[Array, Array], q: float) -> float:
    """Return the upper limit: the share p below which the added hit leaves a probability of 1 - q."""
    if not len(misses[0]):
        return 1.0
    weight_W = np.concatenate(([1.0], hits[0], misses[0]))
    count_W = np.concatenate(([1.0], hits[1], misses[1]))
    hit_W = np.arange(len(weight_W)) <= len(hits[0])

    def excess(p: float) -> float:
        return negative_chance(weight_W * (hit_W - p), count_W) - (1 - q)

    return 1.0 if excess(1 - SMALLEST) < 0 else _root(excess, SMALLEST, 1 - SMALLEST, PRECISE)


def negative_chance(scale_W: Array, count_W: Array) -> float:
    """Compute P(sum scale Gamma(count) < 0) for independent gamma numbers, by Lugannani and Rice.

    With K(s) = -sum count log(1 - s scale) and K'(s) = 0, the chance is Phi(r) + phi(r) (1 / r - 1 / u), where
    r = sign(s) sqrt(-2 K(s)) and u = s sqrt(K''(s)).

    Args:
        scale_W: Scales, at least one below 0 and one above.
        count_W: Shapes of the gamma numbers.
    """
    s = _root(
        lambda s: float((count_W * scale_W / (1 - s * scale_W)).sum()),
        (1 - SMALLEST) / float(scale_W.min()),
        (1 - SMALLEST) / float(scale_W.max()),
    )
    term_W = scale_W / (1 - s * scale_W)
    curvature = float(count_W @ term_W**2)
    r = math.copysign(math.sqrt(max(2 * float(count_W @ np.log1p(-s * scale_W)), 0.0)), s)
    u = s * math.sqrt(curvature)
    skew = 2 * float(count_W @ term_W**3) / (curvature * math.sqrt(curvature))
    correction = skew / 6 if abs(u) < NEAR else 1 / r - 1 / u
    return float(scipy.special.ndtr(r)) + math.exp(-r * r / 2) / math.sqrt(2 * math.pi) * correction


def _root(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-13) -> float:
    return float(scipy.optimize.brentq(function, low, high, xtol=tolerance, rtol=PRECISE))
