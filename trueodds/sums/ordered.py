"""Ordered classes (levels): probabilities of "at least level k", and the additive sums of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.sums.bins import CELLS, bin_of
from trueodds.sums.fine import FineSums
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.inputs import Array, check_labels
from trueodds.sums.positive import PositiveClass
from trueodds.sums.rounding import EXACT, Given, Resolution, with_resolution
from trueodds.sums.rows import checked_blocks
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import quotes

FEWEST_LEVELS = 2
MOST_LEVELS = 101
"""Largest number of levels with names, enough for scores of 0 to 100. Each level has sums of its own."""
UNLIKELY = 1e-6
"""Probability that every level gets on top, so that the mean loss over the other levels exists in each row."""
ROW_COLUMNS = ("count", "residual", "rps", "rps_squared", "rps_if_off")
"""Sums over rows that `OrderedSums.rows` holds for each cell."""


class OrderedRows(NamedTuple):
    """Numbers of N rows of ordered classes, with K levels."""

    at_least_NK: Array
    """Probability of "at least level k" for k = 1 .. K - 1, shape (N, K - 1)."""
    reached_NK: npt.NDArray[np.bool_]
    """Whether the true level is at least k, shape (N, K - 1)."""
    residual_N: Array
    """(true level - expected level) / (K - 1), in [-1, 1]."""
    rps_N: Array
    """Ranked probability score, in [0, K - 1]."""
    rps_if_off_N: Array
    """Mean of that score over the levels other than the median one, by the row's own probabilities."""
    is_median_N: npt.NDArray[np.bool_]
    """Whether the true level is the median level, the one of least score."""

    def only(self, which_N: npt.NDArray[np.bool_]) -> OrderedRows:
        """Return the numbers of some rows."""
        return OrderedRows._make(column[which_N] for column in self)

    @classmethod
    def join(cls, parts: Sequence[OrderedRows]) -> OrderedRows:
        """Join the numbers of blocks of rows."""
        return cls._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


def at_least(probabilities_NC: npt.NDArray[np.floating]) -> Array:
    """Compute the probabilities of "at least level k" for k = 1 .. K - 1, shape (N, K - 1), each at most 1.

    Examples:
        >>> at_least(np.array([[0.5, 0.25, 0.25]]))
        array([[0.5 , 0.25]])
    """
    upwards_NC = np.cumsum(probabilities_NC[:, :0:-1].astype(np.float64, copy=False), axis=1)
    return np.clip(upwards_NC[:, ::-1], 0.0, 1.0)


def ordered_rows(probabilities_NC: npt.NDArray[np.floating], labels_N: npt.NDArray[np.integer]) -> OrderedRows:
    """Compute the numbers of each row of ordered classes. The input is not checked."""
    p_NC = probabilities_NC.astype(np.float64, copy=False)
    most, row_N = p_NC.shape[1] - 1, np.arange(len(p_NC))
    at_least_NK = at_least(p_NC)
    reached_NK = labels_N[:, None] > np.arange(most)
    # The score of level y is sum_k P_k^2 + sum_{k <= y} (1 - 2 P_k)
    score_NC = np.zeros_like(p_NC)
    np.cumsum(1 - 2 * at_least_NK, axis=1, out=score_NC[:, 1:])
    score_NC += np.vecdot(at_least_NK, at_least_NK)[:, None]
    median_N = (at_least_NK > 0.5).sum(axis=1)
    weight_NC = p_NC + UNLIKELY
    weight_NC[row_N, median_N] = 0.0
    return OrderedRows(
        at_least_NK,
        reached_NK,
        (labels_N - at_least_NK.sum(axis=1)) / most,
        np.square(at_least_NK - reached_NK).sum(axis=1),
        np.vecdot(weight_NC, score_NC) / weight_NC.sum(axis=1),
        median_N == labels_N,
    )


