"""Squared calibration errors of several nets of one method: values, jackknife and null distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from trueodds.sums.bins import bin_of, check_bins
from trueodds.sums.inputs import Array, check_top

EXACT_BELOW = 150.0
"""Bound of the variance sum c(1-c) of the right rows. Below it the null draws labels, otherwise normal sums."""
EXACT_DRAWS, NORMAL_DRAWS = 1999, 19_999
BLOCK = 2_000_000
"""Labels that are drawn at a time."""
FEWEST = 3
"""Smallest number of rows for the jackknife."""
Seed = tuple[npt.ArrayLike, npt.ArrayLike]
"""Confidences and correctness of one net on N rows."""


@dataclass(frozen=True)
class Nets:
    """S nets of one method on the same N rows, binned by confidence."""

    confidence_SN: Array
    correct_SN: npt.NDArray[np.bool_]
    bin_SN: npt.NDArray[np.intp]
    bins: int

    @classmethod
    def of(cls, seeds: Sequence[Seed], bins: int) -> Nets:
        """Check and bin the rows of each seed.

        Raises:
            ValueError: The input is invalid (see `squared_calibration_difference`).
        """
        checked = [check_top(confidence, correct) for confidence, correct in seeds]
        lengths = sorted({len(confidence_N) for confidence_N, _ in checked})
        if len(lengths) > 1 or lengths[0] < FEWEST:
            raise ValueError(f"the seeds have {lengths} rows; allowed is one number for all, {FEWEST} or more")
        confidence_SN, correct_SN = (np.stack(values) for values in zip(*checked, strict=True))
        bins = check_bins(bins)
        return cls(confidence_SN, correct_SN, bin_of(confidence_SN, bins), bins)

    @property
    def rows(self) -> int:
        """Number of rows, N."""
        return int(self.confidence_SN.shape[1])

    @property
    def is_certain(self) -> bool:
        """Whether all confidences are 0 or 1."""
        return bool(((self.confidence_SN == 0) | (self.confidence_SN == 1)).all())

    @cached_property
    def count_SB(self) -> Array:
        """Number of rows in each bin."""
        return self._sums(np.ones_like(self.confidence_SN))

    @cached_property
    def _residual_SN(self) -> Array:
        residual_SN: Array = self.correct_SN - self.confidence_SN
        return residual_SN

    @cached_property
    def _moments(self) -> tuple[Array, Array, Array]:
        """Number of rows in each bin, and the sums of their residuals and of the squared residuals."""
        return self.count_SB, self._sums(self._residual_SN), self._sums(self._residual_SN**2)

    @property
    def values_S(self) -> Array:
        """T of each net (see `squared_calibration_error`)."""
        values_S: Array = _totals(*self._moments).sum(axis=1) / self.rows
        return values_S

    @property
    def left_out_SN(self) -> Array:
        """T of each net without row n."""
        residual_SN, total_SB = self._residual_SN, _totals(*self._moments)
        count_SN, sum_SN, square_SN = (self._of_rows(moment_SB) for moment_SB in self._moments)
        without_SN = _totals(count_SN - 1, sum_SN - residual_SN, square_SN - residual_SN**2)
        kept_SN = total_SB.sum(axis=1, keepdims=True) - self._of_rows(total_SB)
        left_out_SN: Array = (kept_SN + without_SN) / (self.rows - 1)
        return left_out_SN

    def null(self, seed: int = 0) -> Array:
        """Draw the mean of T over the nets if all are calibrated, with one uniform number per row."""
        variance_S = (self.confidence_SN * (1 - self.confidence_SN)).sum(axis=1)
        rng = np.random.default_rng([20260101, seed])
        return self._drawn_labels(rng) if variance_S.min() < EXACT_BELOW else self._drawn_sums(rng)

    def _drawn_labels(self, rng: np.random.Generator) -> Array:
        seeds, bins = len(self.confidence_SN), self.bins
        right_SB, squares_SB = self._sums(1 - self.confidence_SN), self._sums((1 - self.confidence_SN) ** 2)
        lowest_N = self.confidence_SN.min(axis=0)
        doubtful = np.flatnonzero(lowest_N < 1)
        step = max(1, BLOCK // max(1, len(doubtful)))
        found = []
        for start in range(0, EXACT_DRAWS, step):
            draws = min(step, EXACT_DRAWS - start)
            uniform_RN = rng.random((draws, len(doubtful)))
            draw, place = np.nonzero(uniform_RN > lowest_N[doubtful])  # rows that are wrong in at least one net
            uniform, row = uniform_RN[draw, place], doubtful[place]
            total_R = np.zeros(draws)
            for s in range(seeds):
                confidence = self.confidence_SN[s, row]
                wrong = uniform > confidence
                at = draw[wrong] * bins + self.bin_SN[s, row[wrong]]
                # A wrong row has the residual -c instead of 1 - c, and the square c^2 instead of (1 - c)^2.
                sum_RB = right_SB[s] - np.bincount(at, minlength=draws * bins).reshape(draws, bins)
                more = np.bincount(at, 2 * confidence[wrong] - 1, draws * bins).reshape(draws, bins)
                total_R += _totals(self.count_SB[s], sum_RB, squares_SB[s] + more).sum(axis=1)
            found.append(total_R / (self.rows * seeds))
        return np.concatenate(found)

    def _drawn_sums(self, rng: np.random.Generator) -> Array:
        """Draw normal sums over bins with the exact covariance.

        For nets s and t it is the sum over rows of min(c_s, c_t) - c_s c_t.
        """
        seeds, width = len(self.confidence_SN), self.bins
        covariance = np.empty((seeds, width, seeds, width))
        for s, t in product(range(seeds), repeat=2):
            if s <= t:
                c, e = self.confidence_SN[s], self.confidence_SN[t]
                place_N = self.bin_SN[s] * width + self.bin_SN[t]
                block = np.bincount(place_N, np.minimum(c, e) - c * e, width * width).reshape(width, width)
                covariance[s, :, t, :], covariance[t, :, s, :] = block, block.T
        flat = covariance.reshape(seeds * width, seeds * width)
        kept = np.flatnonzero(flat.diagonal() > 0)
        value, vector = np.linalg.eigh(flat[np.ix_(kept, kept)])
        root = (vector * np.sqrt(np.maximum(value, 0.0))) @ vector.T
        weight = np.where(self.count_SB.ravel() >= 2, 1 / np.maximum(self.count_SB.ravel() - 1, 1), 0.0)[kept]
        square = np.square(rng.standard_normal((NORMAL_DRAWS, len(kept))) @ root) - flat.diagonal()[kept]
        drawn_R: Array = square @ weight / (self.rows * seeds)
        return drawn_R

    def _of_rows(self, value_SB: Array) -> Array:
        """Return the value of each row's bin."""
        return np.take_along_axis(value_SB, self.bin_SN, 1)

    def _sums(self, weight_SN: Array) -> Array:
        """Add the weights of the rows of each bin."""
        pairs = zip(self.bin_SN, weight_SN, strict=True)
        return np.stack([np.bincount(bin_N, weight_N, self.bins) for bin_N, weight_N in pairs])


def _totals(count: Array, residual: Array, square: Array) -> Array:
    """Compute (R^2 - Q) / (n - 1) of each bin; 0 if it has fewer than two rows."""
    return np.where(count >= 2, (residual**2 - square) / np.maximum(count - 1, 1.0), 0.0)
