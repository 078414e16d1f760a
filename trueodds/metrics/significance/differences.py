"""Differences of two methods on the same rows and seeds: intervals, p-values, and their correction for many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from trueodds.metrics.significance.power import detectable
from trueodds.sums.inputs import Array


@dataclass(frozen=True)
class Difference:
    """A mean difference on the same rows and seeds, and how many seeds.

    The interval, the p-value of no difference, the standard error and its degrees of freedom are None where no test is
    valid.

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
        """The difference that a test at a significance level would have found in 80% of repetitions."""
        if not self.error or self.freedom is None:
            return None
        return detectable(self.error, self.freedom, level)


def of_seeds(differences_S: npt.ArrayLike, level: float = 0.95) -> Difference:
    """Test one difference a seed by Student's paired t-test; one seed has no interval and no test.

    Raises:
        ValueError: no seed.

    >>> round(of_seeds([1.0, 2.0, 3.0]).p_value, 3)
    0.074
    """
    d_S = np.asarray(differences_S, np.float64)
    if d_S.ndim != 1 or not len(d_S):
        raise ValueError(f"differences have shape {d_S.shape}; allowed is (seeds,), one or more")
    return Difference(float(d_S[0]), 1) if len(d_S) == 1 else of_estimates(d_S, 0.0, 1, level)


def of_rows(differences_SN: npt.ArrayLike, level: float = 0.95) -> Difference:
    """Test the difference of a mean over rows, such as the error or the NLL; d_sn is that of row n with seed s.

    se^2 = Var_s(mean_n d_sn) / S + Var_n(mean_s d_sn) / N, for both other seeds and other rows might have been drawn;
    t with the degrees of freedom of Welch and Satterthwaite (1946). One seed: rows alone, which says nothing of others.

    Raises:
        ValueError: no seed or fewer than two rows.
    """
    d_SN = np.asarray(differences_SN, np.float64)
    if d_SN.ndim != 2 or not len(d_SN) or d_SN.shape[1] < 2:
        raise ValueError(f"differences have shape {d_SN.shape}; allowed is (seeds, rows), two rows or more")
    rows = d_SN.shape[1]
    return of_estimates(d_SN.mean(axis=1), float(d_SN.mean(axis=0).var(ddof=1)) / rows, rows - 1, level)


def of_estimates(means_S: Array, over_rows: float, freedom_rows: int, level: float) -> Difference:
    """Test the mean of one difference a seed.

    Args:
        means_S: The difference of each seed.
        over_rows: Variance of their mean over other rows, with its degrees of freedom.
        freedom_rows: Those.
        level: Nominal coverage.
    """
    mean, seeds = float(means_S.mean()), len(means_S)
    over = float(means_S.var(ddof=1)) / seeds if seeds > 1 else 0.0
    variance = over + over_rows
    if variance == 0:
        return Difference(mean, seeds, mean, mean, 1.0 if mean == 0 else 0.0, 0.0, freedom_rows)
    freedom = variance**2 / (over**2 / max(1, seeds - 1) + over_rows**2 / freedom_rows)
    error = math.sqrt(variance)
    half = float(stdtrit(freedom, (1 + level) / 2)) * error
    p_value = float(2 * stdtr(freedom, -abs(mean) / error))
    return Difference(mean, seeds, mean - half, mean + half, p_value, error, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of m comparisons (Holm 1979): the k-th smallest times m - k + 1, never falling, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    back = np.empty_like(adjusted)
    back[order] = adjusted
    return [float(value) for value in back]
