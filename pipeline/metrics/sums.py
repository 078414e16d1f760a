"""Calibration sums: the small additive object behind every top-label metric, offline and live.

The confidence axis [0, 1] is cut into 3,000 equal cells. A confidence c lies in cell k (0-based) when
k/3000 < c <= (k+1)/3000, decided by comparison in float64; 0 lies in the first cell. This is the project's
only definition of a bin: an equal-width bin (lo, hi] is a union of cells, for every divisor of 3,000.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.metrics.inputs import Array, check_labels, check_probabilities

CELLS = 3000
COLUMNS = ("count", "confidence", "correct", "nll", "nll_squared", "brier", "brier_squared")
EDGES = np.arange(CELLS + 1, dtype=np.float64) / CELLS
SMALLEST_PROBABILITY = float(np.finfo(np.float64).tiny)
"""A probability of 0 for the true class counts as this one: its NLL is 708.4, and sums stay finite."""

_BLOB = struct.Struct("<4sBH")
_MAGIC = b"tosu"


def cell_of(confidence: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Cell index 0..2999: the smallest k with c <= (k+1)/3000, by comparison.

    The product c * 3000 only proposes a cell: used alone, it puts up to 13% of the confidences that lie
    within one ulp of an edge into a neighbour. It is never too low: a float above the float nearest to
    k/3000 is above k/3000 itself, and rounding the product keeps that order.
    """
    confidence_N = np.asarray(confidence, dtype=np.float64)
    cell_N = np.clip((confidence_N * CELLS).astype(np.intp), 0, CELLS - 1)
    cell_N -= (confidence_N <= EDGES[cell_N]) & (cell_N > 0)
    return cell_N


