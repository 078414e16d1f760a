"""Test of the Kolmogorov-Smirnov calibration error against the null of perfect calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.inputs import Array

EXACT_BELOW = 150.0
"""Bound of sum c(1-c). Below it the distribution of the walk is computed exactly, step by step (1.5 ms for 500 cells);
otherwise it is that of a Brownian motion.
"""


@dataclass(frozen=True)
class KsTest:
    """The KS calibration error over cells, and the probability of one at least as large under perfect calibration.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.ks_test(sums).ks, 4)
        0.325
    """

    ks: float
    p_value: float

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        if self.p_value >= 0.05:
            return f"The cumulative gap is no larger than chance makes it (p = {self.p_value:.2g})."
        return f"The cumulative gap is more than chance (p = {self.p_value:.2g})."


def ks_test(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> KsTest:
    """Test whether the KS calibration error is larger than chance makes it.

    KS is `max_k |S_k| / n`, where S_k is the sum of (a - c) over the first k cells. The null is a ~ Bernoulli(c). Given
    the confidences, S is then a walk of independent steps with variances n_i c_i (1 - c_i), whose sum is V. If V >=
    150, the p-value is that of a Brownian motion (not of a bridge, because the last value is free):

        P(max |S| >= x sqrt(V)) = 2 sum_k (-1)^k erfc((2k + 1) x / sqrt(2))

    A walk of few steps stays below this value, so the test errs on the safe side. If V < 150, errors are rare and steps
    are skewed. Then the probability that the walk stays inside is computed exactly, cell by cell, from binomial counts
    of wrong answers.

    Measured false alarm rate in 18 settings (shapes A, B, C of benchmarks/shapes.py, 50 to 50,000 rows, 300 to 1,000
    runs each): .034 to .059 at a nominal 5%, and .003 to .020 at 1%.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The KS error and its p-value.

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> metrics.ks_test(sums).p_value < 0.001
        True
    """
    cells = as_sums(predictions, labels_N, classes).cells[:3]
    count_M, confidence_M, correct_M = cells[:, cells[0] > 0]
    n = float(count_M.sum())
    largest = float(np.abs(np.cumsum(correct_M - confidence_M)).max())
    chance_M = np.clip(1 - confidence_M / count_M, 0.0, 1.0)  # probability of being wrong
    variance = float((count_M * chance_M) @ (1 - chance_M))
    if largest <= 1e-9 * n:  # a rounding error of subtracted sums
        return KsTest(largest / n, 1.0)
    if variance >= EXACT_BELOW:
        return KsTest(largest / n, _brownian(largest / variance**0.5))
    return KsTest(largest / n, min(max(1 - _inside(count_M, chance_M, largest - 1e-9 * n), 0.0), 1.0))


def _brownian(x: float) -> float:
    """Compute `P(max |W| over [0, 1] >= x)`."""
    if x < 0.3:  # the probability is 1 to 1e-5; the series would need many terms
        return 1.0
    k = np.arange(20)
    return float(min(2 * ((-1.0) ** k @ scipy.special.erfc((2 * k + 1) * x / np.sqrt(2))), 1.0))


def _inside(count_M: Array, chance_M: Array, bound: float) -> float:
    """Compute `P(|wrong answers so far - their mean| < bound after every cell)`."""
    mean_M = np.cumsum(count_M * chance_M)
    total_M = np.cumsum(count_M)
    low_M = np.maximum(np.floor(mean_M - bound) + 1, 0).astype(np.int64)  # the least number strictly inside
    high_M = np.minimum(np.ceil(mean_M + bound) - 1, total_M).astype(np.int64)
    first, at = 0, np.ones(1)
    # numbers of wrong answers in a cell with which the walk can stay inside
    least_M = np.maximum(low_M - np.concatenate([[0], high_M[:-1]]), 0)
    most_M = np.minimum(high_M - np.concatenate([[0], low_M[:-1]]), count_M.astype(np.int64))
    size_M = np.maximum(most_M - least_M + 1, 0)
    chances = binomial_probability(np.repeat(count_M, size_M), np.repeat(chance_M, size_M), _places(least_M, size_M))
    end_M = np.cumsum(size_M)
    for low, high, least, size, end in zip(*(v.tolist() for v in (low_M, high_M, least_M, size_M, end_M)), strict=True):
        if not size or low > high:
            return 0.0
        after = np.convolve(at, chances[end - size : end])
        start = first + least
        at = after[max(low - start, 0) : high - start + 1]
        first = max(low, start)
        if not len(at):
            return 0.0
    return float(at.sum())


def _places(least_M: npt.NDArray[np.int64], size_M: npt.NDArray[np.int64]) -> Array:
    """List least, least + 1, ... for each cell, one cell after the other."""
    start_M = np.cumsum(size_M) - size_M
    place: Array = (np.arange(size_M.sum()) + np.repeat(least_M - start_M, size_M)).astype(np.float64)
    return place


def binomial_probability(n: Array | float, p: Array | float, k: Array) -> Array:
    """Compute P(X = k) for n tosses with success probability p."""
    ways = scipy.special.gammaln(n + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)
    probability: Array = np.exp(ways + scipy.special.xlogy(k, p) + scipy.special.xlog1py(n - k, -p))
    return probability
