"""Binned calibration errors of the top label, and the Kolmogorov-Smirnov error, which needs no bins.

Every function takes `(probabilities_NC, labels_N)` or one `CalibrationSums`. With equal widths both give the same
value. Equal mass, the sweep and the Kolmogorov-Smirnov error depend on the order of rows within a cell. There the
probabilities give the exact value; sums give an approximation within the bound that each docstring states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.metrics.ranked import BINNINGS, Integers, Ranked, assign_bins, bins_of, cut, rank_predictions
from trueodds.metrics.scores import Predictions
from trueodds.processes.choices import Binning
from trueodds.sums.bins import Bins
from trueodds.sums.inputs import Array
from trueodds.sums.label_forms import as_rows

Norm = Literal["l1", "l2", "max"]
NORMS: tuple[Norm, ...] = ("l1", "l2", "max")


@dataclass(frozen=True)
class SweepEce:
    """Result of `sweep_ece`: the calibration error and the number of bins that the sweep chose.

    Attributes:
        ece: Calibration error in these bins.
        bins: Largest number of bins up to which accuracy never falls with confidence.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> metrics.sweep_ece(probabilities, labels).bins
        4
    """

    ece: float
    bins: int


def ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    norm: Norm = "l1",
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the expected calibration error (ECE) of the top label.

    Rows are grouped into bins (lo, hi] by confidence. Confidence 0 belongs to the first bin and confidence 1 to the
    last. With n_b rows, accuracy acc_b and mean confidence conf_b in bin b, the norms are

        l1:   sum_b n_b/n |acc_b - conf_b|            (the usual ECE)
        l2:   sqrt(sum_b n_b/n (acc_b - conf_b)^2)
        max:  max_b |acc_b - conf_b| over occupied bins

    Equal widths are exact for every number of bins that divides 3,000. With equal mass, bin b ends after floor(b n /
    bins) rows in order of confidence, for any number of bins. If a cut falls among rows of equal confidence, right and
    wrong rows are divided in proportion. So the result does not depend on the order of the input. From sums, the
    equal-mass l1 value is within 2/n sum_cuts (A (n_i - A) / n_i + n_i / 12000) of the exact value. There n_i is the
    number of rows, and A the number of right rows, in the cell that a cut goes through.

    A perfectly calibrated model does not reach 0: see `noise_floor` and `ece_interval`. torchmetrics gives other
    values: it puts a confidence on an edge into the bin above, gives confidence 1 a bin of its own, and adds in
    float32.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        norm: "l1", "l2" or "max".
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The input is invalid, equal-width `bins` do not divide 3,000, equal-mass `bins` are outside 1..10^6,
            or the norm or binning is unknown.

    References:
        Guo et al. 2017, On calibration of modern neural networks, eq. 3.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.ece(probabilities, labels), 4)
        0.3
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    return _error(bins_of(predictions, labels_N, bins, binning), norm)


def mce(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the maximum calibration error (MCE): the largest `|acc_b - conf_b|` over occupied bins.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The maximum calibration error, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    References:
        Guo et al. 2017, On calibration of modern neural networks, eq. 5.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.mce(probabilities, labels), 4)
        0.6
    """
    return ece(predictions, labels_N, bins=bins, norm="max", binning=binning, classes=classes)


def adaptive_ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    norm: Norm = "l1",
    classes: Sequence[object] | None = None,
) -> float:
    """Compute `ece` in bins of equal mass (AdaECE).

    The gamma-net paper calls this measure ACE. Public implementations interpolate the edges and drop rows that tie with
    the lowest edge. If every confidence is 1, they return 0; this function returns the error rate.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins, 1 to 10^6.
        norm: "l1", "l2" or "max".
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    References:
        Nguyen and O'Connor 2015, Posterior calibration and exploratory analysis. Mukhoti et al. 2020, Calibrating deep
        neural networks using focal loss.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.adaptive_ece(probabilities, labels, bins=2), 4)
        0.15
    """
    return ece(predictions, labels_N, bins=bins, norm=norm, binning="mass", classes=classes)


def label_binned_ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    norm: Norm = "l1",
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the label-binned ECE: compare each confidence with the accuracy of its bin.

        (1/n sum_i |acc_b(i) - c_i|^p)^(1/p)

    p is 1 for l1 and 2 for l2; max is the largest term. By Jensen's inequality the value is never below `ece` in the
    same bins. From sums with equal widths it is within 1/3000 of the exact value.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        norm: "l1", "l2" or "max".
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    References:
        Karandikar et al. 2021, Soft calibration objectives for neural networks, eq. 7.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.label_binned_ece(probabilities, labels), 4)
        0.3
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    rows = assign_bins(rank_predictions(predictions, labels_N), bins, binning)
    table = rows.bins
    off_G = np.abs(table.accuracy_B[rows.bin_G] - rows.confidence_G)
    return _norm(off_G, rows.count_G / rows.n, norm)


def debiased_ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "mass",
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the debiased l2 calibration error of the top label.

        sqrt(max(0, sum_b n_b/n [(acc_b - conf_b)^2 - acc_b (1 - acc_b) / (n_b - 1)]))

    The subtracted term estimates the variance that makes the plug-in l2 error too large. A bin with a single row has no
    variance estimate and contributes 0, as in the authors' library. The default, equal mass, is theirs too.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    References:
        Kumar et al. 2019, Verified uncertainty calibration, section 5.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.debiased_ece(probabilities, labels, bins=2), 4)
        0.0
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    table = bins_of(predictions, labels_N, bins, binning)
    several = table.count_B >= 2
    count_B, accuracy_B = table.count_B[several], table.accuracy_B[several]
    squares_B = (table.gap_B[several] / count_B) ** 2 - accuracy_B * (1 - accuracy_B) / (count_B - 1)
    return float(np.sqrt(max((count_B * squares_B).sum() / table.n, 0.0)))


