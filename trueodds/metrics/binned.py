"""Calibration errors of the top label over bins, and the cumulative one that needs none.

Every function takes `(probabilities_NC, labels_N)` or one `CalibrationSums`. Equal-width values are the same from
both; where rank within a cell matters (equal mass, the sweep, the cumulative error) probabilities give the exact value
and sums one within the bound that the docstring states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.metrics.ranked import BINNINGS, Integers, Ranked, binned, bins_of, cut, ranked
from trueodds.metrics.scores import Predictions
from trueodds.sums.bins import Binning, Bins
from trueodds.sums.inputs import Array

Norm = Literal["l1", "l2", "max"]
NORMS: tuple[Norm, ...] = ("l1", "l2", "max")


@dataclass(frozen=True)
class SweepEce:
    """The calibration error in the largest number of bins up to which accuracy rises with confidence.

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
) -> float:
    """Expected calibration error of the top label over bins (lo, hi]; confidence 0 lies in the first, 1 in the last.

    l1: sum_b n_b/n |acc_b - conf_b|  (Guo et al. 2017, eq. 3; the usual ECE)
    l2: sqrt(sum_b n_b/n (acc_b - conf_b)^2)
    max: max over occupied bins |acc_b - conf_b|

    width: equal widths, exact for every divisor of 3,000. mass: bin b ends after floor(b n / bins) rows in order of
    confidence, for any number of bins; tied rows at a cut go right and wrong in proportion, so the order of the input
    does not matter. Equal mass from sums (l1) is within 2/n sum_cuts (A (n_i - A) / n_i + n_i / 12000) of the exact
    value, with n_i rows and A right in the cell that a cut goes through.

    torchmetrics puts an edge into the bin above it, a confidence of 1 into a bin of its own, and adds in float32.

    The plug-in value of a calibrated model is not 0: see `noise_floor` and `ece_interval`.

    Raises:
        ValueError: bad input, equal-width `bins` that do not divide 3,000, equal-mass ones outside 1..10^6, an unknown
            norm or binning.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.ece(probabilities, labels), 4)
    0.3
    """
    return _error(bins_of(predictions, labels_N, bins, binning), norm)


def mce(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, binning: Binning = "width"
) -> float:
    """Maximum calibration error: the largest |acc_b - conf_b| over occupied bins (Guo et al. 2017, eq. 5).

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.mce(probabilities, labels), 4)
    0.6
    """
    return ece(predictions, labels_N, bins=bins, norm="max", binning=binning)


def adaptive_ece(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, norm: Norm = "l1"
) -> float:
    """`ece` in bins of equal mass: AdaECE (Nguyen and O'Connor 2015; Mukhoti et al. 2020), the gamma-net paper's ACE.

    Public versions build edges by interpolation and drop what ties with the lowest: they return 0 where every
    confidence is 1. Here that is the error rate.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.adaptive_ece(probabilities, labels, bins=2), 4)
    0.15
    """
    return ece(predictions, labels_N, bins=bins, norm=norm, binning="mass")


def label_binned_ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    norm: Norm = "l1",
    binning: Binning = "width",
) -> float:
    """Label-binned ECE: (1/n sum_i |acc_b(i) - c_i|^p)^(1/p), each confidence against its bin's accuracy.

    Karandikar et al. 2021, eq. 7 (p = 1: l1, 2: l2, max: the largest term). Never below `ece` in the same bins, by
    Jensen's inequality. From sums (equal width) within 1/3000 of the exact value.

    Raises:
        ValueError: as `ece`.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.label_binned_ece(probabilities, labels), 4)
    0.3
    """
    rows = binned(ranked(predictions, labels_N), bins, binning)
    table = rows.bins
    off_G = np.abs(table.accuracy_B[rows.bin_G] - rows.confidence_G)
    return _norm(off_G, rows.count_G / rows.n, norm)


def debiased_ece(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, binning: Binning = "mass"
) -> float:
    """Debiased l2 calibration error of the top label (Kumar et al. 2019, section 5).

        sqrt(max(0, sum_b n_b/n [(acc_b - conf_b)^2 - acc_b (1 - acc_b) / (n_b - 1)]))

    The subtrahend estimates the variance that makes the plug-in l2 error too large. As in the authors' library, bins
    have equal mass and a bin of a single row, whose variance is unknown, contributes 0.

    Raises:
        ValueError: as `ece`.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.debiased_ece(probabilities, labels, bins=2), 4)
    0.0
    """
    table = bins_of(predictions, labels_N, bins, binning)
    several = table.count_B >= 2
    count_B, accuracy_B = table.count_B[several], table.accuracy_B[several]
    squares_B = (table.gap_B[several] / count_B) ** 2 - accuracy_B * (1 - accuracy_B) / (count_B - 1)
    return float(np.sqrt(max((count_B * squares_B).sum() / table.n, 0.0)))


