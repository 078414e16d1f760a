"""What seeds and rows say of a difference, and what chance explains of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from trueodds.metrics.significance.power import detectable

Array = npt.NDArray[np.float64]
LEVEL = 0.05
"""Of Holm's correction: the chance that any of the differences is called real where none is."""
MANY = 10
"""Values from which on their bootstrap is taken: with fewer BCa's intervals are too short."""
PLUG_IN = re.compile(r"(^|_)(ece|sece|mce|ks_error|reliability)(_|$)")
"""Columns of calibration errors that are estimated from the rows' own frequencies."""
NOTE = (
    "Calibration errors are plug-in estimates: chance raises each by an amount that depends on the model, by more for"
    " the less sharp of two calibrated ones. Their differences are numbers, and no test."
)


def is_plug_in(column: str) -> bool:
    """Whether a column is a calibration error, whose differences no test here is valid for.

    E[plug-in ECE] = ECE + a bias of about sqrt(2 / (pi N)) sum_b sqrt(w_b c_b (1 - c_b)) near calibration, w_b the
    share and c_b the confidence of bin b. Two calibrated models of other sharpness differ by their biases, which no
    number of resamples and seeds takes away.
    """
    return PLUG_IN.search(column) is not None


@dataclass(frozen=True)
class OverSeeds:
    """Of S values: mean, standard deviation (S - 1), standard error, and an interval of the mean; one value has only
    itself.
    """

    values: int
    mean: float
    deviation: float | None = None
    error: float | None = None
    lower: float | None = None
    upper: float | None = None


def over_seeds(values: Sequence[float], level: float = 0.95) -> OverSeeds:
    """Mean +- t_{S-1} s / sqrt(S), and from 10 values on the BCa bootstrap (Efron 1987) of the mean.

    Raises:
        ValueError: no value, or one that is not finite.

    >>> over_seeds([1.0, 2.0, 3.0]).error
    0.5773502691896258
    """
    x = np.asarray(values, np.float64)
    if not len(x) or not np.isfinite(x).all():
        raise ValueError(f"values are {list(values)}; allowed are finite numbers, at least one")
    mean = float(x.mean())
    if len(x) == 1:
        return OverSeeds(1, mean)
    deviation = float(x.std(ddof=1))
    error = deviation / math.sqrt(len(x))
    half = float(stats.t.ppf((1 + level) / 2, len(x) - 1)) * error
    lower, upper = mean - half, mean + half
    if len(x) >= MANY and deviation:
        found = stats.bootstrap((x,), np.mean, confidence_level=level, rng=np.random.default_rng(0))
        lower, upper = (float(end) for end in found.confidence_interval)
    return OverSeeds(len(x), mean, deviation, error, lower, upper)


def cohens_d(first: Sequence[float], second: Sequence[float], *, small_samples: bool = False) -> float:
    """(mean of first - mean of second) / s, s^2 = ((n-1) s_1^2 + (m-1) s_2^2) / (n + m - 2) (Cohen 1988, section 2.2).

    small_samples: times 1 - 3 / (4 (n + m) - 9), Hedges' correction (1981). NaN where there is no variance.

    Raises:
        ValueError: fewer than two values on one side.

    >>> round(cohens_d([2.0, 4.0], [1.0, 3.0]), 4)
    0.7071
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if min(len(a), len(b)) < 2:
        raise ValueError(f"{len(a)} and {len(b)} values; an effect size needs at least two on each side")
    freedom = len(a) + len(b) - 2
    variance = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom
    if variance == 0:
        return math.nan
    factor = 1 - 3 / (4 * (len(a) + len(b)) - 9) if small_samples else 1.0
    return float(factor * (a.mean() - b.mean()) / math.sqrt(variance))


@dataclass(frozen=True)
class Difference:
    """A mean difference to the baseline on the same rows and seeds, and how many seeds.

    The interval, the p-value of no difference, the standard error and its degrees of freedom are None where no test is
    valid.
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
    """Paired t-test of one difference a seed; one seed has no interval and no test.

    Raises:
        ValueError: no seed.

    >>> round(of_seeds([1.0, 2.0, 3.0]).p_value, 3)
    0.074
    """
    d_S = np.asarray(differences_S, np.float64)
    if d_S.ndim != 1 or not len(d_S):
        raise ValueError(f"differences have shape {d_S.shape}; allowed is (seeds,), one or more")
    return Difference(float(d_S[0]), 1) if len(d_S) == 1 else _difference(d_S, 0.0, 1, level)


def of_rows(differences_SN: npt.ArrayLike, level: float = 0.95) -> Difference:
    """Of a mean over rows, such as the error or the NLL: d_sn is that of row n with seed s.

    se^2 = Var_s(mean_n d_sn) / S + Var_n(mean_s d_sn) / N, for both other seeds and other rows might have been drawn;
    t with the degrees of freedom of Welch and Satterthwaite (1946). One seed: rows alone, which says nothing of others.

    Raises:
        ValueError: no seed or fewer than two rows.
    """
    d_SN = np.asarray(differences_SN, np.float64)
    if d_SN.ndim != 2 or not len(d_SN) or d_SN.shape[1] < 2:
        raise ValueError(f"differences have shape {d_SN.shape}; allowed is (seeds, rows), two rows or more")
    rows = d_SN.shape[1]
    return _difference(d_SN.mean(axis=1), float(d_SN.mean(axis=0).var(ddof=1)) / rows, rows - 1, level)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of m comparisons (Holm 1979): the k-th smallest times m - k + 1, never falling, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    back = np.empty_like(adjusted)
    back[order] = adjusted
    return [float(value) for value in back]


def _difference(means_S: Array, over_rows: float, freedom_rows: int, level: float) -> Difference:
    mean, seeds = float(means_S.mean()), len(means_S)
    over = float(means_S.var(ddof=1)) / seeds if seeds > 1 else 0.0
    variance = over + over_rows
    if variance == 0:
        return Difference(mean, seeds, mean, mean, 1.0 if mean == 0 else 0.0, 0.0, freedom_rows)
    freedom = variance**2 / (over**2 / max(1, seeds - 1) + over_rows**2 / freedom_rows)
    error = math.sqrt(variance)
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p_value = float(2 * stats.t.sf(abs(mean) / error, freedom))
    return Difference(mean, seeds, mean - half, mean + half, p_value, error, freedom)
