"""Intervals of figures that are pooled over the labels of rows, where one row is one draw.

The answers about the labels of one row depend on each other: if a photo shows snow, it seldom shows a beach. Pooled
figures therefore take the row as the unit. Notation: N rows with M pairs of a row and a label whose truth is known. A
pair has the probability p and the truth a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.intervals.calibration_error import (
    Dependence,
    EceInterval,
    NoiseFloor,
    ece_interval,
    interval_of,
    noise_floor,
)
from trueodds.metrics.intervals.inversion import DRAWS, GapTerms, normals
from trueodds.metrics.intervals.proper_scores import Parts, rare_errors
from trueodds.metrics.ranked import whole_bins
from trueodds.processes.choices import Binning
from trueodds.sums.inputs import Array
from trueodds.sums.sums import CalibrationSums

FEW = 50
"""Effective number of rows below which limits of skewed sums come from gamma quantiles.

It is more than the 20 single errors of `trueodds.metrics.intervals.calibration_error`, because the sizes of clusters
differ. With 20, intervals of 100 rows with 200 rare, dependent labels covered in 88% of the samples.
"""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a row and a label with a known truth."""

    p_M: Array
    """Probability of each pair."""
    hit_M: npt.NDArray[np.bool_]
    """Whether the label is true."""
    row_M: npt.NDArray[np.intp]
    """Number of the row, 0 to N - 1. Every row has a pair."""

    @property
    def rows(self) -> int:
        """Number N of rows."""
        return int(self.row_M.max()) + 1 if len(self.row_M) else 0

    @property
    def is_single(self) -> bool:
        """Whether no row has two pairs."""
        return self.rows == len(self.row_M)

    def by_row(self, value_M: npt.ArrayLike) -> Array:
        """Add a value of the pairs for each row."""
        return np.bincount(self.row_M, np.asarray(value_M, np.float64), self.rows).astype(np.float64)


@dataclass(frozen=True)
class RowLimits:
    """A value and its confidence limits."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class ClusteredEce:
    """ECE of pooled pairs: its interval, its noise floor, and how much the rows' dependence matters in each bin."""

    interval: EceInterval
    floor: NoiseFloor
    effect_B: Array
    """Design effect of each bin: variance of its gap, divided by that of independent pairs. At least 1."""


def clustered_ece(
    sums: CalibrationSums, pairs: Pairs, *, bins: int = 15, binning: Binning = "mass", level: float = 0.95
) -> ClusteredEce:
    """Compute the interval and the noise floor of the pooled ECE, with the row as the unit.

    The interval inverts the test of `ece_interval`, with dependent noise of the bins:

        T*(s) = sum_b |s_b + sqrt(v_b(s)) Z_b|,    Z = t N(0, R),    R = D^-1/2 (sum_i e_i e_i^T) D^-1/2

    e_ib is the sum of (a - p) - g_b over the pairs of row i in bin b, and g_b is the mean gap of the bin. D_b is the
    sum of ((a - p) - g_b)^2 over its pairs. So R is the identity if every row has one pair, and its diagonal holds the
    design effects (Kish 1965). They are raised to at least 1. t^2 = f / chi^2_f (Student) allows for few rows. f is
    (sum_i q_i)^2 / sum_i q_i^2 - 1, the effective number of rows less one. q_i is the sum of ((a - p) - g_b)^2 over the
    pairs of row i.

    If the true labels are in few rows (or the false ones), the interval also covers limits of |share of true labels -
    mean probability|, from gamma quantiles of `count_limits`.

    The noise floor is the mean and the 95th percentile of T*(0), without t.

    If every row has one pair, the result is that of `ece_interval` and `noise_floor`.

    Args:
        sums: Calibration sums of the pairs, by p.
        pairs: The pairs.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of pairs).
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The interval, the floor, and the design effects of the bins.

    Raises:
        ValueError: `ece` does not accept the bins, or `level` is outside (0, 1).

    References:
        Kish 1965, Survey sampling. Liang and Zeger 1986, Longitudinal data analysis using generalized linear models.
        Fay and Feuer 1997, Confidence intervals for directly standardized rates.

    Examples:
        >>> from trueodds.metrics.intervals.clustered import Pairs, clustered_ece
        >>> p, hits = np.full(400, 0.5), np.arange(400) % 4 < 2
        >>> sums = metrics.CalibrationSums.from_top(p, hits)
        >>> alone = clustered_ece(sums, Pairs(p, hits, np.arange(400)))
        >>> twins = clustered_ece(sums, Pairs(p, hits, np.arange(400) // 2))
        >>> twins.effect_B.round(1), twins.interval.upper > 1.3 * alone.interval.upper
        (array([2.]), True)
    """
    table = whole_bins(sums, bins, binning)
    if pairs.is_single:
        alone = ece_interval(sums, bins=bins, binning=binning, level=level)
        return ClusteredEce(alone, noise_floor(sums, bins=bins, binning=binning), np.ones(len(table.count_B)))
    n, columns = table.n, len(table.count_B)
    bin_M = bins_of_pairs(table.hi_B, pairs.p_M)
    mean_gap_B = np.divide(table.gap_B, table.count_B, out=np.zeros(columns), where=table.count_B > 0)
    residual_M = pairs.hit_M - pairs.p_M - mean_gap_B[bin_M]
    sums_NB = np.bincount(pairs.row_M * columns + bin_M, residual_M, pairs.rows * columns).reshape(-1, columns)
    own_B = np.bincount(bin_M, residual_M**2, columns)
    scale_B = np.divide(1.0, np.sqrt(own_B), out=np.zeros(columns), where=own_B > 0)
    correlation_BB: Array = np.asarray((sums_NB.T @ sums_NB) * scale_B * scale_B[:, None], np.float64)
    effect_B = np.maximum(correlation_BB.diagonal(), 1.0)
    np.fill_diagonal(correlation_BB, effect_B)
    value_B, vector_BB = np.linalg.eigh(correlation_BB)
    root_BB = (vector_BB * np.sqrt(np.maximum(value_B, 0.0))) @ vector_BB.T
    normal_BR = root_BB @ normals(columns)
    draws_BR = normal_BR * _student(effective_number(pairs.by_row(residual_M**2)) - 1)
    hits = float(table.correct_B.sum())
    rare = _rare_limits(pairs, n, (1 - level) / 2)
    dependence = Dependence(correlation_BB, draws_BR, rare)
    skew_B = table.count_B - 2 * table.confidence_B
    parts = (table.gap_B / n, table.count_B / n, table.variance_B / n**2, skew_B / n**2, table.count_B / n**2)
    interval = interval_of(GapTerms(*parts), float(np.abs(table.gap_B).sum() / n), hits / n, level, dependence)
    chance_R = (np.sqrt(np.maximum(table.variance_B, 0.0)) @ np.abs(normal_BR)) / n
    floor = NoiseFloor(float(chance_R.mean()), float(np.quantile(chance_R, 0.95)))
    return ClusteredEce(interval, floor, effect_B)


