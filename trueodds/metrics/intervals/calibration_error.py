"""Uncertainty of a measured ECE: noise floor, less biased estimate and confidence interval, from sums alone.

Notation for a bin b of n rows: S_b = sum (a-c) / n, w_b = n_b / n, V_b = sum c(1-c) / n^2, K_b = sum (1-2c) / n^2 and
Q_b = n_b / n^2. If rows have weights (`trueodds.metrics.labelling.weighted_ece`), each row's weight w takes the
place of 1 / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.intervals.binomial import binomial_interval, mean_deviation
from trueodds.metrics.intervals.inversion import GapTerms, Search
from trueodds.metrics.intervals.rare_errors import exact_floor, rare_counts
from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.processes.choices import Binning
from trueodds.sums.bins import CELLS, Bins
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.sums import CalibrationSums

RARE = 20  # with fewer wrong (or right) answers the normal approximation fails, so exact binomial limits are added


@dataclass(frozen=True)
class NoiseFloor:
    """The ECE that a perfectly calibrated model would show on as many rows with the same confidences.

    Attributes:
        mean: Mean of this ECE.
        p95: 95th percentile of this ECE.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> floor = metrics.noise_floor(sums)
        >>> floor.mean < floor.p95
        True
    """

    mean: float
    p95: float


@dataclass(frozen=True)
class EceInterval:
    """Plug-in ECE, a less biased estimate, and a confidence interval for the population's ECE in the same bins.

    `level` is the confidence level of both limits together. At .95, neither `lower` alone nor `upper` alone is a limit
    at 97.5%.

    Attributes:
        ece: Plug-in ECE of the rows.
        estimate: Estimate of the population's ECE.
        lower: Lower limit.
        upper: Upper limit.
        level: Confidence level.

    Examples:
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
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> NoiseFloor:
    """Compute the mean and 95th percentile of the plug-in ECE under perfect calibration.

        mean = sum_b D_b / n,    variance = sum_b (n^2 V_b - D_b^2) / n^2,    D_b = E|right rows - their mean| of bin b

    D_b is `trueodds.metrics.intervals.binomial.mean_deviation`. The percentile is that of the gamma distribution with
    this mean and variance. Compared with exact Monte Carlo it is within 1% (mean) and 2.6% (percentile) from 50 rows
    on, in 15 to 1,000 bins. If all rows share one confidence, up to 6.5% of samples exceed the percentile.

    If fewer than 20 wrong answers are expected (or right ones; in each bin the rarer kind counts), the exact
    distribution is used (`trueodds.metrics.intervals.rare_errors`). Rows count at the mean confidence of their cell.
    Then at most 5% of samples exceed the percentile; the gamma's percentile was exceeded in up to 14%. Few errors have
    few possible values, so fewer samples may exceed it. A percentile below the mean is replaced by the mean; this
    happens if a single error is rare but large.

    Bins of equal mass are unions of cells (`whole_bins`), as for `ece_interval`.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The mean and the 95th percentile.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.noise_floor(sums).mean, 4)
        0.0657
    """
    sums = as_sums(predictions, labels_N, classes)
    table = whole_bins(sums, bins, binning)
    deviation_B = mean_deviation(table.confidence_B, table.count_B, table.variance_B)
    mean = float(deviation_B.sum()) / table.n
    variance = float((table.variance_B - deviation_B**2).sum()) / table.n**2
    if mean == 0 or variance <= 1e-12 * mean**2:  # the ECE cannot vary: certain answers, or a single row at .5
        return NoiseFloor(mean, mean)
    if float(np.minimum(table.confidence_B, table.count_B - table.confidence_B).sum()) < RARE:
        return _rare_floor(sums, table)
    return NoiseFloor(mean, float(scipy.special.gammaincinv(mean**2 / variance, 0.95)) * variance / mean)


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
    classes: Sequence[object] | None = None,
) -> EceInterval:
    """Compute a confidence interval for the population's binned ECE by inverting its test.

    (The bootstrap's coverage is as low as 0.) If the true gaps of the bins are s, the plug-in ECE is distributed as

        T*(s) = sum_b |s_b + sqrt(v_b(s)) Z_b|,    v_b(s) = max(V_b + g_b K_b, g_b^2 Q_b),    g_b = s_b / w_b

    where v_b is a score interval's variance. Along a direction u, theta(u, p) is the theta >= 0 with
    P(T*(theta u) <= T) = p. With q = (1 - level) / 2:

        lower = min(theta(raw, 1-q), theta(kept, 1-q)),  estimate = theta(raw, 1/2),  upper = theta(raised, q)

    The three directions are needed because the upward bias depends on whether few bins carry the error or all of them:

    - raw: u ~ S_b.
    - kept: only bins with `|S_b| > 2 sd_b`, or the most significant bin if there are none.
    - raised: `|S_b|` raised to at least sd_b.

    The estimate is more often too high than too low if the error is confined to few bins (only the highest confidences
    are over-confident, say) or if there are many bins. With 2,000 rows of shape B (benchmarks/shapes.py), right answers
    at .97 c and 100 bins, it is at or below the truth in 1% of samples instead of 50%.

    With fewer than 20 wrong (or fewer than 20 right) rows, the interval also covers the exact binomial
    (Clopper-Pearson) limits of `|accuracy - mean confidence|`, which is a part of every ECE. Ten right answers at .999
    leave accuracies down to .69 possible, and normal draws do not show that. Without these limits, coverage is 0 to .4
    at ECE .01 and 10 to 50 rows. With more rows they are left out, because they ignore that rows differ and would add a
    fifth to the width.

    A plug-in ECE can be so small by luck that no theta fits. An ECE of 0 in n rows of confidence .5, for example, would
    give the interval [0, 0]. So the upper limit is also at least z sqrt(sum_b V_b), the precision of the signed gap.

    `level` is the confidence level of both limits together. The lower limit alone is not a 97.5% limit: it is above the
    truth in up to 5% of samples if the model is calibrated or the error is confined to few answers. The upper limit
    alone is below the truth in up to 3.3%.

    Measured coverage at a nominal 95% (benchmarks/intervals/ece.py): at least 93.7% in 72 settings, 500 to 50,000 rows,
    with rare errors from 10 rows on. The interval is valid for one look at a fixed number of rows, not for repeated
    looks. Levels above .999 are beyond the resolution of the 4,096 fixed draws.

    Bins of equal mass end at whole cells, the nearest to equal shares (`whole_bins`). The halves of a divided cell
    would share one gap and look like two gaps that agree by chance. The confidences alone decide the cuts, so the
    interval stays valid given the confidences. `EceInterval.ece` is the plug-in value in those bins; the function `ece`
    cuts through cells.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        level: Confidence level of both limits together, inside (0, 1).
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The plug-in ECE, the estimate and the limits.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, `ece` does not accept the bins, or
            `level` is outside (0, 1).

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.ece_interval(sums, level=0.9).upper, 3)
        0.497
    """
    table = whole_bins(as_sums(predictions, labels_N, classes), bins, binning)
    n, skew_B = table.n, table.count_B - 2 * table.confidence_B
    parts = (table.gap_B / n, table.count_B / n, table.variance_B / n**2, skew_B / n**2, table.count_B / n**2)
    empty = min(bins, CELLS) - len(table.count_B)  # padding: equal-mass bins that were merged share one table of draws
    terms = GapTerms(*(np.pad(part, (0, empty)) for part in parts))
    # the plug-in value equals that of `ece` bit for bit
    return interval_of(terms, float(np.abs(table.gap_B).sum() / n), float(table.correct_B.sum()) / n, level)