def sweep_ece(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, norm: Norm = "l1", binning: Binning = "mass"
) -> SweepEce:
    """Monotonic sweep calibration error (Roelofs et al. 2022): `ece` in b* bins.

    b* is the largest b <= n such that for 1, 2, .., b bins the accuracies of the occupied bins never fall. Equal
    widths are those of the raw confidences, for any b; sums place a cell by its mean confidence.

    From sums (l1), if b* is the same, within the bound of `ece` for equal mass, or 2/n sum_cells max(A, n_i - A) over
    the cells that an equal-width edge goes through. Rows may fall where their cells do not, so b* itself may be another
    one, and then only this is sure of either value: |signed gap| <= value <= mean |a - c|. Measured on 500 to 50,000
    rows of three nets: another b* in 0 to 38% of samples, values apart by 4e-3 at most and 3e-6 in the median.

    Raises:
        ValueError: bad input, an unknown norm or binning.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.sweep_ece(probabilities, labels).ece, 4)
    0.3
    """
    if binning not in BINNINGS:
        raise unknown("binning", binning, BINNINGS)
    rows = ranked(predictions, labels_N)
    curve, best = _Curve(rows, binning), rows.n
    if (np.diff(rows.correct_G / rows.count_G) < 0).any():  # otherwise any bins rise, up to one for each row
        best = next((bins - 1 for bins in range(2, rows.n + 1) if curve.falls(bins)), rows.n)
    return SweepEce(_error(cut(rows, curve.cuts(np.arange(1, best), best)).bins, norm), best)


def ks_error(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """Kolmogorov-Smirnov calibration error: max over confidences s of |1/n sum_{c_i <= s} (a_i - c_i)|.

    Gupta et al. 2021. The authors' code also looks between tied rows, where the value depends on their order.
    From sums never above the exact value, and below it by at most max_i max(A_i (1 - lo_i), (n_i - A_i) hi_i) / n
    over the cells i (measured: 6e-4 at 500 rows, 5e-5 at 50,000).

    Raises:
        ValueError: bad input or no rows.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.ks_error(probabilities, labels), 4)
    0.15
    """
    rows = ranked(predictions, labels_N)
    return float(np.abs(np.cumsum(rows.correct_G - rows.count_G * rows.confidence_G)).max() / rows.n)


class _Curve:
    """Rows and right rows accumulated over confidence, with which a sweep asks many bin counts cheaply."""

    def __init__(self, rows: Ranked, binning: Binning) -> None:
        self.confidence_G, self.binning = rows.confidence_G, binning
        self.rows_G, self.right_G = (np.concatenate([[0], np.cumsum(v)]) for v in (rows.count_G, rows.correct_G))
        # Below the first right row and above the last wrong one no bins fall: 100,000 rows with a single early error
        # would else cost a scan of b bins for each of 30,000 values of b.
        first, last = np.flatnonzero(rows.correct_G > 0)[:1], np.flatnonzero(rows.correct_G < rows.count_G)[-1:]
        place = self.rows_G / rows.n if binning == "mass" else np.append(rows.confidence_G, 1.0)
        self.region = (place[first], place[last + (binning == "mass")])

    def cuts(self, boundary_B: Integers, bins: int) -> Integers:
        """Rows below the given boundaries 0..bins."""
        if self.binning == "mass":
            at_B: Integers = boundary_B * self.rows_G[-1] // bins
        else:
            at_B = self.rows_G[np.searchsorted(self.confidence_G, boundary_B / bins, side="right")]
        return at_B

    def falls(self, bins: int) -> bool:
        """Whether some occupied bin is less accurate than the one before it."""
        low, high = (int(place[0] * bins) for place in self.region)
        at_B = self.cuts(np.arange(max(low - 1, 0), min(high + 2, bins) + 1), bins)
        count_B, right_B = np.diff(at_B), np.diff(np.interp(at_B, self.rows_G, self.right_G))
        rate_B = right_B[count_B > 0] / count_B[count_B > 0]
        return bool((np.diff(rate_B) < -1e-12).any())  # interpolation rounds


def _error(table: Bins, norm: Norm) -> float:
    if norm == "l1":  # without dividing by the counts first: to the last bit what `ece_interval` tests
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