def bins_of_pairs(hi_B: npt.ArrayLike, p_M: Array) -> npt.NDArray[np.intp]:
    """Return the bin of each probability: the first whose upper end is not below it."""
    hi_B = np.asarray(hi_B, np.float64)
    return np.minimum(np.searchsorted(hi_B, p_M, side="left"), len(hi_B) - 1)


def effective_number(weight_N: Array) -> float:
    """Compute (sum w)^2 / sum w^2, the number of equal weights that would be as even; 0 if all are 0."""
    square = float(weight_N @ weight_N)
    return float(weight_N.sum()) ** 2 / square if square > 0 else 0.0


def count_limits(count_N: Array, least: float, q: float) -> tuple[float, float]:
    """Compute limits of the expected sum of counts that come in clusters, at q on each side.

        lower = v/y G(q; y^2/v),   upper = v'/y' G(1-q; y'^2/v'),   y' = y + w,  v' = v + w^2

    y is the sum of the counts, v is that of their squares, and G is the quantile of the gamma distribution. These are
    the limits of Fay and Feuer (1997). If all counts are 0 or 1, they are the exact limits of a Poisson count. w is the
    size of one more cluster: the largest count, and at least `least`.
    """
    total, square = float(count_N.sum()), float(count_N @ count_N)
    more = max(float(count_N.max(initial=0.0)), least)
    lower = square / total * float(scipy.special.gammaincinv(total**2 / square, q)) if total else 0.0
    total, square = total + more, square + more**2
    return lower, square / total * float(scipy.special.gammaincinv(total**2 / square, 1 - q))


def clustered_share(pairs: Pairs, level: float) -> RowLimits:
    """Compute the share of true labels among the pairs, and its limits.

    The limits are Student's, of the rows (see `clustered_mean`). If true or false labels are in few rows, they also
    include those of `count_limits`.
    """
    limits = clustered_mean(pairs, pairs.hit_M, level)
    share = _rare_share(pairs, (1 - level) / 2)
    low, high = (limits.lower, limits.upper) if share is None else share
    return RowLimits(limits.value, max(min(low, limits.lower), 0.0), min(max(high, limits.upper), 1.0))


def clustered_gap(pairs: Pairs, level: float) -> RowLimits:
    """Compute the mean of a - p over the pairs, and its limits given the probabilities, as `clustered_share` does."""
    limits, mean = clustered_mean(pairs, pairs.hit_M - pairs.p_M, level), float(pairs.p_M.mean())
    share = _rare_share(pairs, (1 - level) / 2)
    low, high = (limits.lower, limits.upper) if share is None else (share[0] - mean, share[1] - mean)
    return RowLimits(limits.value, max(min(low, limits.lower), -mean), min(max(high, limits.upper), 1 - mean))


