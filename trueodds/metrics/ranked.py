"""Rows ranked by confidence, for metrics that need more than equal-width cells: equal mass, the sweep and the KS error.

Rows of equal confidence have no order, so they form a group. A cut through a group divides its right and wrong rows in
proportion. So no metric depends on the order of the input, and a cell of `CalibrationSums` can serve as a group. A cut
inside a cell with n rows, A of them right, changes sum (a - c) by at most A (n - A) / n + n h / 4, with h = 1/3000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.processes.choices import Binning
from trueodds.sums.bins import EDGES, Bins, bin_of, check_bins
from trueodds.sums.inputs import Array
from trueodds.sums.rows import top_labels
from trueodds.sums.sums import CalibrationSums

BINNINGS: tuple[Binning, ...] = ("width", "mass")
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranked:
    """Groups of rows in ascending order of confidence: row count, confidence and number of right rows of each."""

    count_G: Integers
    confidence_G: Array
    correct_G: Array

    @property
    def n(self) -> int:
        return int(self.count_G.sum())


@dataclass(frozen=True)
class Binned(Ranked):
    """Groups that lie in one bin each. A group is split where a cut goes through it."""

    bin_G: npt.NDArray[np.intp]
    edge_B: Array
    """Edges of the bins: bin b is (edge_B[b], edge_B[b+1]]."""

    @property
    def bins(self) -> Bins:
        """Sums per bin."""
        c_G, n_G = self.confidence_G, self.count_G.astype(np.float64)
        weights = (n_G, n_G * c_G, self.correct_G, n_G * c_G * (1 - c_G))
        per_bin = [np.bincount(self.bin_G, w, len(self.edge_B) - 1).astype(np.float64) for w in weights]
        return Bins(self.edge_B[:-1], self.edge_B[1:], *per_bin)


def rank(confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike) -> Ranked:
    """Group rows by equal confidence. Confidences must lie in [0, 1]."""
    # Floats from 0 to 1 sort like their bits and do not use the sign bit. Shifting frees the lowest bit for
    # correctness, so one sort of integers replaces an argsort and two gathers.
    key_N = np.asarray(confidence_N, dtype=np.float64).view(np.uint64) << 1
    key_N |= np.asarray(correct_N, dtype=bool)
    key_N.sort()
    bits_N = key_N >> 1
    start_G = np.flatnonzero(np.concatenate([[True], bits_N[1:] != bits_N[:-1]]))
    count_G = np.diff(start_G, append=len(key_N))
    correct_G = np.add.reduceat(key_N & 1, start_G).astype(np.float64)
    return Ranked(count_G, bits_N[start_G].view(np.float64), correct_G)


def rank_predictions(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> Ranked:
    """Group probabilities and labels by confidence. Each occupied cell of sums is a group at its mean confidence.

    Raises:
        ValueError: The input is invalid (see `as_sums`).
    """
    if not isinstance(predictions, CalibrationSums) and labels_N is not None:
        return rank(*top_labels(predictions, labels_N))
    sums = as_sums(predictions, labels_N)
    cell_G = np.flatnonzero(sums.cells[0])
    count_G, confidence_G, correct_G = sums.cells[:3, cell_G]
    # The mean of confidences in (lo, hi] may round to lo, which belongs to the cell below.
    mean_G = np.clip(confidence_G / count_G, np.nextafter(EDGES[cell_G], 1) * (cell_G > 0), EDGES[cell_G + 1])
    return Ranked(count_G.astype(np.int64), mean_G, correct_G)


def cut(rows: Ranked, at_B: Integers) -> Binned:
    """Cut into bins after at_B[0], at_B[1], ... rows.

    The cuts ascend; there is one bin more than cuts. Equal cuts leave a bin empty.
    """
    end_G = np.cumsum(rows.count_G)
    edge_B = np.concatenate([[0.0], rows.confidence_G[np.searchsorted(end_G, at_B)], [1.0]])
    piece_P = np.sort(np.concatenate([end_G, at_B]), kind="stable")  # two ascending runs: a stable sort merges them
    piece_P = piece_P[np.diff(piece_P, prepend=0) > 0]
    group_P = np.searchsorted(end_G, piece_P)
    count_P = np.diff(piece_P, prepend=0)
    correct_P = rows.correct_G[group_P] * count_P / rows.count_G[group_P]
    return Binned(count_P, rows.confidence_G[group_P], correct_P, np.searchsorted(at_B, piece_P), edge_B)


def mass_cuts(n: int, bins: int) -> Integers:
    """Return the cuts for equal counts: bin b ends after floor((b+1) n / bins) rows. Counts differ by at most one."""
    return np.arange(1, bins) * n // bins


def mass_bins(rows: Ranked, bins: int) -> Bins:
    """Compute the sums in bins of equal counts.

    The result is that of `binned(rows, bins, "mass").bins` in a quarter of the time; no group is split.

    Raises:
        ValueError: `bins` is outside 1..10^6.
    """
    bins = check_bins(bins, "mass")
    n_G, c_G = rows.count_G.astype(np.float64), rows.confidence_G
    end_G = np.cumsum(rows.count_G)
    at_B = np.append(mass_cuts(rows.n, bins), rows.n)
    group_B = np.searchsorted(end_G, at_B)
    over_B = (end_G[group_B] - at_B) / n_G[group_B]  # share of a group that its cut leaves to the next bin
    sums = (n_G * c_G, rows.correct_G, n_G * c_G * (1 - c_G))
    per_bin = [np.diff(np.cumsum(v)[group_B] - over_B * v[group_B], prepend=0.0) for v in sums]
    edge_B = np.concatenate([[0.0], c_G[group_B[:-1]], [1.0]])
    return Bins(edge_B[:-1], edge_B[1:], np.diff(at_B, prepend=0).astype(np.float64), *per_bin)


def whole_bins(sums: CalibrationSums, bins: int, binning: Binning) -> Bins:
    """Compute sums in bins that are unions of cells.

    Their gaps are independent, which intervals and noise floors require. Equal widths are used as they are. With equal
    mass each cut of equal counts moves to the nearest end of a cell, counted in rows. If one cell holds several shares,
    there are fewer bins than requested; no bin is empty. If no cell is crowded, the bins are within a few rows of equal
    counts.

    Args:
        sums: Calibration sums of the rows.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).

    Returns:
        The table of bins.

    Raises:
        ValueError: The binning is unknown, or `check_bins` does not accept the bins.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> len(metrics.whole_bins(sums, 10, "width").count_B)
        10
    """
    if binning == "width":
        return sums.bins(bins)
    if binning != "mass":
        raise unknown("binning", binning, BINNINGS)
    bins = check_bins(bins, binning)
    count_G, confidence_G, correct_G, upper_G = sums.groups()
    end_G = np.cumsum(count_G)
    at_B = np.arange(1, bins) * end_G[-1] / bins
    after_B = np.searchsorted(end_G, at_B)
    before_B = np.maximum(after_B - 1, 0)
    nearest_B = np.where(at_B - end_G[before_B] < end_G[after_B] - at_B, before_B, after_B)
    last_B = np.unique(np.append(np.where(at_B < end_G[0] / 2, 0, nearest_B), len(count_G) - 1))
    start_B = np.concatenate([[0], last_B[:-1] + 1])
    mean_G = np.clip(confidence_G / count_G, 0.0, 1.0)
    columns = (count_G, confidence_G, correct_G, count_G * mean_G * (1 - mean_G))
    edge_B = np.concatenate([[0.0], upper_G[last_B[:-1]], [1.0]])
    return Bins(edge_B[:-1], edge_B[1:], *(np.add.reduceat(column, start_B) for column in columns))


def assign_bins(rows: Ranked, bins: int, binning: Binning) -> Binned:
    """Assign groups to equal-width bins (lo, hi], which are unions of cells, or to bins of equal counts.

    Raises:
        ValueError: The binning is unknown, or `check_bins` does not accept the bins.
    """
    if binning == "mass":
        return cut(rows, mass_cuts(rows.n, check_bins(bins, binning)))
    if binning != "width":
        raise unknown("binning", binning, BINNINGS)
    edge_B = np.append(CalibrationSums.zero().bins(bins).lo_B, 1.0)
    return Binned(rows.count_G, rows.confidence_G, rows.correct_G, bin_of(rows.confidence_G, bins), edge_B)


def bins_of(predictions: Predictions, labels_N: npt.ArrayLike | None, bins: int, binning: Binning) -> Bins:
    """Compute the sums per bin from probabilities and labels, or from `CalibrationSums`.

    Raises:
        ValueError: The input is invalid (see `as_sums` and `assign_bins`).
    """
    if binning == "width":  # cells are exact here, so nothing is ranked
        return as_sums(predictions, labels_N).bins(bins)
    if binning == "mass":  # check the bins before the rows are ranked
        check_bins(bins, binning)
        return mass_bins(rank_predictions(predictions, labels_N), bins)
    raise unknown("binning", binning, BINNINGS)
