"""Differences of two methods on the same rows and seeds: intervals, p-values, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.significance.power import detectable
from trueodds.sums.inputs import Array


@dataclass(frozen=True)
class Difference:
    """A mean difference on the same rows and seeds, with its test.

    The interval, the p-value of no difference, the standard error and its degrees of freedom are None if no test is
    valid.

    Attributes:
        mean: Mean difference over the seeds.
        seeds: Number of seeds.
        lower: Lower limit of the mean.
        upper: Upper limit of the mean.
        p_value: p-value of the null that there is no difference.
        error: Standard error of the mean.
        freedom: Degrees of freedom of the standard error.

    Examples:
        >>> one, other = ([0.9] * 50, [True] * 35 + [False] * 15), ([0.7] * 50, [True] * 35 + [False] * 15)
        >>> round(metrics.squared_calibration_difference([one], [other]).mean, 2)
        0.04
    """

    mean: float
    seeds: int
    lower: float | None = None
    upper: float | None = None
    p_value: float | None = None
    error: float | None = None
    freedom: float | None = None

    def detectable(self, level: float) -> float | None:
        """Return the difference that a test at this significance level would have found in 80% of repetitions."""
        if not self.error or self.freedom is None:
            return None
        return detectable(self.error, self.freedom, level)


def of_seeds(differences_S: npt.ArrayLike, level: float = 0.95) -> Difference:
    """Test one difference per seed with Student's paired t-test. One seed has no interval and no test.

    Args:
        differences_S: Difference of each seed, shape (S,).
        level: Confidence level of the interval.

    Raises:
        ValueError: There is no seed.

    Examples:
        >>> round(of_seeds([1.0, 2.0, 3.0]).p_value, 3)
        0.074
    """
    d_S = np.asarray(differences_S, np.float64)
    if d_S.ndim != 1 or not len(d_S):
        raise ValueError(f"differences have shape {d_S.shape}; allowed is (seeds,), one or more")
    return Difference(float(d_S[0]), 1) if len(d_S) == 1 else of_estimates(d_S, 0.0, 1, level)


def of_rows(differences_SN: npt.ArrayLike, level: float = 0.95) -> Difference:
    """Test the difference of a mean over rows, such as the error rate or the NLL.

    With the difference d_sn of row n and seed s,

        se^2 = Var_s(mean_n d_sn) / S + Var_n(mean_s d_sn) / N

    because both other seeds and other rows could have been drawn. The test is a t-test with the degrees of freedom of
    Welch and Satterthwaite (1946). With one seed only the rows vary; the result then says nothing about other seeds.

    Args:
        differences_SN: Difference of each seed and row, shape (S, N).
        level: Confidence level of the interval.

    Raises:
        ValueError: There is no seed, or there are fewer than two rows.
    """
    d_SN = np.asarray(differences_SN, np.float64)
    if d_SN.ndim != 2 or not len(d_SN) or d_SN.shape[1] < 2:
        raise ValueError(f"differences have shape {d_SN.shape}; allowed is (seeds, rows), two rows or more")
    rows = d_SN.shape[1]
    return of_estimates(d_SN.mean(axis=1), float(d_SN.mean(axis=0).var(ddof=1)) / rows, rows - 1, level)


def of_estimates(means_S: Array, over_rows: float, freedom_rows: int, level: float) -> Difference:
    """Test the mean of one difference per seed.

    Args:
        means_S: Difference of each seed.
        over_rows: Variance of their mean over other rows.
        freedom_rows: Degrees of freedom of that variance.
        level: Confidence level of the interval.
    """
    mean, seeds = float(means_S.mean()), len(means_S)
    over = float(means_S.var(ddof=1)) / seeds if seeds > 1 else 0.0
    variance = over + over_rows
    if variance == 0:
        return Difference(mean, seeds, mean, mean, 1.0 if mean == 0 else 0.0, 0.0, freedom_rows)
    freedom = variance**2 / (over**2 / max(1, seeds - 1) + over_rows**2 / freedom_rows)
    error = math.sqrt(variance)
    half = float(scipy.special.stdtrit(freedom, (1 + level) / 2)) * error
    p_value = float(2 * scipy.special.stdtr(freedom, -abs(mean) / error))
    return Difference(mean, seeds, mean - half, mean + half, p_value, error, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of m comparisons (Holm 1979).

    The k-th smallest is multiplied by m - k + 1. Adjusted values never fall with k and are at most 1.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    back = np.empty_like(adjusted)
    back[order] = adjusted
    return [float(value) for value in back]
