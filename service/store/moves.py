"""Moves: what each commit adds to the sums, one small record per row, before compaction merges them into periods.

Appending a blob of records costs a commit almost nothing and never waits for another worker. A read adds up the
periods it needs and the moves that are not merged yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.hours import Hours, hour_of, within
from trueodds.metrics import CELLS, COLUMNS, cell_of
from trueodds.sums.bins import COARSE_CELLS
from trueodds.sums.inputs import Array

MAX_TAGS = 100
"""Tags that get sums of their own in one version; all others share OTHER_TAGS."""
OTHER_TAGS = "(other)"
NO_TAG, OTHER_KEY = 0, MAX_TAGS + 1

TOTAL, BY_CLASS, BY_TAG = range(3)
KINDS = (TOTAL, BY_CLASS, BY_TAG)

ANSWERS, LABELS = range(2)
"""Kinds of moves."""
ANSWER = np.dtype([("hour", "<i4"), ("cell", "<u2"), ("tag", "u1"), ("predicted", "<u4")])
LABEL = np.dtype(
    [*ANSWER.descr, ("sign", "i1"), ("correct", "u1"), ("confidence", "<f8"), ("nll", "<f8"), ("brier", "<f8")]
)
Records = npt.NDArray[np.void]


def answers(
    created_ms: npt.ArrayLike, confidence_N: Array, predicted_N: npt.ArrayLike, tag_N: npt.ArrayLike
) -> Records:
    """Moves of N new answers."""
    records = np.zeros(len(confidence_N), ANSWER)
    records["hour"], records["cell"] = hour_of(created_ms), cell_of(confidence_N)
    records["tag"], records["predicted"] = tag_N, predicted_N
    return records


def labels(
    created_ms_N: npt.ArrayLike,
    confidence_N: Array,
    predicted_N: npt.ArrayLike,
    tag_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    nll_N: npt.ArrayLike,
    brier_N: npt.ArrayLike,
    sign_N: npt.ArrayLike = 1,
) -> Records:
    """Moves of N labels: sign 1 puts a row into the sums, -1 takes it out again."""
    records = np.zeros(len(confidence_N), LABEL)
    records["hour"], records["cell"] = hour_of(created_ms_N), cell_of(confidence_N)
    records["tag"], records["predicted"], records["sign"] = tag_N, predicted_N, sign_N
    records["correct"], records["confidence"] = correct_N, confidence_N
    records["nll"], records["brier"] = nll_N, brier_N
    return records


def read(rows: list[tuple[int, bytes]]) -> Moves:
    """Rows (kind, data) of the table of moves."""
    found = [b"".join(bytes(data) for kind, data in rows if kind == wanted) for wanted in (ANSWERS, LABELS)]
    return Moves(np.frombuffer(found[0], ANSWER), np.frombuffer(found[1], LABEL))


@dataclass(frozen=True, eq=False)
class Moves:
    """Answers and labels of one version that the periods do not hold yet."""

    answers: Records
    labels: Records

    def between(self, hours: Hours) -> Moves:
        """Those of the hours [first, end)."""
        return Moves(*(records[within(records["hour"], hours)] for records in (self.answers, self.labels)))


def keys_of(records: Records, kind: int) -> npt.NDArray[np.int64]:
    """Where a record belongs in the sums of a kind: its cell, or 60 x its group + its cell of 60."""
    cell_N = records["cell"].astype(np.int64)
    if kind == TOTAL:
        return cell_N
    group_N = records["predicted" if kind == BY_CLASS else "tag"].astype(np.int64)
    return group_N * COARSE_CELLS + cell_N // (CELLS // COARSE_CELLS)


def columns_of(records: Records) -> Array:
    """7 x N: what each label's record adds to the columns of the calibration sums."""
    nll, brier, sign = records["nll"], records["brier"], records["sign"].astype(np.float64)
    rows = (np.ones(len(records)), records["confidence"], records["correct"], nll, nll * nll, brier, brier * brier)
    assert len(rows) == len(COLUMNS)
    return np.stack([sign * row for row in rows])
