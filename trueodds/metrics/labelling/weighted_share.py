"""Limits of shares from rows with unequal weights, of many shares at once."""

from __future__ import annotations

from typing import NamedTuple

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
NEWTON = 1e-5
"""Relative size of the last step of Newton's method."""
MOST_STEPS = 2_000
"""Bound on the steps of a search, which none reaches: bisection between two float64 ends takes 1,100."""
LEAST = 1e-60
"""Smaller weights, whose squares would underflow, are raised to it. The limits change by less than `PRECISE`."""


class ByWeight(NamedTuple):
    """Rows of several shares by weight: their number and the sum of their weights in each step of the logarithm."""

    count_CW: Array
    sum_CW: Array

    @property
    def mean_CW(self) -> Array:
        """Mean weight of each step; 0 for a step without rows."""
        return np.divide(self.sum_CW, self.count_CW, out=np.zeros_like(self.sum_CW), where=self.count_CW > 0)

    def take(self, at_A: npt.NDArray[np.intp]) -> ByWeight:
        """Return some of the shares."""
        return ByWeight(self.count_CW[at_A], self.sum_CW[at_A])


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
    code_L, steps = weight_steps(weight_L)
    one_L = np.zeros(len(hit_L), np.intp)
    hits, misses = (by_weight(one_L[of_L], code_L[of_L], weight_L[of_L], 1, steps) for of_L in (hit_L, ~hit_L))
    value_1, lower_1, upper_1 = weighted_shares(hits, misses, np.array([(weight_L == 1).all()]), level)
    return float(value_1[0]), float(lower_1[0]), float(upper_1[0])


def weight_steps(weight_L: Array) -> tuple[npt.NDArray[np.intp], int]:
    """Return the step of each weight, 1% of the logarithm wide, among those that occur; and their number."""
    code_L = np.rint(np.log(np.maximum(weight_L, LEAST)) * -STEPS).astype(np.intp)  # 0 to 13,816
    occurs = np.bincount(code_L) > 0  # np.unique would sort the rows
    return (np.cumsum(occurs) - 1)[code_L], int(occurs.sum())


def by_weight(
    class_L: npt.NDArray[np.intp], code_L: npt.NDArray[np.intp], weight_L: Array, classes: int, steps: int
) -> ByWeight:
    """Count rows by share and weight.

    Args:
        class_L: Share to which each row belongs, from 0 to `classes` - 1.
        code_L: Step of its weight; see `weight_steps`.
        weight_L: Its weight.
        classes: Number of shares.
        steps: Number of steps.
    """
    place_L, shape = class_L * steps + code_L, (classes, steps)
    count = np.bincount(place_L, minlength=classes * steps).astype(np.float64)
    total = np.bincount(place_L, np.maximum(weight_L, LEAST), classes * steps)  # of integers without rows
    return ByWeight(count.reshape(shape), total.astype(np.float64).reshape(shape))


