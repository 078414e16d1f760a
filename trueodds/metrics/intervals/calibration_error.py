"""How sure a measured ECE is: noise floor, an estimate of less bias and a confidence interval, from sums alone.

Notation: per bin b of n rows, S_b = sum (a-c) / n, w_b = n_b / n, V_b = sum c(1-c) / n^2, K_b = sum (1-2c) / n^2,
Q_b = n_b / n^2. Where rows have weights (`trueodds.metrics.labelling.weighted`), w = 1 / n is replaced by each
row's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

from trueodds.metrics.intervals.binomial import binomial_interval, mean_deviation
from trueodds.metrics.intervals.inversion import GapTerms, Search
from trueodds.metrics.intervals.rare_errors import exact_floor, rare_counts
from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.bins import CELLS, Binning, Bins
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.sums import CalibrationSums

RARE = 20  # fewer wrong (or right) answers than this are not normally distributed: exact binomial limits join in


@dataclass(frozen=True)
class NoiseFloor:
    """The ECE that a perfectly calibrated model would show on as many rows with the same confidences.

    >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
    >>> floor = metrics.noise_floor(sums)
    >>> floor.mean < floor.p95
    True
    """

    mean: float
    p95: float


@dataclass(frozen=True)
class EceInterval:
    """Plug-in ECE, an estimate of less bias, and the interval for the population's ECE in the same bins.

    `level` is that of the pair: at .95 neither `lower` alone nor `upper` alone is a limit at 97.5%.

    >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
    >>> interval = metrics.ece_interval(sums)
    >>> round(interval.lower, 3), round(interval.upper, 3)
    (0.299, 0.52)
    """

    ece: float
    estimate: float
    lower: float
    upper: float
    level: float


def noise_floor(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, binning: Binning = "width"
) -> NoiseFloor:
    """Mean and 95th percentile of the plug-in ECE under perfect calibration.

    mean = sum_b D_b / n, variance = sum_b (n^2 V_b - D_b^2) / n^2, with D_b = E|right rows - their mean| of each bin
    (`trueodds.metrics.intervals.binomial.mean_deviation`); the percentile is that of the gamma distribution with this
    mean and variance. Against exact Monte Carlo within 1% (mean) and 2.6% (percentile) from 50 rows on, in 15 to 1,000
    bins; where all rows share one confidence up to 6.5% of samples exceed the percentile.

    Where fewer than 20 wrong answers are expected (or right ones: in each bin whichever are rarer), both are those of
    the exact distribution (`trueodds.metrics.intervals.rare_errors`), rows taken at the mean confidence of their cell:
    no more than 5% of samples exceed the percentile. The gamma's was exceeded in up to 14% there. What few errors can
    show is discrete, so fewer may exceed it, and the percentile is given as the mean where it lies below: a single
    error is then rare, but far off.

    Bins of equal mass are unions of cells (`trueodds.metrics.ranked.whole_bins`), as for `ece_interval`.

    Raises:
        ValueError: bad input, no rows, an unknown binning, or bins that `ece` refuses.

    >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
    >>> round(metrics.noise_floor(sums).mean, 4)
    0.0657
    """
    sums = as_sums(predictions, labels_N)
    table = whole_bins(sums, bins, binning)
    deviation_B = mean_deviation(table.confidence_B, table.count_B, table.variance_B)
    mean = float(deviation_B.sum()) / table.n
    variance = float((table.variance_B - deviation_B**2).sum()) / table.n**2
    if mean == 0 or variance <= 1e-12 * mean**2:  # certain answers, or a single row at .5: the ECE cannot vary
        return NoiseFloor(mean, mean)
    if float(np.minimum(table.confidence_B, table.count_B - table.confidence_B).sum()) < RARE:
        return _rare_floor(sums, table)
    return NoiseFloor(mean, float(gammaincinv(mean**2 / variance, 0.95)) * variance / mean)


def _rare_floor(sums: CalibrationSums, table: Bins) -> NoiseFloor:
    count_I, confidence_I, _, edge_I = sums.groups()
    bin_I = np.searchsorted(table.hi_B, edge_I)
    bin_B, start_B = np.unique(bin_I, return_index=True)
    wrong_B = table.count_B - table.confidence_B
    is_wrong_rarer_I = (wrong_B <= table.confidence_B)[bin_I]
    share_I = np.clip(confidence_I / count_I, 0.0, 1.0)
    probability_BK = rare_counts(count_I, np.where(is_wrong_rarer_I, 1 - share_I, share_I), start_B)
    mean, p95 = exact_floor(probability_BK, np.minimum(wrong_B, table.confidence_B)[bin_B], 0.95)
    return NoiseFloor(mean / table.n, max(mean, p95) / table.n)


def ece_interval(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    level: float = 0.95,
    binning: Binning = "width",
) -> EceInterval:
    """Interval for the population's binned ECE by inverting its test; the bootstrap's coverage is as low as 0.

    If the true per-bin gaps are s, the plug-in ECE is distributed as T*(s) = sum_b |s_b + sqrt(v_b(s)) Z_b| with
    v_b(s) = max(V_b + g_b K_b, g_b^2 Q_b), g_b = s_b / w_b (a score interval's variance). Along a direction u
    theta(u, p) is the theta >= 0 with P(T*(theta u) <= T) = p. With q = (1 - level) / 2:

        lower = min(theta(raw, 1-q), theta(kept, 1-q)),  estimate = theta(raw, 1/2),  upper = theta(raised, q)

    raw: u ~ S_b; kept: only bins with |S_b| > 2 sd_b (none: the most significant one); raised: |S_b| lifted to sd_b.
    Three directions, because the upward bias depends on whether few bins carry the error or all of them.

    The estimate is more often too high than too low where the error is confined to few bins (only the highest
    confidences are over-confident, say), or the bins are many: 2,000 rows of shape B with right answers at .97 c, in
    100 bins, leave it at or below the truth in 1% of samples instead of 50%.

    With fewer than 20 wrong (or fewer than 20 right) rows the interval also covers the exact binomial
    (Clopper-Pearson) limits of |accuracy - mean confidence|, the part of the ECE that all bins share: ten right answers
    at .999 leave accuracies down to .69 open, and normal draws do not see that (without, coverage is 0 to .4 at
    ECE .01 and 10 to 50 rows). Not with more: those limits ignore that rows differ, and cost a fifth of width.

    An ECE that is small by luck would leave no theta at all (0 in n rows at .5: an interval of [0, 0]), so the upper
    limit is also at least z sqrt(sum_b V_b), the precision of the signed gap.

    The level is that of the pair. The lower limit alone is no 97.5% limit: of calibrated samples, and where the error
    is confined to few answers, it lies above the truth in up to 5%; the upper limit alone lies below it in up to 3.3%.

    Measured coverage at a nominal 95% (benchmarks/intervals/ece.py): at least 93.7% in 72 settings, 500 to 50,000
    rows, with rare errors from 10 rows on. A fixed-n interval: looking after every label and acting on what is seen
    is not covered. Levels above .999 ask more of the 4,096 fixed draws than they can tell.

    Bins of equal mass end at whole cells, the nearest to an equal share (`trueodds.metrics.ranked.whole_bins`): the
    halves of a cell share one gap, and would be taken for two that agree by chance. Where they come is decided by the
    confidences alone, so given these the interval is the same. Its `ece` is the plug-in value in those bins; `ece`
    itself cuts through cells.

    Raises:
        ValueError: bad input, no rows, a level outside (0, 1), an unknown binning, or bins that `ece` refuses.

    >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
    >>> round(metrics.ece_interval(sums, level=0.9).upper, 3)
    0.497
    """
    table = whole_bins(as_sums(predictions, labels_N), bins, binning)
    n, skew_B = table.n, table.count_B - 2 * table.confidence_B
    parts = (table.gap_B / n, table.count_B / n, table.variance_B / n**2, skew_B / n**2, table.count_B / n**2)
    empty = min(bins, CELLS) - len(table.count_B)  # equal mass: one table of draws, however many bins have become one
    terms = GapTerms(*(np.pad(part, (0, empty)) for part in parts))
    # to the last bit what `ece` gives
    return interval_of(terms, float(np.abs(table.gap_B).sum() / n), float(table.correct_B.sum()) / n, level)


def interval_of(terms: GapTerms, observed: float, accuracy: float, level: float) -> EceInterval:
    """The interval of `ece_interval` from the terms of its bins, the plug-in ECE sum_b |S_b| and the accuracy.

    Raises:
        ValueError: a level outside (0, 1).
    """
    check_level(level)
    q, n = (1 - level) / 2, terms.effective_n
    gap_B, weight_B = terms.gap_B, terms.weight_B
    search = Search(terms, observed)
    spread_B = np.sqrt(np.maximum(search.variance(gap_B), terms.variance_B))
    sign_B = np.where(gap_B < 0, -1.0, 1.0)
    score_B = np.divide(np.abs(gap_B), spread_B, out=np.zeros_like(gap_B), where=spread_B > 0)
    kept_B = score_B > 2 if (score_B > 2).any() else np.arange(len(gap_B)) == score_B.argmax()
    raw, kept = _unit(gap_B, weight_B), _unit(np.where(kept_B, gap_B, 0.0), weight_B)
    raised = _unit(sign_B * np.maximum(np.abs(gap_B), spread_B), weight_B)
    lower = search.theta(raw, 1 - q)
    if (kept != raw).any():
        lower = min(lower, search.theta(kept, 1 - q))
    estimate, upper = search.theta(raw, 0.5), search.theta(raised, q)
    if min(accuracy, 1 - accuracy) * n < RARE - 1e-6:  # 20 of 400 must not count as 19.999...
        least, most = exact_gap_limits(accuracy, accuracy - float(gap_B.sum()), n, q)
        lower, upper = min(lower, least), max(upper, most)
    certain = -float(ndtri(q)) * float(np.sqrt(terms.variance_B.sum()))
    return EceInterval(observed, estimate, lower, min(max(upper, estimate, certain), 1.0), level)


def _unit(direction_B: Array, weight_B: Array) -> Array:
    """Scaled to sum |u| = 1; without any gap to point along, spread like the rows."""
    total = np.abs(direction_B).sum()
    return direction_B / total if total > 0 else weight_B


def exact_gap_limits(accuracy: float, confidence: float, n: float, q: float) -> tuple[float, float]:
    """Least and most that |accuracy - mean confidence| can be, by the exact binomial limits of the accuracy."""
    low, high = (float(limit) for limit in binomial_interval(min(accuracy * n, n), n, level=1 - 2 * q))
    return max(low - confidence, confidence - high, 0.0), max(confidence - low, high - confidence)
