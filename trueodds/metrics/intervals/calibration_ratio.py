"""Calibration in the large: how many positives were expected for each that was observed, with exact limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, pdtr, pdtrc, xlogy

from trueodds.metrics.alarms.in_the_large import MOST_RATIO, check_ratio
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.inputs import check_level

MOST_LABELS = 1e12
"""Beyond, nobody waits."""
CHANCE = 0.8
"""Chance of a calibrated model to be told so, for which positives are counted."""


@dataclass(frozen=True)
class CalibrationRatio:
    """Expected / observed positives: above 1, p is too high.

    >>> sums = metrics.CalibrationSums.from_top([0.02] * 1000, [True] * 5 + [False] * 995)
    >>> found = metrics.calibration_ratio(sums)
    >>> round(found.ratio, 2), round(found.lower, 2), round(found.upper, 2)
    (4.0, 1.72, 12.3)
    """

    n: int
    expected: float
    """Sum of p."""
    observed: int
    """Positives."""
    ratio: float
    """Infinite before the first positive."""
    lower: float
    upper: float
    """Infinite before the first positive."""
    level: float

    def is_within(self, most: float = MOST_RATIO) -> bool:
        """Whether the whole interval lies between 1 / `most` and `most`."""
        return 1 / most <= self.lower and self.upper <= most

    def positives_to_come(self, most: float = MOST_RATIO) -> int | None:
        """About how many more positives settle whether the ratio is within `most`; 0 where it is.

        Counted for a ratio of 1 while fewer than `positives_needed` have come, then for the ratio as observed: the
        distance of its logarithm from the nearer limit must be 1.96 + .84 standard errors. None: the interval, or the
        ratio itself, lies outside, so that more positives will hardly bring it in.
        """
        if self.is_within(most):
            return 0
        if self.lower > most or self.upper < 1 / most:
            return None
        needed = positives_needed(most, self.level)
        if self.observed < needed:
            return needed - self.observed
        room = math.log(most) - abs(math.log(self.ratio)) if 0 < self.ratio < math.inf else 0.0
        if room <= 0:
            return None
        return max(math.ceil((2.8 / room) ** 2) - self.observed, 1)

    def labels_to_come(self, most: float = MOST_RATIO) -> int | None:
        """The number of labels that bring `positives_to_come`, at the rate so far; None: none, or over 10^12."""
        positives, rate = self.positives_to_come(most), (self.observed or self.expected) / self.n
        if positives is None or positives >= MOST_LABELS * rate:
            return None
        return math.ceil(positives / rate)


def calibration_ratio(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, level: float = 0.95
) -> CalibrationRatio:
    """Ratio of expected to observed positives, sum p / sum y, with limits of sum p / E[sum y].

    `predictions`: sums of p(positive) (`PositiveClass.sums`). Given the p, sum y is a sum of independent unlike tosses.
    The exact binomial limits (Clopper-Pearson) of E[sum y] hold for it: its tails are thinner than the binomial's of
    the same mean, from one toss beyond the mean on (Hoeffding 1956, theorem 5). Nearer than that only the first
    positive, or the first negative, can refute a mean; there P(any) <= mean gives the limit (1 - level) / 2 itself. So
    coverage is at least `level`, with 0, 1 or 2 positives, too. It is more where p is often near 0 and 1.

    Raises:
        ValueError: bad input, no rows, or a level outside (0, 1).

    >>> sums = metrics.CalibrationSums.from_top([0.01] * 300, [False] * 300)
    >>> metrics.calibration_ratio(sums).ratio, round(metrics.calibration_ratio(sums).lower, 2)
    (inf, 0.82)
    """
    check_level(level)
    sums = as_sums(predictions, labels_N)
    n, expected, observed = sums.n, max(sums.total("confidence"), 0.0), round(sums.total("correct"))
    least, most = mean_limits(observed, n, level)
    ratio = expected / observed if observed else math.inf
    upper = expected / least if least else math.inf
    return CalibrationRatio(n, expected, observed, ratio, expected / most, upper, level)


def mean_limits(observed: int, n: int, level: float) -> tuple[float, float]:
    """Limits of the mean number of successes of n unlike independent tosses, `observed` of which succeeded."""
    low, high = binomial_interval(observed, n, level=level)
    least, most = n * float(low), n * float(high)
    q = (1 - level) / 2
    if observed == 1:
        least = min(least, q)
    if observed == n - 1:
        most = max(most, n - q)
    return least, most


@lru_cache(maxsize=64)
def positives_needed(most: float = MOST_RATIO, level: float = 0.95, chance: float = CHANCE) -> int:
    """Positives that a calibrated model is expected to have when the interval of its ratio lies within `most`.

    It is the least k with P(1 / most <= k / upper(O), k / lower(O) <= most) >= chance, O ~ Poisson(k), by the exact
    Poisson limits: what Clopper-Pearson limits are of rare positives.

    Raises:
        ValueError: a ratio that `check_ratio` refuses, or a level or chance outside (0, 1).

    >>> metrics.positives_needed(1.2)
    324
    """
    check_ratio(most)
    check_level(level)
    check_level(chance)
    high = 1
    while _chance_of_within(high, most, level) < chance:
        high *= 2
    low = high // 2  # from here on the chance rises, but for steps of single positives
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _chance_of_within(middle, most, level) >= chance else (middle, high)
    return high


def _chance_of_within(mean: int, most: float, level: float) -> float:
    """P(the interval of the ratio lies within `most`) of Poisson positives with this mean, all of them expected."""
    reach = 10 * math.sqrt(mean) + 10
    number_K = np.arange(max(math.floor(mean - reach), 0), math.ceil(mean + reach) + 1, dtype=np.float64)
    q = (1 - level) / 2
    above_K = np.where(number_K > 0, pdtrc(np.maximum(number_K - 1, 0), mean / most), 1.0)  # P(Poisson >= number)
    below_K = pdtr(number_K, mean * most)  # P(Poisson <= number)
    probability_K = np.exp(xlogy(number_K, mean) - mean - gammaln(number_K + 1))
    return float(probability_K[(above_K <= q) & (below_K <= q)].sum())