def residual_cell(residual_N: Array, is_median_N: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return the cell of each row in `OrderedSums.rows`: those of rows off the median level come after the others."""
    cell_N = bin_of(np.clip((1 + residual_N) / 2, 0.0, 1.0), CELLS)
    return np.where(is_median_N, cell_N, cell_N + CELLS)


@dataclass(frozen=True, eq=False)
class OrderedSums:
    """Additive sums of ordered classes: of each "at least level k" as of a positive class, and of the rows.

    All figures of ordered classes are computed from them. They add and subtract like `CalibrationSums`. With two
    levels, `at_least[0]` is equal to `PositiveClass.sums` of the upper one.

    Attributes:
        at_least: Sums by the probability of "at least level k", for k = 1 .. K - 1.
        rows: Array 5 x 6,000 with rows as in ROW_COLUMNS. The columns are 3,000 cells of the residual (true level -
            expected level) / (K - 1) from -1 to 1, for the rows whose true level is the median one, and then for the
            others.

    Examples:
        >>> sums = metrics.OrderedSums.from_probabilities([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]], [0, 2])
        >>> sums.levels, sums.n, metrics.rps(sums + sums)
        (3, 2, 0.28125)
    """

    at_least: tuple[CalibrationSums, ...]
    rows: Array

    @classmethod
    def zero(cls, levels: int) -> OrderedSums:
        """Return sums without rows."""
        none = np.zeros(0)
        empty = FineSums.of(none, none, nll_N=none, brier_N=none)
        return cls((empty,) * (check_levels(levels) - 1), np.zeros((len(ROW_COLUMNS), 2 * CELLS)))

    @classmethod
    def from_probabilities(
        cls, probabilities_NC: npt.ArrayLike, labels_N: npt.ArrayLike, *, resolution: Given = None
    ) -> OrderedSums:
        """Build the sums of N rows of probabilities of ordered classes, the lowest level first, and their labels.

        Args:
            probabilities_NC: Probabilities, shape (N, K); each row sums to 1.
            labels_N: True levels, shape (N,), from 0 on.
            resolution: Step of rounded probabilities, as `CalibrationSums.from_probabilities` has it.

        Raises:
            ValueError: The probabilities or labels are invalid, or there are fewer than two levels.
        """
        check_index(probabilities=probabilities_NC, labels=labels_N)
        check_columns(probabilities_NC, labels_N)
        matrix_NC, read_as = with_resolution(probabilities_NC, resolution)
        check_levels(matrix_NC.shape[1])
        labels = check_labels(labels_N, *matrix_NC.shape)
        total = cls.zero(matrix_NC.shape[1])
        for rows, block_NC in checked_blocks(matrix_NC, step=read_as.step):
            total = total + cls.of_rows(ordered_rows(block_NC, labels[rows]), read_as)
        return total

    @classmethod
    def of_rows(cls, rows: OrderedRows, resolution: Resolution = EXACT) -> OrderedSums:
        """Build the sums of the numbers of some rows. Each "at least" is read by the resolution like p(positive)."""
        at_least = tuple(
            PositiveClass.sums_of(p_N, reached_N, resolution)
            for p_N, reached_N in zip(rows.at_least_NK.T, rows.reached_NK.T, strict=True)
        )
        cell_N = residual_cell(rows.residual_N, rows.is_median_N)
        columns = (None, rows.residual_N, rows.rps_N, rows.rps_N**2, rows.rps_if_off_N)
        return cls(at_least, np.stack([np.bincount(cell_N, column, 2 * CELLS) for column in columns]))

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.at_least) + 1

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.rows[0].sum())

    def total(self, column: str) -> float:
        """Return the sum of one of ROW_COLUMNS over all rows."""
        return float(self.rows[ROW_COLUMNS.index(column)].sum())

    def __add__(self, other: OrderedSums) -> OrderedSums:
        self._check_alike(other)
        at_least = tuple(one + more for one, more in zip(self.at_least, other.at_least, strict=True))
        return OrderedSums(at_least, self.rows + other.rows)

    def __sub__(self, other: OrderedSums) -> OrderedSums:
        """Subtract the sums of rows. A cell without remaining rows is exactly zero.

        Raises:
            ValueError: `other` holds rows that these sums do not hold, or has another number of levels.
        """
        self._check_alike(other)
        at_least = tuple(one - less for one, less in zip(self.at_least, other.at_least, strict=True))
        rows = self.rows - other.rows
        if (rows[0] < 0).any():
            raise ValueError("a cell of residuals would have fewer than 0 rows: subtract only rows of these sums")
        rows[:, rows[0] == 0] = 0.0
        return OrderedSums(at_least, rows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OrderedSums) and self.at_least == other.at_least and np.array_equal(self.rows, other.rows)
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def _check_alike(self, other: OrderedSums) -> None:
        if self.levels != other.levels:
            raise ValueError(f"sums of {self.levels} and {other.levels} levels; add and subtract sums of equal levels")


@dataclass(frozen=True, eq=False)
class LevelSums:
    """Names of the levels, the lowest first, and the sums of the labelled answers."""

    names: tuple[str, ...]
    sums: OrderedSums


def check_level_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names of ordered classes.

    Raises:
        ConfigError: There are fewer than two or more than 101, or all are numbers that do not ascend. Names in the
            order of their letters, such as 1, 10, 2, are the usual cause.
    """
    names = tuple(classes)
    if len(names) > MOST_LEVELS:
        raise ConfigError(
            f"ordered classes are at most {MOST_LEVELS}, but there are {len(names):,}; join neighbouring levels in the"
            " labels and the model, or leave `ordered` out"
        )
    if len(names) < FEWEST_LEVELS:
        raise ConfigError(f"ordered classes are two or more, but there are {len(names)}: {quotes(names, 3)}")
    numbers = list(filter(None, map(_number, names)))
    if len(numbers) == len(names) and any(one >= other for (one,), (other,) in pairwise(numbers)):
        ascending = ",".join(name for _, name in sorted(zip(numbers, names, strict=True)))
        raise ConfigError(
            f"ordered classes are {quotes(names, 12)}, numbers that do not ascend; the lowest level comes first. Give"
            f" the classes in their order: {ascending}"
        )
    return names


def are_levels(classes: Sequence[str]) -> bool:
    """Return whether `check_level_names` accepts the classes."""
    try:
        check_level_names(classes)
    except ConfigError:
        return False
    return True


def _number(name: str) -> tuple[float] | None:
    """Return the number that a name is, in a tuple; None for other names."""
    try:
        return (float(name),)
    except ValueError:
        return None


def check_levels(levels: int) -> int:
    """Return a number of levels.

    Raises:
        ValueError: There are fewer than two.
    """
    if levels < FEWEST_LEVELS:
        raise ValueError(f"there is {levels} class; ordered classes are two or more, the lowest level first")
    return levels
