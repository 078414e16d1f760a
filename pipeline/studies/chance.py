"""What seeds and rows say of a difference, and what chance explains of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
MANY = 10
"""Values from which on their bootstrap is taken: with fewer BCa's intervals are too short."""
RESAMPLES = 1000
BLOCK = 100
"""Resamples whose weights are in memory at once."""


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
    """A mean difference to the baseline on the same rows and seeds: interval, p-value of none, and how many seeds."""

    mean: float
    lower: float
    upper: float
    p_value: float
    seeds: int


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


def of_ece(
    confidence_SN: npt.ArrayLike,
    hit_SN: npt.ArrayLike,
    baseline_confidence_SN: npt.ArrayLike,
    baseline_hit_SN: npt.ArrayLike,
    *,
    bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Of the top label's ECE (equal width, bins (lo, hi]): the variance over rows is that of RESAMPLES bootstraps of
    the rows, the same for both models and all seeds; the rest as `of_rows`.

    Raises:
        ValueError: arrays of different shapes, or no rows.
    """
    arrays = [np.asarray(x, np.float64) for x in (confidence_SN, hit_SN, baseline_confidence_SN, baseline_hit_SN)]
    if len({x.shape for x in arrays}) > 1 or arrays[0].ndim != 2 or not arrays[0].size:
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise ValueError(f"the arrays have shapes {shapes}; allowed is one shape (seeds, rows) for all")
    seeds, rows = arrays[0].shape
    ours, theirs = (_binned(arrays[k], arrays[k + 1], bins) for k in (0, 2))
    both = np.concatenate([*ours, *theirs], axis=1)
    sign = np.repeat([1.0, -1.0], seeds)

    def differences(weights_BN: Array) -> Array:
        gaps = np.abs((weights_BN @ both).reshape(len(weights_BN), 2 * seeds, bins)).sum(axis=2) / rows
        found: Array = (gaps * sign).reshape(len(weights_BN), 2, seeds).sum(axis=1)
        return found

    draw = np.random.default_rng(seed)
    shares = np.full(rows, 1 / rows)
    drawn = [
        differences(draw.multinomial(rows, shares, size=BLOCK).astype(np.float64)).mean(axis=1)
        for _ in range(RESAMPLES // BLOCK)
    ]
    return _difference(differences(np.ones((1, rows)))[0], float(np.concatenate(drawn).var(ddof=1)), rows - 1, level)


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
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, seeds)
    freedom = variance**2 / (over**2 / max(1, seeds - 1) + over_rows**2 / freedom_rows)
    error = math.sqrt(variance)
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return Difference(mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, freedom)), seeds)


def _binned(confidence_SN: Array, hit_SN: Array, bins: int) -> list[Any]:
    """Of each seed confidence minus hit, in the column of the row's bin, N x bins."""
    place_SN = np.clip(np.ceil(confidence_SN * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for place_N, gap_N in zip(place_SN, confidence_SN - hit_SN, strict=True):
        of_bins = np.zeros((len(gap_N), bins))
        of_bins[np.arange(len(gap_N)), place_N] = gap_N
        found.append(of_bins)
    return found