def sweep_ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    norm: Norm = "l1",
    binning: Binning = "mass",
    classes: Sequence[object] | None = None,
) -> SweepEce:
    """Compute the monotonic sweep calibration error: `ece` in the number of bins that the data allow.

    The number is the largest b <= n for which accuracy never falls from one occupied bin to the next, in b bins and in
    every smaller number of bins. Equal widths are those of the raw confidences, for any b. From sums, a cell counts at
    its mean confidence.

    From sums, if the number of bins is the same, the l1 value is within the bound that `ece` states for equal mass. For
    equal widths the bound is 2/n sum_cells max(A, n_i - A), over the cells that an edge goes through. Accuracy may fall
    between rows where it does not fall between cells, so the number of bins may differ. Then only `|signed gap| <=
    value <= mean |a - c|` is certain. Measured on 500 to 50,000 rows of three nets: the number differed in 0 to 38% of
    samples; values differed by at most 4e-3, with a median of 3e-6.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        norm: "l1", "l2" or "max".
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error and its number of bins.

    Raises:
        ValueError: The input is invalid, or the norm or binning is unknown.

    References:
        Roelofs et al. 2022, Mitigating bias in calibration error estimation.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.sweep_ece(probabilities, labels).ece, 4)
        0.3
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    if binning not in BINNINGS:
        raise unknown("binning", binning, BINNINGS)
    rows = rank_predictions(predictions, labels_N)
    curve, best = _Curve(rows, binning), rows.n
    if (np.diff(rows.correct_G / rows.count_G) < 0).any():  # otherwise accuracy falls for no number of bins
        best = next((bins - 1 for bins in range(2, rows.n + 1) if curve.falls(bins)), rows.n)
    return SweepEce(_error(cut(rows, curve.cuts(np.arange(1, best), best)).bins, norm), best)


def ks_error(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> float:
    """Compute the Kolmogorov-Smirnov calibration error, which needs no bins.

        max_s |1/n sum_{c_i <= s} (a_i - c_i)|    over confidences s

    The authors' code also evaluates the sum between tied rows, where it depends on their order. The value from sums is
    never above the exact value. It is below by at most max_i max(A_i (1 - lo_i), (n_i - A_i) hi_i) / n over the cells i
    (measured: 6e-4 at 500 rows, 5e-5 at 50,000).

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    References:
        Gupta et al. 2021, Calibration of neural networks using splines.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.ks_error(probabilities, labels), 4)
        0.15
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    rows = rank_predictions(predictions, labels_N)
    return float(np.abs(np.cumsum(rows.correct_G - rows.count_G * rows.confidence_G)).max() / rows.n)


class _Curve:
    """Cumulative counts of rows and right rows by confidence. With them a sweep evaluates many bin counts cheaply."""

    def __init__(self, rows: Ranked, binning: Binning) -> None:
        self.confidence_G, self.binning = rows.confidence_G, binning
        self.rows_G, self.right_G = (np.concatenate([[0], np.cumsum(v)]) for v in (rows.count_G, rows.correct_G))
        # Accuracy cannot fall below the first right row or above the last wrong row, so only the region between is
        # scanned. Otherwise 100,000 rows with one early error would cost a scan of b bins for 30,000 values of b.
        first, last = np.flatnonzero(rows.correct_G > 0)[:1], np.flatnonzero(rows.correct_G < rows.count_G)[-1:]
        place = self.rows_G / rows.n if binning == "mass" else np.append(rows.confidence_G, 1.0)
        self.region = (place[first], place[last + (binning == "mass")])

    def cuts(self, boundary_B: Integers, bins: int) -> Integers:
        """Return the number of rows below each of the given boundaries 0..bins."""
        if self.binning == "mass":
            at_B: Integers = boundary_B * self.rows_G[-1] // bins
        else:
            at_B = self.rows_G[np.searchsorted(self.confidence_G, boundary_B / bins, side="right")]
        return at_B

    def falls(self, bins: int) -> bool:
        """Return whether some occupied bin is less accurate than the one before it."""
        low, high = (int(place[0] * bins) for place in self.region)
        at_B = self.cuts(np.arange(max(low - 1, 0), min(high + 2, bins) + 1), bins)
        count_B, right_B = np.diff(at_B), np.diff(np.interp(at_B, self.rows_G, self.right_G))
        rate_B = right_B[count_B > 0] / count_B[count_B > 0]
        return bool((np.diff(rate_B) < -1e-12).any())  # interpolation rounds


def _error(table: Bins, norm: Norm) -> float:
    if norm == "l1":  # not divided by the counts first, so that the value equals that of `ece_interval` bit for bit
        return float(np.abs(table.gap_B).sum() / table.n)
    occupied = table.count_B > 0
    count_B = table.count_B[occupied]
    return _norm(np.abs(table.gap_B[occupied]) / count_B, count_B / table.n, norm)


def _norm(off_B: Array, share_B: Array, norm: Norm) -> float:
    if norm == "l1":
        return float(share_B @ off_B)
    if norm == "l2":
        return float(np.sqrt(share_B @ off_B**2))
    if norm == "max":
        return float(off_B.max())
    raise unknown("norm", norm, NORMS)