@dataclass(frozen=True)
class Dependence:
    """Dependence between the gaps of the bins, if rows are not independent (`trueodds.metrics.intervals.clustered`)."""

    correlation_BB: Array
    """Covariance of the gaps, where independent rows would have the identity matrix."""
    draws_BR: Array
    """Draws of the gaps' noise with this covariance."""
    rare_limits: tuple[float, float] | None
    """Limits of `|accuracy - mean confidence|` for rare hits or misses; None: neither is rare."""


def interval_of(
    terms: GapTerms, observed: float, accuracy: float, level: float, dependence: Dependence | None = None
) -> EceInterval:
    """Compute the interval of `ece_interval` from the terms of its bins, the plug-in ECE and the accuracy.

    Args:
        terms: Terms of the bins.
        observed: The plug-in ECE.
        accuracy: Share of right rows.
        level: Confidence level of both limits together.
        dependence: Dependence between the gaps of the bins. None: they are independent.

    Raises:
        ValueError: `level` is outside (0, 1).
    """
    check_level(level)
    q, n = (1 - level) / 2, terms.effective_n
    gap_B, weight_B = terms.gap_B, terms.weight_B
    search = Search(terms, observed, None if dependence is None else dependence.draws_BR)
    spread_B = np.sqrt(np.maximum(search.variance(gap_B), terms.variance_B))
    if dependence is not None:
        spread_B = spread_B * np.sqrt(dependence.correlation_BB.diagonal())
    sign_B = np.where(gap_B < 0, -1.0, 1.0)
    score_B = np.divide(np.abs(gap_B), spread_B, out=np.zeros_like(gap_B), where=spread_B > 0)
    kept_B = score_B > 2 if (score_B > 2).any() else np.arange(len(gap_B)) == score_B.argmax()
    raw, kept = _unit(gap_B, weight_B), _unit(np.where(kept_B, gap_B, 0.0), weight_B)
    raised = _unit(sign_B * np.maximum(np.abs(gap_B), spread_B), weight_B)
    lower = search.theta(raw, 1 - q)
    if (kept != raw).any():
        lower = min(lower, search.theta(kept, 1 - q))
    estimate, upper = search.theta(raw, 0.5), search.theta(raised, q)
    limits, variance = None, float(terms.variance_B.sum())
    if dependence is not None:
        limits, noise_B = dependence.rare_limits, np.sqrt(terms.variance_B)
        variance = float(noise_B @ dependence.correlation_BB @ noise_B)
    elif min(accuracy, 1 - accuracy) * n < RARE - 1e-6:  # 20 of 400 must not count as 19.999...
        limits = exact_gap_limits(accuracy, accuracy - float(gap_B.sum()), n, q)
    if limits is not None:
        lower, upper = min(lower, limits[0]), max(upper, limits[1])
    certain = -float(scipy.special.ndtri(q)) * float(np.sqrt(variance))
    return EceInterval(observed, estimate, lower, min(max(upper, estimate, certain), 1.0), level)


def _unit(direction_B: Array, weight_B: Array) -> Array:
    """Scale to `sum |u| = 1`. If there is no gap to point along, follow the rows."""
    total = np.abs(direction_B).sum()
    return direction_B / total if total > 0 else weight_B


def exact_gap_limits(accuracy: float, confidence: float, n: float, q: float) -> tuple[float, float]:
    """Return limits of `|accuracy - mean confidence|`, by exact binomial limits of the accuracy."""
    low, high = (float(limit) for limit in binomial_interval(min(accuracy * n, n), n, level=1 - 2 * q))
    return max(low - confidence, confidence - high, 0.0), max(confidence - low, high - confidence)