@dataclass(frozen=True)
class Bins:
    """Sums over B confidence bins (lo, hi]; every mean is a division away.

    count_B: rows; confidence_B: sum c; correct_B: sum a; variance_B: sum c(1-c), the variance of sum a if
    the model is calibrated. Where cells are all that is known, c is the cell's mean confidence, and
    variance_B is exact to count / (4 * 3000^2).
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
        """sum (a - c) per bin: positive where the model is under-confident."""
        return self.correct_B - self.confidence_B

    @property
    def mean_confidence_B(self) -> Array:
        """NaN in an empty bin."""
        return _mean(self.confidence_B, self.count_B)

    @property
    def accuracy_B(self) -> Array:
        """NaN in an empty bin."""
        return _mean(self.correct_B, self.count_B)


@dataclass(frozen=True, eq=False)
class CalibrationSums:
    """Per confidence cell: count, sums of confidence and correctness, sums and squares of NLL and Brier.

    `cells` is 7 x 3000 float64, rows as in COLUMNS (counts are exact to 2^53). Sums add and subtract, so
    the same object serves a test set, a live window, many workers, and late or corrected labels. Sums built
    without NLL and Brier hold NaN there, and so does everything they are added to.
    """

    cells: Array

    @classmethod
    def zero(cls) -> CalibrationSums:
        return cls(np.zeros((len(COLUMNS), CELLS)))

    @classmethod
    def from_probabilities(cls, probabilities_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> CalibrationSums:
        """Sums of N rows of class probabilities and their labels. Ties go to the smallest class index.

        NLL is -log p_y in nats (p_y = 0 counts as 2.2e-308); Brier is sum_k (p_k - [k = y])^2, in [0, 2].

        Raises:
            ValueError: naming the argument, what was given and what is allowed.
        """
        probabilities = check_probabilities(probabilities_NC)
        labels = check_labels(labels_N, *probabilities.shape)
        rows = np.arange(len(labels))
        top_N = probabilities.argmax(axis=1)
        true_N = probabilities[rows, labels].astype(np.float64)
        squares_N = np.einsum("nc,nc->n", probabilities, probabilities, dtype=np.float64, casting="same_kind")
        return cls.from_top(
            np.minimum(probabilities[rows, top_N].astype(np.float64), 1.0),
            top_N == labels,
            nll_N=-np.log(np.clip(true_N, SMALLEST_PROBABILITY, 1.0)),
            brier_N=np.maximum(squares_N - 2 * true_N + 1, 0.0),
        )

    @classmethod
    def from_top(
        cls,
        confidence_N: npt.ArrayLike,
        correct_N: npt.ArrayLike,
        *,
        nll_N: npt.ArrayLike | None = None,
        brier_N: npt.ArrayLike | None = None,
    ) -> CalibrationSums:
        """Sums of N rows known by their top label: confidence in [0, 1] and whether it was right.

        Raises:
            ValueError: shapes that disagree, a confidence outside [0, 1] or NaN, correctness that is not 0 or 1.
        """
        confidence = np.asarray(confidence_N, dtype=np.float64)
        correct = np.asarray(correct_N, dtype=np.float64)
        if confidence.ndim != 1 or correct.shape != confidence.shape:
            raise ValueError(f"confidence {confidence.shape} and correct {correct.shape} must be vectors of one length")
        if not ((confidence >= 0) & (confidence <= 1)).all():
            bad = confidence[~((confidence >= 0) & (confidence <= 1))][0]
            raise ValueError(f"confidence holds {bad}; allowed is [0, 1]")
        if not ((correct == 0) | (correct == 1)).all():
            raise ValueError("correct must hold only 0 and 1 (or False and True)")
        cell_N = cell_of(confidence)
        unknown = np.full(len(confidence), np.nan)
        nll = unknown if nll_N is None else np.asarray(nll_N, dtype=np.float64)
        brier = unknown if brier_N is None else np.asarray(brier_N, dtype=np.float64)
        weights = (None, confidence, correct, nll, nll * nll, brier, brier * brier)
        return cls(np.stack([np.bincount(cell_N, w, CELLS).astype(np.float64) for w in weights]))

    @classmethod
    def from_cells(cls, rows: Iterable[Iterable[float]]) -> CalibrationSums:
        """From rows (cell, count, confidence, correct, nll, nll_squared, brier, brier_squared), as stores keep them.

        Raises:
            ValueError: a cell outside 0..2999, or given twice.
        """
        cells = np.zeros((len(COLUMNS), CELLS))
        seen = set()
        for cell, *values in rows:
            if not 0 <= cell < CELLS or cell in seen:
                raise ValueError(f"cell {cell} comes twice or lies outside 0..{CELLS - 1}")
            seen.add(cell)
            cells[:, int(cell)] = values
        return cls(_cleared(cells))

    def __add__(self, other: CalibrationSums) -> CalibrationSums:
        return CalibrationSums(self.cells + other.cells)

    def __sub__(self, other: CalibrationSums) -> CalibrationSums:
        """Take rows out again. A cell left without rows is exactly zero.

        Raises:
            ValueError: if `other` holds rows that these sums do not.
        """
        cells = self.cells - other.cells
        count, correct = cells[0], cells[2]
        impossible = (count < 0) | (correct < 0) | (correct > count)
        if impossible.any():
            k = int(impossible.argmax())
            left = f"{correct[k]:g} right of {count[k]:g} rows"
            raise ValueError(f"cell {k} would be left with {left}: what is taken out is not in these sums")
        return CalibrationSums(_cleared(cells))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalibrationSums) and np.array_equal(self.cells, other.cells, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]  # holds an array

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.cells[0].sum())

    def total(self, column: str) -> float:
        """Sum of one of COLUMNS over all cells.

        Raises:
            ValueError: for NLL or Brier when some rows came without them.
        """
        value = float(self.cells[COLUMNS.index(column)].sum())
        if np.isnan(value):
            raise ValueError(f"these sums hold no {column}: they were built by from_top without it")
        return value

    def bins(self, bins: int = 15) -> Bins:
        """Equal-width bins (lo, hi], as unions of cells.

        Raises:
            ValueError: if `bins` is not a divisor of 3,000.
        """
        if bins < 1 or CELLS % bins:
            raise ValueError(f"bins is {bins}; allowed are the divisors of {CELLS} (10, 15, 20, 25, 50, 100, ...)")
        count, confidence, correct = self.cells[:3]
        # Subtraction leaves rounding behind: a mean of 1 + 1e-16 must not become a negative variance.
        mean = np.clip(np.divide(confidence, count, out=np.zeros(CELLS), where=count > 0), 0.0, 1.0)
        per_bin = [v.reshape(bins, -1).sum(axis=1) for v in (count, confidence, correct, count * mean * (1 - mean))]
        step = CELLS // bins
        return Bins(EDGES[:-1:step], EDGES[step::step], *per_bin)

    def to_json(self) -> dict[str, Any]:
        """Occupied cells only, as plain numbers (NaN as null); `from_json` restores them exactly."""
        occupied = np.flatnonzero(self.cells[0])
        rows = [[int(k), *(None if np.isnan(v) else float(v) for v in self.cells[:, k])] for k in occupied]
        return {"columns": ["cell", *COLUMNS], "cells": rows}

    @classmethod
    def from_json(cls, value: dict[str, Any] | str) -> CalibrationSums:
        """The sums that `to_json` wrote, as a tree or as text.

        Raises:
            ValueError: other columns, or what `from_cells` refuses.
        """
        tree = json.loads(value) if isinstance(value, str) else value
        columns = tree.get("columns")
        if columns != ["cell", *COLUMNS]:
            raise ValueError(f"calibration sums have columns {columns}; expected cell, {', '.join(COLUMNS)}")
        return cls.from_cells([[np.nan if v is None else v for v in row] for row in tree["cells"]])

    def to_bytes(self) -> bytes:
        """A compact blob: occupied cells as uint16, then their seven float64 sums, deflated."""
        occupied = np.flatnonzero(self.cells[0]).astype("<u2")
        body = occupied.tobytes() + np.ascontiguousarray(self.cells[:, occupied]).astype("<f8").tobytes()
        return _BLOB.pack(_MAGIC, 1, len(occupied)) + zlib.compress(body, 6)

    @classmethod
    def from_bytes(cls, blob: bytes) -> CalibrationSums:
        """The sums that `to_bytes` wrote.

        Raises:
            ValueError: not such a blob, or a damaged one.
        """
        magic, version, occupied = _BLOB.unpack_from(blob) if len(blob) >= _BLOB.size else (b"", 0, 0)
        if (magic, version) != (_MAGIC, 1):
            raise ValueError("not a blob of calibration sums (version 1)")
        cells = np.zeros((len(COLUMNS), CELLS))
        try:
            body = zlib.decompress(blob[_BLOB.size :])
            index = np.frombuffer(body, "<u2", occupied)
            cells[:, index] = np.frombuffer(body, "<f8", offset=2 * occupied).reshape(len(COLUMNS), occupied)
        except (zlib.error, ValueError, IndexError) as error:
            raise ValueError(f"a damaged blob of calibration sums: {error}") from None
        return cls(cells)


def _cleared(cells: Array) -> Array:
    cells[:, cells[0] == 0] = 0.0
    return cells


def _mean(sums: Array, counts: Array) -> Array:
    mean: Array = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return mean
