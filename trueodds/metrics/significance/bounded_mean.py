"""Confidence limits of a mean of bounded values, for few values and for values that hardly vary."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array

SAME = 1e-12
"""Values that differ by less, relative to the largest one, are equal but for rounding."""
CELLS = 2**16
"""Number of different values above which near ones are grouped, because each limit takes hundreds of passes."""


@dataclass(frozen=True, eq=False)
class BoundedMean:
    """The mean of values in [low, high], with the limits of Gaffke (2005).

    Let D be uniform weights that sum to 1 (a Dirichlet distribution with all parameters 1) of the n values and of one
    further value. The lower limit at the level 1 - q is the quantile q of the weighted mean if the further value is
    `low`. The upper limit is the quantile 1 - q if it is `high`. Special cases are exact:

    - Values of 0 and 1 in [0, 1] have the limits of Clopper and Pearson (1934).
    - Differences of -1, 0 and 1 in [-1, 1] have the p-value of McNemar's exact test, a sign test.
    - n equal values limit the share of other values to 1 - q^(1/n).

    With many values, of which none dominates, the limits approach those of a normal mean. Coverage is proved in special
    cases only. No distribution is known for which it is below the level.

    The weighted sum of gamma variables has its distribution from the saddlepoint approximation of Lugannani and Rice
    (1980), in Barndorff-Nielsen's form. Its tails are accurate to 5%. With two values they are exact.

    References:
        Gaffke 2005, Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
        variable. Learned-Miller and Thomas 2019, A new confidence interval for the mean of a bounded random variable.

    Examples:
        >>> lower, upper = BoundedMean.of([1] * 3 + [0] * 7, 0, 1).limits(0.025)
        >>> round(lower, 4), round(upper, 4)
        (0.0667, 0.6525)
        >>> round(BoundedMean.of([1] * 10, -1, 1).p_value() * 2**10, 9)
        2.0
    """

    value_K: Array
    """Different values, ascending."""
    count_K: Array
    """Number of rows of each value."""
    low: float
    high: float

    @classmethod
    def of(cls, values_N: npt.ArrayLike, low: float, high: float) -> BoundedMean:
        """Group equal values. Values outside the bounds widen them.

        Of more than 65,536 different values, those in the same of so many cells of equal width count as their mean.
        The mean of all stays the same. Their variance falls by less than the square of a cell's width.
        """
        value_K, count_K = np.unique(np.asarray(values_N, np.float64), return_counts=True)
        first, last = float(value_K[0]), float(value_K[-1])
        if len(value_K) > CELLS:
            cell_K = np.minimum((value_K - first) / (last - first) * CELLS, CELLS - 1).astype(np.intp)
            sum_C, count_C = np.bincount(cell_K, value_K * count_K), np.bincount(cell_K, count_K)
            value_K, count_K = sum_C[count_C > 0] / count_C[count_C > 0], count_C[count_C > 0]
        return cls(value_K, count_K.astype(np.float64), min(low, first), max(high, last))

    def limits(self, q: float) -> tuple[float, float]:
        """Return the lower and the upper limit, each at the level 1 - q."""
        return self.lower(q), self.upper(q)

    def upper(self, q: float) -> float:
        """Return the upper limit at the level 1 - q."""
        return -self._mirror().lower(q)

    def p_value(self) -> float:
        """Return the smallest 1 - level at which the limits with q = (1 - level) / 2 exclude 0."""
        tails = (float(scipy.special.ndtr(side._score(0.0))) for side in (self, self._mirror()))
        return min(1.0, 2 * min(tails))

    def _mirror(self) -> BoundedMean:
        return BoundedMean(-self.value_K[::-1], self.count_K[::-1], -self.high, -self.low)

    def lower(self, q: float) -> float:
        """Return the lower limit at the level 1 - q: the m with P(weighted mean < m) = q."""
        goal, top = float(scipy.special.ndtri(q)), float(self.value_K[-1])
        width = top - self.low
        if width <= 0:
            return self.low

        def excess(m: float) -> float:
            return self._score(m) - goal

        ends = self.low + 1e-12 * width, top - 1e-12 * width
        if excess(ends[0]) >= 0:
            return self.low
        return float(scipy.optimize.brentq(excess, *ends, xtol=1e-12 * width)) if excess(ends[1]) > 0 else top

    def _score(self, m: float) -> float:
        """Return the normal quantile of P(sum_k (x_k - m) Gamma(n_k) < 0), the further value `low` included."""
        a_K, n_K = np.append(self.value_K, self.low) - m, np.append(self.count_K, 1.0)
        above, below = a_K > 0, a_K < 0
        if not above.any() or not below.any():
            return math.inf if below.any() else -math.inf
        one, other = a_K[above], -a_K[below]
        if np.ptp(one) == np.ptp(other) == 0:
            share = scipy.special.betainc(n_K[above].sum(), n_K[below].sum(), other[0] / (one[0] + other[0]))
            return float(scipy.special.ndtri(share))
        return _saddlepoint(a_K, n_K)


def _saddlepoint(a_K: Array, n_K: Array) -> float:
    """Return r + log(u / r) / r, the approximate normal quantile of P(sum_k a_k Gamma(n_k) < 0).

    With K(s) = -sum n_k log(1 - a_k s) and K'(s) = 0: r = sign(s) sqrt(-2 K(s)) and u = s sqrt(K''(s)).
    """
    a_K = a_K / np.abs(a_K).max()

    def slope(s: float) -> float:
        return float((n_K * a_K / (1 - a_K * s)).sum())

    ends = ((1 - 1e-14) / float(end) for end in (a_K.min(), a_K.max()))
    s = float(scipy.optimize.brentq(slope, *ends, xtol=1e-15, rtol=1e-13))
    r = math.copysign(math.sqrt(max(2 * float(n_K @ np.log1p(-a_K * s)), 0.0)), s)
    if abs(r) < 1e-4:  # the limit at s = 0
        return r + float(n_K @ a_K**3) / 3 / math.sqrt(n_K @ a_K**2) ** 3
    u = s * math.sqrt(float(n_K @ np.square(a_K / (1 - a_K * s))))
    return r + math.log(u / r) / r
