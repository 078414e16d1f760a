"""What seeds and rows say of a difference, and what chance explains of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
MANY = 10
"""Values from which on their bootstrap is taken: with fewer BCa's intervals are too short."""
PLUG_IN = re.compile(r"(^|_)(ece|sece|mce|ks_error|reliability)(_|$)")
"""Columns of calibration errors that are estimated from the rows' own frequencies."""
NOTE = (
    "Calibration errors are plug-in estimates: chance raises each to about its noise floor, which is higher for the"
    " less sharp of two calibrated models. Their differences are no evidence. The squared calibration error has no such"
    " part and is tested."
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