def clustered_mean(pairs: Pairs, value_M: npt.ArrayLike, level: float) -> RowLimits:
    """Compute the mean of a value over the pairs, and Student's limits with the row as the unit.

        m = sum_i x_i / sum_i n_i,   r_i = x_i - m n_i,   m +- t_f sqrt(N / (N-1) sum_i r_i^2) / sum_i n_i

    x_i is the sum over the n_i pairs of row i. f = (sum r_i^2)^2 / sum r_i^4 - 1, at least 1, allows for rows that
    dominate. With one row the limits are infinite.
    """
    total_N, size_N = pairs.by_row(value_M), pairs.by_row(np.ones(len(pairs.p_M)))
    mean, rows = float(total_N.sum() / size_N.sum()), pairs.rows
    if rows == 1:
        return RowLimits(mean, -np.inf, np.inf)
    square_N = (total_N - mean * size_N) ** 2
    t = float(scipy.special.stdtrit(max(effective_number(square_N) - 1, 1.0), (1 + level) / 2))
    away = t * float(np.sqrt(rows / (rows - 1) * square_N.sum())) / float(size_N.sum())
    return RowLimits(mean, mean - away, mean + away)


def clustered_score(pairs: Pairs, loss_M: Array, if_wrong_M: Array, most: float, level: float) -> RowLimits:
    """Compute the mean of a score over the pairs, and its limits with the row as the unit.

    The limits are those of `clustered_mean`. If fewer than 50 rows (by their effective number) have a pair whose more
    probable answer was wrong, they are those of `trueodds.metrics.intervals.proper_scores`, with the row as the unit.
    One more such row then costs as much as the dearest one so far.

    Args:
        pairs: The pairs.
        loss_M: Score of each pair.
        if_wrong_M: Score of each pair if its more probable answer were wrong.
        most: Largest possible mean.
        level: Confidence level of both limits together.
    """
    wrong_M = (pairs.p_M > 0.5) != pairs.hit_M
    wrong_N, right_N = pairs.by_row(np.where(wrong_M, loss_M, 0.0)), pairs.by_row(np.where(wrong_M, 0.0, loss_M))
    limits = clustered_mean(pairs, loss_M, level)
    rows, count = pairs.rows, len(loss_M)
    if rows > 1 and effective_number(wrong_N) < FEW:
        t = float(scipy.special.stdtrit(rows - 1, (1 + level) / 2))
        dearest = max(float(if_wrong_M.mean()), float(wrong_N.max()))
        sums = (float(right_N.sum()), float(right_N @ right_N), float(wrong_N.sum()), float(wrong_N @ wrong_N))
        below, above = rare_errors(Parts(*sums, dearest, 0.0), rows, t, (1 - level) / 2)
        value = limits.value
        limits = RowLimits(value, value - below / count, value + above / count)
    return RowLimits(limits.value, max(limits.lower, 0.0), min(limits.upper, most))


def design_effect(pairs: Pairs) -> float:
    """Compute how many times the variance of the mean of a - p is that of independent pairs.

    It is sum_i r_i^2 / sum (a - p - g)^2, with the row sums r_i of a - p - g and the mean gap g.
    """
    gap_M = pairs.hit_M - pairs.p_M
    gap_M = gap_M - gap_M.mean()
    own = float(gap_M @ gap_M)
    return float(np.square(pairs.by_row(gap_M)).sum()) / own if own > 0 else 1.0


def _student(freedom: float) -> Array:
    """Return t of Z = t N(0, R) for each draw, in a fixed order; 1 with very many rows."""
    rank_R = np.random.default_rng(20261127).permutation(DRAWS)
    half = max(freedom, 1.0) / 2
    factor_R: Array = np.sqrt(half / scipy.special.gammaincinv(half, (rank_R + 0.5) / DRAWS))
    return factor_R


def _rare_share(pairs: Pairs, q: float) -> tuple[float, float] | None:
    """Return limits of the share of true labels if true or false ones are in few rows; None otherwise."""
    hits_N, n = pairs.by_row(pairs.hit_M), len(pairs.p_M)
    misses_N = pairs.by_row(~pairs.hit_M)
    hits_are_rarer = float(hits_N.sum()) <= float(misses_N.sum())
    rarer_N = hits_N if hits_are_rarer else misses_N
    if effective_number(rarer_N) >= FEW:
        return None
    low, high = (limit / n for limit in count_limits(rarer_N, 1.0, q))
    return (low, min(high, 1.0)) if hits_are_rarer else (max(1 - high, 0.0), 1 - low)


def _rare_limits(pairs: Pairs, n: float, q: float) -> tuple[float, float] | None:
    """Return limits of |share of true labels - mean probability| if true or false ones are in few rows."""
    share, mean = _rare_share(pairs, q), float(pairs.p_M.sum()) / n
    if share is None:
        return None
    return max(share[0] - mean, mean - share[1], 0.0), max(mean - share[0], share[1] - mean)
