"""Calibration sums: the small additive object behind every top-label metric, offline and live."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.sums.bins import CELLS, EDGES, Bins, check_bins
from trueodds.sums.cells import COLUMNS, SumsTally, check_cells, clear_empty_cells
from trueodds.sums.frames import check_index
from trueodds.sums.inputs import Array, as_numbers, is_number, is_whole, range_error
from trueodds.sums.rounding import Given, with_resolution
from trueodds.sums.rows import ROWS, top_rows
from trueodds.sums.two_columns import as_labelled_columns

MOST_BRIER = 2 + 1e-6  # 2, and what float32 makes of it

_BLOB = struct.Struct("<4sBH")
_MAGIC = b"tosu"


class CellGroups(NamedTuple):
    """Neighbouring groups of rows: their counts, sums of confidence and of correctness, and upper edges."""

    count_G: Array
    confidence_G: Array
    correct_G: Array
    edge_G: Array


@dataclass(frozen=True, eq=False)
class CalibrationSums:
    """Sums per confidence cell: count, confidence, correctness, and NLL and Brier score with their squares.

    All metrics of the top label are computed from these sums. They add and subtract, so the same object serves a test
    set, a live window, many workers, and late or corrected labels. Sums built without NLL and Brier hold NaN there, and
    so does everything they are added to.

    Attributes:
        cells: Array 7 x 3000 of float64, with rows as in COLUMNS. Counts are exact to 2^53.

    Examples:
        >>> morning = metrics.CalibrationSums.from_top([0.9, 0.8], [True, True])
        >>> evening = metrics.CalibrationSums.from_top([0.6, 0.7], [False, True])
        >>> round(metrics.ece(morning + evening), 3)
        0.3
    """

    cells: Array

    @classmethod
    def zero(cls) -> CalibrationSums:
        return cls(np.zeros((len(COLUMNS), CELLS)))

    @classmethod
    def from_probabilities(
        cls,
        probabilities_NC: npt.ArrayLike,
        labels_N: npt.ArrayLike,
        *,
        classes: Sequence[object] | None = None,
        scores: bool = True,
        resolution: Given = None,
    ) -> CalibrationSums:
        """Build the sums of N rows of class probabilities and their labels. Ties go to the smallest class index.

        NLL is -log p_y in nats (p_y = 0 counts as 2.2e-308). Brier is sum_k (p_k - [k = y])^2, in [0, 2]. The rows are
        read in one pass, in blocks that fit into the cache. The whole array is never copied, whatever its dtype and
        order.

        NLL and Brier of rounded probabilities are those of `trueodds.sums.losses.rounded_losses`. Confidence and
        correctness are those of the values as they are, except that a confidence of 1 counts as 1 - s/4, where s is the
        step. In steps above 0.02 the NLL is unknown (NaN).

        Args:
            probabilities_NC: Probabilities, shape (N, C); each row sums to 1. Shape (N,) is p(positive) of two classes
                and stands for the columns 1 - p and p.
            labels_N: True classes, shape (N,), as indices, or as names with `classes`.
            classes: Names of the columns in their order.
            scores: Whether to include NLL and Brier. Without them (NaN) it takes half the time.
            resolution: Step of rounded probabilities, such as 0.01, or "exact". None: the step is inferred if rows
                do not sum to 1.

        Raises:
            ConfigError: A label is not a class, or the number of names differs from the number of columns. It is a
                ValueError.
            ValueError: An argument is invalid. The message states what was given and what is allowed.

        Examples:
            >>> sums = metrics.CalibrationSums.from_probabilities([0.9, 0.4], ["spam", "ham"], classes=["ham", "spam"])
            >>> metrics.accuracy(sums), round(metrics.mean_confidence(sums), 3)
            (1.0, 0.75)
        """
        p_NC, index_N = as_labelled_columns(probabilities_NC, labels_N, classes)
        tally = SumsTally()
        rows_NC, read_as = with_resolution(p_NC, resolution)
        for rows in top_rows(rows_NC, index_N, scores=scores, resolution=read_as):
            nll = rows.nll if scores and read_as.has_nll else None
            tally.add(rows.confidence, rows.correct, nll, rows.brier if scores else None)
        return cls(tally.cells())

    @classmethod
    def from_top(
        cls,
        confidence_N: npt.ArrayLike,
        correct_N: npt.ArrayLike,
        *,
        nll_N: npt.ArrayLike | None = None,
        brier_N: npt.ArrayLike | None = None,
    ) -> CalibrationSums:
        """Build the sums of N rows from their top labels. Empty vectors give zero sums.

        Args:
            confidence_N: Confidence of each row, in [0, 1].
            correct_N: Whether each top label is right.
            nll_N: NLL of each row, if known.
            brier_N: Brier score of each row, if known.

        Raises:
            ConfigError: Both have one pandas index in different orders. It is a ValueError.
            ValueError: Shapes differ, a confidence is outside [0, 1] or NaN, correctness is not 0 or 1, an NLL is
                negative or not finite, or a Brier score is outside [0, 2].
        """
        check_index(confidence=confidence_N, correct=correct_N)
        confidence, correct = as_numbers(confidence_N, "confidence"), as_numbers(correct_N, "correct")
        if confidence.ndim != 1 or correct.shape != confidence.shape:
            raise ValueError(f"confidence {confidence.shape} and correct {correct.shape} must be vectors of one length")
        n = len(confidence)
        losses = [_losses(nll_N, "nll", n, np.inf), _losses(brier_N, "brier", n, MOST_BRIER)]
        tally = SumsTally()
        for start in range(0, len(confidence), ROWS):
            rows = slice(start, start + ROWS)
            block, right = confidence[rows].astype(np.float64, copy=False), correct[rows]
            if not (block.min() >= 0 and block.max() <= 1):
                raise range_error(block, "confidence")
            if right.dtype != bool:
                sound = (right == 0) | (right == 1)
                if not sound.all():
                    raise ValueError(f"correct holds {right[~sound][0]}; allowed are only 0 and 1 (or False and True)")
                right = right.astype(bool)
            tally.add(block, right, *(None if v is None else v[rows] for v in losses))
        return cls(tally.cells())

    @classmethod
    def from_cells(cls, rows: Iterable[Iterable[float]]) -> CalibrationSums:
        """Build sums from stored rows (cell, count, confidence, correct, nll, nll_squared, brier, brier_squared).

        NLL and Brier may be NaN: unknown.

        Raises:
            ValueError: A row has another length or holds something that is not a number, a cell is outside 0..2999 or
                occurs twice, or no rows can give such sums (a negative count, a mean confidence outside its cell, ...).
        """
        table = [tuple(row) for row in rows]
        seen: set[float] = set()
        for row in table:
            if len(row) != 1 + len(COLUMNS):
                raise ValueError(f"a row of sums is {row!r:.200}; expected 8 numbers: cell, {', '.join(COLUMNS)}")
            if not (is_whole(row[0]) and 0 <= row[0] < CELLS) or row[0] in seen:
                raise ValueError(f"cell {row[0]!r} comes twice or lies outside 0..{CELLS - 1}")
            seen.add(row[0])
        cells = np.zeros((len(COLUMNS), CELLS))
        plain = set(map(type, chain.from_iterable(table))) <= {int, float}  # saves the 20 ms of the next check
        bad = [] if plain else [row for row in table if not all(map(is_number, row))]
        if bad:
            raise ValueError(f"cell {bad[0][0]} holds {bad[0][1:]!r:.200}; expected numbers: {', '.join(COLUMNS)}")
        if table:
            values = np.array(table, dtype=np.float64)
            cells[:, values[:, 0].astype(np.intp)] = values[:, 1:].T
        return cls(check_cells(cells))

    def __add__(self, other: CalibrationSums) -> CalibrationSums:
        return CalibrationSums(self.cells + other.cells) if isinstance(other, CalibrationSums) else NotImplemented

    def __radd__(self, other: int) -> CalibrationSums:
        """Add these sums to 0, the start value of Python's `sum`."""
        return self if is_whole(other) and other == 0 else NotImplemented

    def __sub__(self, other: CalibrationSums) -> CalibrationSums:
        """Subtract the sums of rows. A cell without remaining rows is exactly zero.

        Raises:
            ValueError: `other` holds rows that these sums do not hold.
        """
        if not isinstance(other, CalibrationSums):
            return NotImplemented
        cells = self.cells - other.cells
        count, correct = cells[0], cells[2]
        impossible = (count < 0) | (correct < 0) | (correct > count)
        if impossible.any():
            k = int(impossible.argmax())
            left = f"{correct[k]:g} right of {count[k]:g} rows"
            raise ValueError(f"cell {k} would be left with {left}: subtract only rows that are in these sums")
        return CalibrationSums(clear_empty_cells(cells))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalibrationSums) and np.array_equal(self.cells, other.cells, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]  # holds an array

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.cells[0].sum())

    def groups(self) -> CellGroups:
        """Return the occupied cells in ascending order."""
        cell_G = np.flatnonzero(self.cells[0])
        count_G, confidence_G, correct_G = self.cells[:3, cell_G]
        return CellGroups(count_G, confidence_G, correct_G, EDGES[cell_G + 1])

    def has(self, column: str) -> bool:
        """Return whether every row has the value of one of COLUMNS.

        Args:
            column: Name of the column.
        """
        return not np.isnan(self.cells[COLUMNS.index(column)]).any()

    def total(self, column: str) -> float:
        """Return the sum of one of COLUMNS over all cells.

        Args:
            column: Name of the column.

        Raises:
            ValueError: The name is unknown, or some rows have no NLL or Brier score.
        """
        if column not in COLUMNS:
            raise unknown("column", column, COLUMNS)
        value = float(self.cells[COLUMNS.index(column)].sum())
        if np.isnan(value):
            raise ValueError(
                f"these sums hold no {column}: it was not given, or the probabilities are too coarse for it"
            )
        return value

    def bins(self, bins: int = 15) -> Bins:
        """Compute equal-width bins (lo, hi], as unions of cells.

        Args:
            bins: Number of bins; it must divide 3,000.

        Raises:
            ValueError: `bins` does not divide 3,000.
        """
        bins = check_bins(bins)
        count, confidence, correct = self.cells[:3]
        # Subtraction leaves rounding errors: a mean of 1 + 1e-16 must not become a negative variance.
        mean = np.clip(np.divide(confidence, count, out=np.zeros(CELLS), where=count > 0), 0.0, 1.0)
        per_bin = [v.reshape(bins, -1).sum(axis=1) for v in (count, confidence, correct, count * mean * (1 - mean))]
        step = CELLS // bins
        return Bins(EDGES[:-1:step], EDGES[step::step], *per_bin)

    def to_json(self) -> dict[str, Any]:
        """Return the occupied cells as plain numbers (NaN as null), which `from_json` restores exactly."""
        occupied = np.flatnonzero(self.cells[0])
        rows = [[int(k), *(None if np.isnan(v) else float(v) for v in self.cells[:, k])] for k in occupied]
        return {"columns": ["cell", *COLUMNS], "cells": rows}

    @classmethod
    def from_json(cls, value: dict[str, Any] | str) -> CalibrationSums:
        """Restore the sums that `to_json` wrote.

        Args:
            value: The sums as a tree or as JSON text.

        Raises:
            ValueError: The tree has another shape or other columns, or `from_cells` does not accept its rows.
        """
        tree = json.loads(value) if isinstance(value, str) else value
        if not isinstance(tree, dict):
            raise ValueError(f"calibration sums are {tree!r:.200}; expected an object with columns and cells")
        columns, rows = tree.get("columns"), tree.get("cells")
        if columns != ["cell", *COLUMNS]:
            raise ValueError(f"calibration sums have columns {columns}; expected cell, {', '.join(COLUMNS)}")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise ValueError(f"cells of calibration sums are {rows!r:.200}; expected a list of rows")
        return cls.from_cells([np.nan if v is None else v for v in row] for row in rows)

    def to_bytes(self) -> bytes:
        """Return a compact blob: occupied cells as uint16, then their seven float64 sums, deflated."""
        occupied = np.flatnonzero(self.cells[0]).astype("<u2")
        body = occupied.tobytes() + np.ascontiguousarray(self.cells[:, occupied]).astype("<f8").tobytes()
        return _BLOB.pack(_MAGIC, 1, len(occupied)) + zlib.compress(body, 6)

    @classmethod
    def from_bytes(cls, blob: bytes) -> CalibrationSums:
        """Restore the sums that `to_bytes` wrote.

        Raises:
            ValueError: The blob has another format or is damaged, or no rows can give its sums.
        """
        magic, version, occupied = _BLOB.unpack_from(blob) if len(blob) >= _BLOB.size else (b"", 0, 0)
        if (magic, version) != (_MAGIC, 1):
            raise ValueError("not a blob of calibration sums (version 1)")
        cells = np.zeros((len(COLUMNS), CELLS))
        try:
            body = zlib.decompress(blob[_BLOB.size :])
            index = np.frombuffer(body, "<u2", occupied)
            if len(np.unique(index)) < occupied:
                raise ValueError("a cell comes twice")
            cells[:, index] = np.frombuffer(body, "<f8", offset=2 * occupied).reshape(len(COLUMNS), occupied)
            return cls(check_cells(cells))
        except (zlib.error, ValueError, IndexError) as error:
            raise ValueError(f"a damaged blob of calibration sums: {error}") from None


def _losses(values: npt.ArrayLike | None, name: str, n: int, most: float) -> Array | None:
    """Check scores of n rows, which must be finite and in [0, most]. None stays None."""
    if values is None:
        return None
    loss_N = as_numbers(values, name).astype(np.float64, copy=False)
    if loss_N.shape != (n,):
        raise ValueError(f"{name} has shape {loss_N.shape}; expected ({n},), one for each confidence")
    sound = (loss_N >= 0) & (loss_N <= most) & (loss_N < np.inf)
    if not sound.all():
        raise ValueError(f"{name} holds {loss_N[~sound][0]}; allowed are finite numbers in [0, {round(most, 3)}]")
    return loss_N
