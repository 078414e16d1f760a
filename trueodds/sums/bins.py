"""Definition of a bin, the only one in the project.

The confidence axis [0, 1] is cut into 3,000 equal cells. A confidence c lies in cell k (0-based) if k/3000 < c <=
(k+1)/3000, compared in float64; 0 lies in the first cell. An equal-width bin (lo, hi] is a union of cells, for every
divisor of 3,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trueodds.processes.choices import Binning
from trueodds.sums.inputs import ROW_SUM_TOLERANCE, Array, as_numbers, is_whole

CELLS = 3000
"""Number of cells of confidence in calibration sums. Bins of equal width are unions of them."""
EDGES = np.arange(CELLS + 1, dtype=np.float64) / CELLS
MOST_BINS = 1_000_000  # with more bins of equal mass, memory runs out before an error can be reported

COARSE_CELLS = 60
"""Number of cells of stored sums per class and tag, and of a bundle's reference; each is 50 of the 3,000."""


def check_bins(bins: int, binning: Binning = "width") -> int:
    """Check the number of bins and return it as a Python int.

    Raises:
        ValueError: `bins` is not an integer, does not divide 3,000 (equal width) or is outside 1..10^6 (equal mass).
    """
    if binning == "mass":
        sound, allowed = is_whole(bins) and 1 <= bins <= MOST_BINS, f"whole numbers from 1 to {MOST_BINS:,}"
    else:
        sound = is_whole(bins) and bins >= 1 and CELLS % int(bins) == 0
        allowed = f"the divisors of {CELLS} (10, 15, 20, 25, 50, 100, ...)"
    if not sound:
        raise ValueError(f"bins is {bins!r}; allowed are {allowed}")
    return int(bins)


@lru_cache(maxsize=16)
def _lower_edges(bins: int) -> Array:
    """Return the lower edges b/bins, and 1 at the end. The first is below 0, because 0 belongs to the first bin."""
    edge_B = np.arange(bins + 1, dtype=np.float64) / bins
    edge_B[0] = -1.0
    edge_B.flags.writeable = False  # cached, so shared
    return edge_B


def bin_of(confidence: npt.ArrayLike, bins: int) -> npt.NDArray[np.intp]:
    """Return the equal-width bin 0..bins-1 of confidences in [0, 1], the smallest b with c <= (b+1)/bins.

    The comparison is in float64. The product c * bins is only a first guess: used alone, it puts up to 13% of the
    confidences within one ulp of an edge (3,000 bins) into a neighbouring bin. The guess is never too low, because a
    float above the float nearest to b/bins is above b/bins itself, and rounding the product keeps that order.
    """
    confidence_N = np.asarray(confidence, dtype=np.float64)
    bin_N = (confidence_N * bins).astype(np.intp)
    bin_N -= confidence_N <= _lower_edges(bins).take(bin_N)
    return bin_N


def cell_of(confidence: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return the cell 0..2999 of confidences.

    Args:
        confidence: Confidences in [0, 1], any shape. A value up to 1e-3 above 1, from rounding, counts as 1.

    Raises:
        ValueError: A confidence is NaN, below 0, or more than 1e-3 above 1.

    Examples:
        >>> metrics.cell_of([0.0, 0.5, 1.0])
        array([   0, 1499, 2999])
    """
    confidence_N = as_numbers(confidence, "confidence").astype(np.float64, copy=False)
    if not (confidence_N.min(initial=0.0) >= 0 and confidence_N.max(initial=0.0) <= 1 + ROW_SUM_TOLERANCE):
        bad = confidence_N[~((confidence_N >= 0) & (confidence_N <= 1 + ROW_SUM_TOLERANCE))]
        raise ValueError(f"confidence holds {bad[0]}; allowed is [0, 1]")
    return bin_of(np.minimum(confidence_N, 1.0), CELLS)


def coarse_counts(counts_C: npt.NDArray[np.number]) -> npt.NDArray[np.int64]:
    """Add counts on the 3,000 cells up to counts on the 60 coarse ones."""
    coarse: npt.NDArray[np.int64] = counts_C.reshape(COARSE_CELLS, -1).sum(axis=1).astype(np.int64)
    return coarse


@dataclass(frozen=True)
class Bins:
    """Sums over B confidence bins (lo, hi]; every mean is one division away.

    Bins of equal mass may split rows that tie at an edge.

    If only cells are known, c is the cell's mean confidence, and variance_B is exact to count / (4 * 3000^2).

    Attributes:
        lo_B: Lower edges.
        hi_B: Upper edges.
        count_B: Numbers of rows.
        confidence_B: sum c.
        correct_B: sum a.
        variance_B: sum c(1-c), the variance of sum a if the model is calibrated.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> bins = metrics.whole_bins(sums, 15, "width")
        >>> bins.count_B[bins.count_B > 0]
        array([25., 25., 25., 25.])
    """

    lo_B: Array
    hi_B: Array
    count_B: Array
    confidence_B: Array
    correct_B: Array
    variance_B: Array

    @property
    def n(self) -> float:
        return float(self.count_B.sum())

    @property
    def gap_B(self) -> Array:
        """sum (a - c) per bin; positive if the model is under-confident."""
        return self.correct_B - self.confidence_B

    @property
    def mean_confidence_B(self) -> Array:
        """Mean confidence per bin; NaN in an empty bin."""
        return _mean(self.confidence_B, self.count_B)

    @property
    def accuracy_B(self) -> Array:
        """Accuracy per bin; NaN in an empty bin."""
        return _mean(self.correct_B, self.count_B)


def _mean(sums: Array, counts: Array) -> Array:
    mean: Array = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return mean
