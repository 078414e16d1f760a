"""Sums of p(positive) with finer cells near 0, because the 3,000 equal cells are too wide for rare positives.

Below 1/60 the equal cells are cut at 10^(-6 + k/50). From p = 1e-6 on, no fine cell is wider than a twentieth of its p.
Each fine cell lies in one equal cell. So equal cells are sums of fine ones, and sums add, subtract and merge as usual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.sums.bins import CELLS, EDGES, cell_of
from trueodds.sums.inputs import Array
from trueodds.sums.sums import CalibrationSums, CellGroups

COARSE = 50
"""Number of equal cells that are cut, those up to 1/60."""
_CUTS = 10.0 ** (np.arange(-300, 0) / 50)
FINE_EDGES: Array = np.union1d(EDGES[: COARSE + 1], _CUTS[EDGES[COARSE] > _CUTS])
FINE = len(FINE_EDGES) - 1
"""Number of fine cells."""
EQUAL_F = cell_of((FINE_EDGES[:-1] + FINE_EDGES[1:]) / 2)
"""Equal cell of each fine one."""


def fine_cell_of(p_N: Array) -> npt.NDArray[np.intp]:
    """Return cell numbers: for p up to 1/60 its fine cell, counted from 3,000 on; otherwise its equal cell."""
    fine_N = np.maximum(np.searchsorted(FINE_EDGES, p_N, side="left") - 1, 0)
    cells_N: npt.NDArray[np.intp] = np.where(p_N <= EDGES[COARSE], CELLS + fine_N, cell_of(p_N))
    return cells_N


def equal_cell_of(cell_N: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the equal cells of cells that `fine_cell_of` numbers."""
    is_fine_N = cell_N >= CELLS
    return np.where(is_fine_N, EQUAL_F[np.where(is_fine_N, cell_N - CELLS, 0)], cell_N)


@dataclass(frozen=True, eq=False)
class FineSums(CalibrationSums):
    """Calibration sums that also store rows, sum of p and positives of the fine cells (see the module)."""

    fine: Array
    """Array 3 x F: the first three rows of `cells`, by fine cell."""

    @classmethod
    def of(
        cls, p_N: Array, positive_N: npt.ArrayLike, *, nll_N: npt.ArrayLike | None, brier_N: npt.ArrayLike
    ) -> FineSums:
        """Build the sums of N rows like `CalibrationSums.from_top`, with their fine cells.

        Raises:
            ValueError: `CalibrationSums.from_top` does not accept the rows.
        """
        sums = CalibrationSums.from_top(p_N, positive_N, nll_N=nll_N, brier_N=brier_N)
        low_N = p_N <= EDGES[COARSE]
        fine_L = fine_cell_of(p_N[low_N]) - CELLS
        columns = (None, p_N[low_N], np.asarray(positive_N, np.float64)[low_N])
        return cls(sums.cells, np.stack([np.bincount(fine_L, column, FINE) for column in columns]).astype(np.float64))

    def groups(self) -> CellGroups:
        """Return the occupied fine cells, then the occupied equal ones."""
        above = CalibrationSums(np.where(np.arange(CELLS) < COARSE, 0.0, self.cells)).groups()
        cell_G = np.flatnonzero(self.fine[0])
        below = (*self.fine[:, cell_G], FINE_EDGES[cell_G + 1])
        return CellGroups(*(np.concatenate(parts) for parts in zip(below, above, strict=True)))

    def __add__(self, other: CalibrationSums) -> CalibrationSums:
        if isinstance(other, FineSums):
            return FineSums(self.cells + other.cells, self.fine + other.fine)
        if isinstance(other, CalibrationSums) and not other.n:
            return self
        return super().__add__(other)

    def __radd__(self, other: int | CalibrationSums) -> CalibrationSums:
        """Add these sums to 0, or to sums of equal cells. Python calls this method first."""
        return self + other if isinstance(other, CalibrationSums) else super().__radd__(other)

    def __sub__(self, other: CalibrationSums) -> CalibrationSums:
        left = super().__sub__(other)
        if not isinstance(other, FineSums):
            return left
        fine = self.fine - other.fine
        fine[:, fine[0] == 0] = 0.0
        return FineSums(left.cells, fine)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and (not isinstance(other, FineSums) or np.array_equal(self.fine, other.fine))

    __hash__ = None  # holds arrays
