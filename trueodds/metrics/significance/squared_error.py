"""The binned squared calibration error without its bias, for one model and for the difference of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.scores import Predictions, as_sums
from trueodds.metrics.significance.bounded_mean import BoundedMean
from trueodds.metrics.significance.differences import Difference, of_estimates
from trueodds.metrics.significance.nets import Nets, Seed
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.label_forms import as_rows
from trueodds.sums.rows import top_labels
from trueodds.sums.sums import CalibrationSums

ROUNDING = 1e-15
"""Rounding error when residuals are added in another order."""


@dataclass(frozen=True)
class SquaredCalibrationError:
    """The binned squared calibration error of a model, its interval, and the test against perfect calibration.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.squared_calibration_error(sums).value, 4)
        0.225
    """

    value: float
    """Estimate in squared fractions: .0025 is a gap of five points in every bin. It may be below 0 by chance."""
    lower: float
    upper: float
    p_value: float
    """Probability of a value at least as large if every confidence is the probability of being right."""


def squared_calibration_error(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> SquaredCalibrationError:
    """Estimate sum_b w_b g_b^2 without bias, where g_b = E[a - c] in bin b and w_b is the share of rows there.

    With d = a - c (right or not, minus the confidence), R_b = sum d and Q_b = sum d^2 over the n_b rows of a bin,

        T = 1/n sum_b (R_b^2 - Q_b) / (n_b - 1),    over the bins with n_b >= 2.

    (R_b^2 - Q_b) / (n_b (n_b - 1)) is the mean of d_i d_j over pairs of different rows. It is also the product of the
    mean gaps of two halves, averaged over all splits, and the plug-in square less its variance s_b^2 / n_b. So
    E[T] = sum_b w_b g_b^2 (1 - (1 - w_b)^{n-1}), with the last factor for bins of a single row. The bins have equal
    widths of confidence, fixed before the labels are seen. Errors of opposite sign within a bin cancel. So the estimand
    is the binned error, which is at most the squared error over single confidences.

    The interval is T plus and minus the widest of three widths. One is the quantile of `|T|` when labels are drawn from
    the confidences, because T has no normal limit for a calibrated model. Another is Student's, with the variance of
    the delete-one jackknife, which is too large on average (Efron and Stein 1981). If all confidences are 0 or 1, the
    third is that of the exact binomial limits of the share of wrong rows. If no bin has two rows, T is 0 whatever the
    labels are, and the interval is [0, 1]. Limits are cut to [0, 1], which holds the estimand. The p-value is the share
    of drawn values that are as large. Its null, a calibrated model, needs no jackknife. So the p-value may be small
    although the interval contains 0.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`. The
            rows of sums count at their cell's mean confidence.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins; it must divide 3,000.
        level: Confidence level of the interval, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The estimate, its interval and its p-value.

    Raises:
        ValueError: The input is invalid, there are no rows, `bins` does not divide 3,000, or `level` is outside (0, 1).

    References:
        Bröcker 2012, Estimating reliability and resolution of probability forecasts through decomposition of the
        empirical score. Ferro and Fricker 2012, A bias-corrected decomposition of the Brier score. Kumar et al. 2019,
        Verified uncertainty calibration, section 5.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.squared_calibration_error(sums).value, 4)
        0.225
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    net = Nets.of([_rows(predictions, labels_N)], bins)
    null_R = net.null()
    found = with_wider_interval(net.values_S, net.left_out_SN, null_R, level, (net,))
    assert found.lower is not None and found.upper is not None
    p_value = (1 + int((null_R >= found.mean - ROUNDING).sum())) / (1 + len(null_R))
    lower, upper = (min(max(end, 0.0), 1.0) for end in (found.lower, found.upper))
    return SquaredCalibrationError(found.mean, lower, upper, p_value)


def squared_calibration_difference(
    one: Sequence[Seed], other: Sequence[Seed], *, bins: int = 15, level: float = 0.95
) -> Difference:
    """Test the difference of the binned squared calibration errors of two methods on the same rows.

    The estimate is the mean over seeds of T_one - T_other, with T as in `squared_calibration_error`. Seed s of one
    method is paired with seed s of the other, and row n with row n. The null is that both estimands are equal. The
    interval is the difference plus and minus the widest of these:

    - The quantile of `|difference|` if both methods are calibrated and labels are drawn from their confidences. One
      uniform number per row decides for all seeds of a method, which makes their labels as similar as possible. The
      labels of the two methods are independent. Both choices make the width larger than the true dependence of the
      rows would.
    - The width of the exact binomial limits of the share of wrong rows, if a method's confidences are all 0 or 1.
    - 1, if no bin of a method has two rows, so that nothing is known of it.
    - Student's width, with the delete-one jackknife over rows and, for several seeds, the variance over seeds:
      se^2 = Var_s(T_one,s - T_other,s) / S + the jackknife's variance, with the degrees of freedom of Welch and
      Satterthwaite.

    Limits are cut to [-1, 1], which holds the difference of two estimands. The p-value is the largest of theirs. With
    one seed the result is about two nets, not about two methods.

    Args:
        one: Confidences and correctness of each seed, a sequence of pairs of arrays of shape (N,).
        other: The same for the other method, with as many seeds.
        bins: Number of bins of equal width; it must divide 3,000.
        level: Confidence level of the interval, inside (0, 1).

    Returns:
        The mean difference and its test.

    Raises:
        ValueError: There is no seed, the numbers of seeds or rows differ, confidences are outside [0, 1], or there are
            fewer than three rows.

    Examples:
        >>> right = ([0.8] * 100, [True] * 80 + [False] * 20)
        >>> off = ([0.9] * 100, [True] * 70 + [False] * 30)
        >>> found = metrics.squared_calibration_difference([off], [right])
        >>> round(found.mean, 2), found.p_value < 0.05
        (0.04, True)
    """
    if not one or len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} seeds; give one or more, and as many for both: they are paired")
    first, second = Nets.of(one, bins), Nets.of(other, bins)
    if first.rows != second.rows:
        raise ValueError(f"{first.rows:,} and {second.rows:,} rows; give the same rows for both: they are paired")
    return difference(first, second, null_of(first, second), level)


def null_of(first: Nets, second: Nets) -> Array:
    """Draw the difference if both methods are calibrated. The draws depend on the confidences alone."""
    nulls = first.null(seed=1), second.null(seed=2)
    draws = min(map(len, nulls))
    drawn_R: Array = nulls[0][:draws] - nulls[1][:draws]
    return drawn_R


def difference(first: Nets, second: Nets, null_R: Array, level: float = 0.95) -> Difference:
    """Test like `squared_calibration_difference`, with draws of `null_of`."""
    differences_S, left_out_SN = first.values_S - second.values_S, first.left_out_SN - second.left_out_SN
    return with_wider_interval(differences_S, left_out_SN, null_R, level, (first, second))


def with_wider_interval(
    values_S: Array, left_out_SN: Array, null_R: Array, level: float, nets: Sequence[Nets] = ()
) -> Difference:
    """Return an estimate with the widest of its widths.

    Neither the null nor the jackknife has a spread if all confidences are 0 or 1 and few rows are wrong. So the width
    is at least that of the exact binomial limits of the share of wrong rows (`_certain_width`). They have none either
    if no bin has two rows. The width is then 1, because an estimand is in [0, 1].

    Args:
        values_S: Estimate of each seed.
        left_out_SN: Estimate of each seed without row n.
        null_R: Draws of the mean over seeds if all nets are calibrated.
        level: Confidence level of the interval.
        nets: The nets of each method.
    """
    check_level(level)
    rows = left_out_SN.shape[1]
    left_out_N = left_out_SN.mean(axis=0)
    variance = (rows - 1) / rows * float(np.square(left_out_N - left_out_N.mean()).sum())
    found = of_estimates(values_S, variance, rows - 1, level)
    assert found.error is not None and found.lower is not None and found.p_value is not None
    far_R = np.abs(null_R)
    certain = [net for net in nets if net.is_certain]
    half = max(found.mean - found.lower, float(np.quantile(far_R, level, method="higher")))
    half = max(half, _certain_width(certain, level), *(1.0 for net in nets if net.count_SB.max() < 2))
    p_value = (1 + int((far_R >= abs(found.mean) - ROUNDING).sum())) / (1 + len(far_R))
    p_value = max(p_value, _certain_p_value(certain, abs(found.mean)))
    return Difference(
        found.mean,
        found.seeds,
        max(found.mean - half, -1.0),
        min(found.mean + half, 1.0),
        max(found.p_value, p_value),
        max(found.error, float(null_R.std())),
        found.freedom,
    )


def _certain_width(certain: Sequence[Nets], level: float) -> float:
    """Return the largest distance of T from the estimands of nets whose confidences are all 0 or 1, added up.

    With the share e of wrong rows, the estimand is e^2 if all confidences are equal, and otherwise between e^2 and e.
    The share has the limits of Clopper and Pearson. Seeds are averaged.
    """
    width = 0.0
    for net in certain:
        is_one = np.ptp(net.confidence_SN) == 0
        for value, wrong_N in zip(net.values_S, np.abs(net.confidence_SN - net.correct_SN), strict=True):
            lower, upper = BoundedMean.of(wrong_N, 0.0, 1.0).limits((1 - level) / 2)
            width += max(value - lower**2, (upper**2 if is_one else upper) - value) / len(net.values_S)
    return float(width)


def _certain_p_value(certain: Sequence[Nets], size: float) -> float:
    """Return the smallest 1 - level at which `_certain_width` is below the size of the difference; 0 without nets."""
    if not certain:
        return 0.0

    def excess(log_p: float) -> float:
        return _certain_width(certain, -math.expm1(log_p)) - size

    ends = math.log(1e-12), math.log(1 - 1e-6)
    if excess(ends[1]) >= 0:
        return 1.0
    return 0.0 if excess(ends[0]) < 0 else math.exp(scipy.optimize.brentq(excess, *ends, xtol=1e-9))


def _rows(predictions: Predictions, labels_N: npt.ArrayLike | None) -> tuple[Array, npt.NDArray[np.bool_]]:
    if not isinstance(predictions, CalibrationSums) and labels_N is not None:
        return top_labels(predictions, labels_N)
    count_M, confidence_M, correct_M = as_sums(predictions, labels_N).cells[:3]
    held = np.flatnonzero(count_M > 0)
    count, right = (np.rint(values[held]).astype(np.intp) for values in (count_M, correct_M))
    parts = np.stack([right, count - right], axis=1).ravel()
    confidence_N = np.repeat(np.clip(confidence_M[held] / count_M[held], 0.0, 1.0), count)
    return confidence_N, np.repeat(np.tile([True, False], len(held)), parts)