def stack(*parts: ByWeight) -> ByWeight:
    """Return the shares of all parts, which have the same steps, one after another."""
    return ByWeight(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def weighted_shares(
    hits: ByWeight, misses: ByWeight, equal_C: npt.NDArray[np.bool_], level: float
) -> tuple[Array, Array, Array]:
    """Compute `weighted_share` for several shares at once.

    Args:
        hits: Rows that count.
        misses: Rows that do not.
        equal_C: Whether all weights of a share are 1.
        level: Confidence level of both limits together.

    Returns:
        The shares (NaN without rows), their lower and their upper limits.
    """
    hits_C, misses_C = hits.count_CW.sum(axis=1), misses.count_CW.sum(axis=1)
    weight_C = hits.sum_CW.sum(axis=1)
    total_C, q = weight_C + misses.sum_CW.sum(axis=1), (1 - level) / 2
    value_C = np.divide(weight_C, total_C, out=np.full(len(total_C), np.nan), where=hits_C + misses_C > 0)
    value_C[(misses_C == 0) & (hits_C > 0)] = 1.0
    lower_C = np.where(hits_C > 0, scipy.special.betaincinv(np.maximum(hits_C, 1), misses_C + 1, q), 0.0)
    upper_C = np.where(misses_C > 0, scipy.special.betaincinv(hits_C + 1, np.maximum(misses_C, 1), 1 - q), 1.0)
    upper_at, lower_at = (np.flatnonzero(~equal_C & (side_C > 0)) for side_C in (misses_C, hits_C))
    if len(upper_at) + len(lower_at):  # a lower limit is that of the misses: one search for both
        one, other = (stack(a.take(upper_at), b.take(lower_at)) for a, b in ((hits, misses), (misses, hits)))
        found = _uppers(one, other, q)
        upper_C[upper_at], lower_C[lower_at] = found[: len(upper_at)], 1 - found[len(upper_at) :]
    lower_C[~equal_C & (hits_C == 0)], upper_C[~equal_C & (misses_C == 0)] = 0.0, 1.0
    return value_C, lower_C, upper_C


def _uppers(hits: ByWeight, misses: ByWeight, q: float) -> Array:
    """Return the upper limits of shares with misses: the p below which the added hit leaves a probability of 1 - q."""
    from scipy.optimize.elementwise import find_root  # at the first use, as all of scipy.optimize

    one_C1 = np.ones((len(hits.count_CW), 1))
    weight_CW = np.concatenate((one_C1, hits.mean_CW, misses.mean_CW), axis=1)
    count_CW = np.concatenate((one_C1, hits.count_CW, misses.count_CW), axis=1)
    hit_W = np.arange(weight_CW.shape[1]) <= hits.count_CW.shape[1]
    of_misses_C = misses.mean_CW.max(axis=1)
    start_C = np.zeros(len(weight_CW))

    def excess(p_A: Array, at_A: npt.NDArray[np.intp]) -> Array:
        scale_AW = weight_CW[at_A] * (hit_W - p_A[:, None])
        low_A, high_A = (1 - SMALLEST) / (-p_A * of_misses_C[at_A]), (1 - SMALLEST) / (1 - p_A)
        chance_A, start_C[at_A] = negative_chances(scale_AW, count_CW[at_A], low_A, high_A, start_C[at_A])
        return chance_A - (1 - q)

    ends = np.full(len(weight_CW), SMALLEST), np.full(len(weight_CW), 1 - SMALLEST)
    tolerances = {"xatol": PRECISE / 10, "xrtol": 0.0}
    found = find_root(excess, ends, args=(np.arange(len(weight_CW)),), tolerances=tolerances)
    root_C = np.where(found.success, found.x, 1.0)  # the probability stays below 1 - q
    return np.where(root_C > 1 - 2 * PRECISE, 1.0, root_C)


def negative_chances(
    scale_CW: Array, count_CW: Array, low_C: Array, high_C: Array, start_C: Array
) -> tuple[Array, Array]:
    """Compute P(sum scale Gamma(count) < 0) for independent gamma numbers, by Lugannani and Rice.

    With K(s) = -sum count log(1 - s scale) and K'(s) = 0, the chance is Phi(r) + phi(r) (1 / r - 1 / u), where
    r = sign(s) sqrt(-2 K(s)) and u = s sqrt(K''(s)).

    Args:
        scale_CW: Scales, at least one below 0 and one above in each row. A scale of 0 stands for none.
        count_CW: Shapes of the gamma numbers.
        low_C: A little above 1 / the least scale.
        high_C: A little below 1 / the largest scale.
        start_C: First guess of s.

    Returns:
        The chances, and s of each.
    """
    s_C = _saddles(scale_CW, count_CW, low_C, high_C, start_C)
    term_CW = scale_CW / (1 - s_C[:, None] * scale_CW)
    curvature_C = (count_CW * term_CW**2).sum(axis=1)
    log_C = (count_CW * np.log1p(-s_C[:, None] * scale_CW)).sum(axis=1)
    r_C = np.copysign(np.sqrt(np.maximum(2 * log_C, 0.0)), s_C)
    u_C = s_C * np.sqrt(curvature_C)
    is_near_C = (np.abs(u_C) < NEAR) | (r_C == 0)  # r is 0 where rounding hides it
    skew_C = 2 * (count_CW * term_CW**3).sum(axis=1) / (curvature_C * np.sqrt(curvature_C))
    far_C = 1 / np.where(is_near_C, 1.0, r_C) - 1 / np.where(is_near_C, 1.0, u_C)
    correction_C = np.where(is_near_C, skew_C / 6, far_C)
    return scipy.special.ndtr(r_C) + np.exp(-r_C * r_C / 2) / np.sqrt(2 * np.pi) * correction_C, s_C


def _saddles(scale_CW: Array, count_CW: Array, low_C: Array, high_C: Array, start_C: Array) -> Array:
    """Solve K'(s) = sum count scale / (1 - s scale) = 0, which rises, by Newton's method inside a bracket."""
    low_C, high_C = low_C.copy(), high_C.copy()
    s_C = np.where((start_C > low_C) & (start_C < high_C), start_C, 0.0)
    open_C = np.arange(len(s_C))
    for _ in range(MOST_STEPS):
        s_A, scale_AW, count_AW = s_C[open_C], scale_CW[open_C], count_CW[open_C]
        term_AW = scale_AW / (1 - s_A[:, None] * scale_AW)
        weighted_AW = count_AW * term_AW
        slope_A, curvature_A = weighted_AW.sum(axis=1), (weighted_AW * term_AW).sum(axis=1)
        low_C[open_C] = low_A = np.where(slope_A < 0, s_A, low_C[open_C])
        high_C[open_C] = high_A = np.where(slope_A > 0, s_A, high_C[open_C])
        next_A = s_A - slope_A / curvature_A
        is_inside_A = (next_A > low_A) & (next_A < high_A)
        s_C[open_C] = next_A = np.where(is_inside_A | (slope_A == 0), next_A, (low_A + high_A) / 2)
        # A step of Newton's squares the relative error; a half of the bracket does not.
        enough_A = np.where(is_inside_A, NEWTON, PRECISE) * np.abs(next_A)
        open_C = open_C[(np.abs(next_A - s_A) > enough_A) & (slope_A != 0)]
        if not len(open_C):
            break
    return s_C
