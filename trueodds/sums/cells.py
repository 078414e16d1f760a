"""The table of cells in calibration sums: adding rows, and the check that rows can produce it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trueodds.sums.bins import CELLS, EDGES, bin_of
from trueodds.sums.inputs import Array

COLUMNS = ("count", "confidence", "correct", "nll", "nll_squared", "brier", "brier_squared")
"""Rows of the table; each column of the table is a cell."""
SLACK = 1e-5
"""Distance, per row, by which a mean may lie outside its cell.

It allows for rounding in sums from which others were subtracted (measured: 2e-6 after subtracting all but one of 10^7
rows).
"""


class SumsTally:
    """Sums under construction, block by block. `np.add.at` is 1.5 times as fast as `np.bincount`."""

    def __init__(self) -> None:
        self.outcome = np.zeros(2 * CELLS, dtype=np.int64)  # wrong and right rows of each cell, alternating
        self.sums = np.zeros((len(COLUMNS), CELLS))
        self.missing: set[int] = set()

    def add(self, confidence: Array, correct: npt.NDArray[np.bool_], nll: Array | None, brier: Array | None) -> None:
        cell_N = bin_of(confidence, CELLS)
        np.add.at(self.outcome, 2 * cell_N + correct, 1)
        np.add.at(self.sums[1], cell_N, confidence)
        for row, loss in ((3, nll), (5, brier)):
            if loss is None:
                self.missing |= {row, row + 1}
            else:
                np.add.at(self.sums[row], cell_N, loss)
                np.add.at(self.sums[row + 1], cell_N, loss * loss)

    def cells(self) -> Array:
        wrong, right = self.outcome.reshape(CELLS, 2).T
        self.sums[0], self.sums[2] = wrong + right, right
        self.sums[list(self.missing)] = np.where(self.sums[0] > 0, np.nan, 0.0)
        return self.sums


def clear_empty_cells(cells: Array) -> Array:
    """Set cells without rows to exactly zero, in place, and return the cells."""
    cells[:, cells[0] == 0] = 0.0
    return cells


def check_cells(cells: Array) -> Array:
    """Check that rows can produce the cells, and set those without rows to exactly zero.

    Raises:
        ValueError: A cell is impossible. The message names the first one and its content.
    """
    count, confidence, correct = cells[:3]
    slack = SLACK * np.maximum(count, 1.0)
    with np.errstate(invalid="ignore"):  # 0 x inf
        low, high = count * EDGES[:-1] - slack, count * EDGES[1:] + slack
        possible = (count >= 0) & (count < np.inf) & (correct >= 0) & (correct <= count)
        possible &= (low <= confidence) & (confidence <= high) & ~np.isinf(cells[3:]).any(axis=0)
    if not possible.all():
        k = int(possible.argmin())
        held = ", ".join(f"{name} {value:g}" for name, value in zip(COLUMNS, cells[:, k], strict=True))
        raise ValueError(
            f"cell {k} holds {held}, which no rows can give: 0 <= correct <= count, and a mean confidence"
            f" in ({k}/{CELLS}, {k + 1}/{CELLS}]"
        )
    return clear_empty_cells(cells)
