"""Calibration in the large: the ratio of expected to observed positives, with exact limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.alarms.in_the_large import check_ratio
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.processes.choices import MOST_RATIO
from trueodds.sums.inputs import check_level
from trueodds.sums.label_forms import as_rows
from trueodds.sums.positive import PositiveClass
from trueodds.sums.sums import CalibrationSums
from trueodds.sums.two_columns import is_vector

MOST_LABELS = 1e12
"""Largest number of labels that is predicted."""
CHANCE = 0.8
"""Probability that a calibrated model's interval lies within the ratio; `needed_positives` counts for it."""


@dataclass(frozen=True)
class CalibrationRatio:
    """Ratio of expected to observed positives. Above 1, the predicted probability p is too high.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.02] * 1000, [True] * 5 + [False] * 995)
        >>> found = metrics.calibration_ratio(sums)
        >>> round(found.ratio, 2), round(found.lower, 2), round(found.upper, 2)
        (4.0, 1.72, 12.3)
    """

    n: int
    expected: float
    """Sum of p."""
    observed: int
    """Number of positives."""
    ratio: float
    """Expected / observed. Infinite before the first positive."""
    lower: float
    upper: float
    """Upper limit of the ratio. Infinite before the first positive."""
    level: float

    def is_within(self, most: float = MOST_RATIO) -> bool:
        """Return whether the whole interval lies between 1 / `most` and `most`."""
        return 1 / most <= self.lower and self.upper <= most

    def positives_to_come(self, most: float = MOST_RATIO) -> int | None:
        """Estimate how many more positives settle whether the ratio is within `most`; 0 if it is.

        While fewer than `needed_positives` have come, the count assumes a ratio of 1. Afterwards it assumes the
        observed ratio: the distance of its logarithm from the nearer limit must be 1.96 + .84 standard errors.

        Returns:
            The number, or None if the interval or the ratio lies outside, so that more positives will hardly bring it
            inside.
        """
        if self.is_within(most):
            return 0
        if self.lower > most or self.upper < 1 / most:
            return None
        needed = needed_positives(most, self.level)
        if self.observed < needed:
            return needed - self.observed
        room = math.log(most) - abs(math.log(self.ratio)) if 0 < self.ratio < math.inf else 0.0
        if room <= 0:
            return None
        return max(math.ceil((2.8 / room) ** 2) - self.observed, 1)

    def labels_to_come(self, most: float = MOST_RATIO) -> int | None:
        """Estimate how many labels bring `positives_to_come`, at the rate so far.

        Returns:
            The number, or None if `positives_to_come` is None or more than 10^12 labels are needed.
        """
        positives, rate = self.positives_to_come(most), (self.observed or self.expected) / self.n
        if positives is None or positives >= MOST_LABELS * rate:
            return None
        return math.ceil(positives / rate)


def _of_positive(
    predictions: Predictions, labels_N: npt.ArrayLike | None, classes: Sequence[object] | None
) -> tuple[Predictions, npt.ArrayLike | None]:
    """Convert p(positive) alone to its sums, and other predictions as all metrics do."""
    rows, named = as_rows(predictions, labels_N, classes)
    if isinstance(predictions, CalibrationSums) or named is None or not is_vector(predictions):
        return rows, named
    return PositiveClass("positive", 1).sums(rows, named), None  # type: ignore[arg-type]  # vectors are no sums


def calibration_ratio(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> CalibrationRatio:
    """Compute the ratio of expected to observed positives, sum p / sum y, with limits of sum p / E[sum y].

    Given the p, sum y is a sum of independent tosses of unequal probability. The exact binomial limits
    (Clopper-Pearson) of E[sum y] hold for it too: from one toss beyond the mean on, its tails are thinner than those of
    the binomial of the same mean. The limits could fail only with exactly one positive or exactly one negative. The
    limit on that side is then (1 - level) / 2 expected positives (or negatives), because P(at least one) is at most
    their mean. So coverage is at least `level`, also with 0, 1 or 2 positives. It is higher if p is often near 0 or 1.

    Args:
        predictions: p(positive) of two classes, shape (N,), or its sums (`PositiveClass.sums`). With probabilities of
            shape (N, C) or sums of the top label, the ratio is that of confidence to right answers.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The ratio and its limits.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `level` is outside (0, 1).

    References:
        Hoeffding 1956, On the distribution of the number of successes in independent trials, theorem 5.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.01] * 300, [False] * 300)
        >>> metrics.calibration_ratio(sums).ratio, round(metrics.calibration_ratio(sums).lower, 2)
        (inf, 0.82)
    """
    predictions, labels_N = _of_positive(predictions, labels_N, classes)
    check_level(level)
    sums = as_sums(predictions, labels_N)
    n, expected, observed = sums.n, max(sums.total("confidence"), 0.0), round(sums.total("correct"))
    least, most = mean_limits(observed, n, level)
    ratio = expected / observed if observed else math.inf
    upper = expected / least if least else math.inf
    return CalibrationRatio(n, expected, observed, ratio, expected / most, upper, level)


def mean_limits(observed: int, n: int, level: float) -> tuple[float, float]:
    """Return limits of the mean number of successes, if `observed` of n independent unequal tosses succeeded."""
    low, high = binomial_interval(observed, n, level=level)
    least, most = n * float(low), n * float(high)
    q = (1 - level) / 2
    if observed == 1:
        least = min(least, q)
    if observed == n - 1:
        most = max(most, n - q)
    return least, most


@lru_cache(maxsize=64)
def needed_positives(most: float = MOST_RATIO, level: float = 0.95, chance: float = CHANCE) -> int:
    """Return how many positives a calibrated model needs so that the interval of its ratio lies within `most`.

    It is the least k with P(1 / most <= k / upper(O), k / lower(O) <= most) >= chance, where O ~ Poisson(k). The limits
    are the exact Poisson limits, which the Clopper-Pearson limits approach for rare positives.

    Args:
        most: Largest acceptable ratio, above 1.
        level: Confidence level of the interval, inside (0, 1).
        chance: Probability that the interval lies within `most`, inside (0, 1).

    Returns:
        The expected number of positives.

    Raises:
        ValueError: `check_ratio` does not accept `most`, or `level` or `chance` is outside (0, 1).

    Examples:
        >>> metrics.needed_positives(1.2)
        324
    """
    check_ratio(most)
    check_level(level)
    check_level(chance)
    high = 1
    while _chance_of_within(high, most, level) < chance:
        high *= 2
    low = high // 2  # from here on the chance rises, except for steps of single positives
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _chance_of_within(middle, most, level) >= chance else (middle, high)
    return high


def _chance_of_within(mean: int, most: float, level: float) -> float:
    """Compute P(the interval of the ratio lies within `most`) for Poisson positives, if all of them are expected."""
    reach = 10 * math.sqrt(mean) + 10
    number_K = np.arange(max(math.floor(mean - reach), 0), math.ceil(mean + reach) + 1, dtype=np.float64)
    q = (1 - level) / 2
    above_K = np.where(
        number_K > 0, scipy.special.pdtrc(np.maximum(number_K - 1, 0), mean / most), 1.0
    )  # P(Poisson >= number)
    below_K = scipy.special.pdtr(number_K, mean * most)  # P(Poisson <= number)
    probability_K = np.exp(scipy.special.xlogy(number_K, mean) - mean - scipy.special.gammaln(number_K + 1))
    return float(probability_K[(above_K <= q) & (below_K <= q)].sum())
