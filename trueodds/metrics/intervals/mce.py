"""Confidence interval and noise floor of the maximum calibration error (MCE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.intervals.calibration_error import NoiseFloor
from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.processes.choices import Binning
from trueodds.sums.bins import Bins
from trueodds.sums.inputs import Array, check_level

STEPS = 2048
"""Steps of the grid over which the distribution function is summed for the mean (10 ms for 15 bins)."""
NEARLY_ALL = 1 - 1e-9
HALVINGS = 40
SLACK = 1e-9
"""Rounding error of sums, in rows."""


@dataclass(frozen=True)
class MceInterval:
    """The measured MCE, and confidence limits of the population's MCE in the same occupied bins.

    Attributes:
        mce: MCE of the rows.
        lower: Lower limit.
        upper: Upper limit.
        level: Confidence level.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> interval = metrics.mce_interval(sums)
        >>> round(interval.lower, 3), round(interval.upper, 3)
        (0.494, 0.7)
    """

    mce: float
    lower: float
    upper: float
    level: float


def mce_interval(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    level: float = 0.95,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> MceInterval:
    """Compute a confidence interval for the population's MCE over the bins that these rows occupy.

    The population's MCE is `max_b |E a - mean c|`.

    The limits come from the exact binomial (Clopper-Pearson) limits of each bin's accuracy, minus its mean confidence
    c_b. With B occupied bins and q = (1 - level) / 2:

        lower = max_b max(low_b - c_b, c_b - high_b, 0),  limits at (1 - q)^(1/B), so that all bins' limits hold at once
        upper = max_b max(high_b - c_b, c_b - low_b),     limits at `level`

    The upper limit needs no correction for the number of bins. It fails only if the limit of one bin fails, the one
    with the population's MCE. Bins are independent, so the lower limit uses Sidak's correction. The coverage is at
    least `level` for any rows, because unequal rows scatter less than the binomial (Hoeffding 1956).

    A bin with few rows may be wrong by almost anything, and the upper limit shows this. One row at .4 leaves accuracies
    from .025 to 1 possible. Fewer bins, or `binning="mass"`, give each bin enough rows; the MCE is then a different
    one.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        level: Confidence level of both limits together, inside (0, 1).
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The MCE and its limits.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, `ece` does not accept the bins, or
            `level` is outside (0, 1).

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.mce_interval(sums, bins=1).upper, 3)
        0.352
    """
    check_level(level)
    table, share_B = _occupied_bins(whole_bins(as_sums(predictions, labels_N, classes), bins, binning))
    q, right_B = (1 - level) / 2, np.minimum(table.correct_B, table.count_B)
    low_B, high_B = binomial_interval(right_B, table.count_B, level=(1 - q) ** (1 / len(share_B)))
    lower = max(float(np.maximum(low_B - share_B, share_B - high_B).max()), 0.0)
    low_B, high_B = binomial_interval(right_B, table.count_B, level=level)
    upper = float(np.maximum(high_B - share_B, share_B - low_B).max())
    return MceInterval(float((np.abs(table.gap_B) / table.count_B).max()), lower, upper, level)


def mce_noise_floor(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> NoiseFloor:
    """Compute the mean and 95th percentile of a perfectly calibrated model's MCE on the same confidences.

    Bins are independent, so the distribution function of the MCE is a product over the occupied bins:

        F(x) = prod_b P(|X_b - sum c| <= n_b x),  mean = integral of 1 - F,  F(p95) >= .95

    X_b is the number of right rows of bin b. It is binomial with the mean and variance that unequal tosses with the
    bin's confidences have (as in `trueodds.metrics.intervals.binomial.mean_deviation`). A normal approximation would
    fail: a bin of one row at .4 is wrong by .4 or .6, and such bins dominate the floor. The result is exact if the rows
    of each bin share one confidence. The integral is summed in 2,048 steps. A percentile below the mean is replaced by
    the mean.

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
        >>> round(metrics.mce_noise_floor(sums).mean, 3)
        0.124
    """
    table, _ = _occupied_bins(whole_bins(as_sums(predictions, labels_N, classes), bins, binning))
    p95, most = (_quantile(table, share) for share in (0.95, NEARLY_ALL))
    middle_G = (np.arange(STEPS) + 0.5) / STEPS * most
    mean = most * float(1 - _chance_within(table, middle_G).mean())
    return NoiseFloor(mean, max(mean, p95))


def _occupied_bins(table: Bins) -> tuple[Bins, Array]:
    """Return the table of the occupied bins, and their mean confidences."""
    columns = (table.lo_B, table.hi_B, table.count_B, table.confidence_B, table.correct_B, table.variance_B)
    some = Bins(*(column[table.count_B > 0] for column in columns))
    return some, np.clip(some.confidence_B / some.count_B, 0.0, 1.0)


def _chance_within(table: Bins, x_G: Array) -> Array:
    """Compute F(x), the probability that no bin is wrong by more than x."""
    rarer_B = np.minimum(table.confidence_B, table.count_B - table.confidence_B)
    some_B = (rarer_B > 1e-12) & (table.variance_B > 1e-12)  # bins that cannot vary may hold rounding errors
    count, mean = table.count_B[some_B], rarer_B[some_B]
    chance = np.maximum(1 - np.minimum(table.variance_B[some_B] / mean, 1.0), 1e-12)  # the smallest: Poisson
    away_GB = x_G[:, None] * count + SLACK
    trials, chance_GB = mean / chance, np.broadcast_to(chance, away_GB.shape)
    most_GB, least_GB = np.floor(mean + away_GB), np.ceil(mean - away_GB)
    within_GB = _at_most(most_GB, trials, chance_GB) - _at_most(least_GB - 1, trials, chance_GB)
    probability_G: Array = np.maximum(within_GB, 0.0).prod(axis=1)
    return probability_G


def _at_most(k_GB: Array, trials_B: Array, chance_GB: Array) -> Array:
    """Compute P(X <= k) for a binomial whose number of trials need not be a whole number."""
    left_GB = trials_B - k_GB
    inside_GB = (k_GB >= 0) & (left_GB > 0)
    tail_GB = scipy.special.betainc(
        np.where(inside_GB, left_GB, 1.0), np.where(inside_GB, k_GB + 1, 1.0), 1 - chance_GB
    )
    probability_GB: Array = np.where(inside_GB, tail_GB, np.where(k_GB < 0, 0.0, 1.0))
    return probability_GB


def _quantile(table: Bins, level: float) -> float:
    """Find the least x with F(x) >= level, rounded up by a billionth."""
    low, high = 0.0, 1.0
    if float(_chance_within(table, np.zeros(1))[0]) >= level:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(_chance_within(table, np.array([middle]))[0]) >= level:
            high = middle
        else:
            low = middle
    return min(high + SLACK, 1.0)
