"""Deltas: the contribution of each commit to the sums, one small record per row, until compaction merges them.

Appending a blob of records costs a commit almost nothing and never waits for another worker. A read adds the unmerged
deltas to the periods that it needs. Deltas are in the table `moves`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from service.store.rows import Integers, StoreDamagedError
from service.store.work.statements import Insert, Query, Work
from trueodds.metrics import CELLS, COLUMNS, cell_of
from trueodds.sums.bins import COARSE_CELLS
from trueodds.sums.fine import equal_cell_of, fine_cell_of
from trueodds.sums.hours import Hours, minute_of, within
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of
from trueodds.sums.ordered import OrderedRows, residual_cell

MAX_TAGS = 100
"""Number of tags of a version that get their own sums on arrival; see `tag_places` for tags that become frequent."""
MOST_TAGS = 250
"""Largest number of tags with their own sums in one version. The others share OTHER_TAGS. Their keys are one byte."""
OTHER_TAGS = "(other)"
UNTAGGED_KEY, OTHER_KEY = 0, MAX_TAGS + 1

TOTAL, BY_CLASS, BY_TAG, POSITIVE, POSITIVE_BY_CLASS, POSITIVE_BY_TAG, ACTED, ORDERED, ROUNDED = range(9)
"""Kinds of sums: by the confidence of the predicted class; by p(positive), for versions with a positive class; of the
answers that acted alone, whose labels are not summed; by level, for versions with ordered classes, labels only; and of
rounded probabilities, and zeros of what came true, labels only.
"""
TOTALS = (TOTAL, POSITIVE, ACTED, ROUNDED)
"""Kinds on 3,000 cells, over all answers."""

ANSWERS, LABELS, POSITIVE_ANSWERS, POSITIVE_LABELS, ACTED_ANSWERS, ACTED_LABELS = range(6)
ORDERED_ANSWERS, ORDERED_LABELS = 6, 7
ROUNDED_ANSWERS, ROUNDED_LABELS = 8, 9
"""Kinds of deltas. ACTED_LABELS, ORDERED_ANSWERS and ROUNDED_ANSWERS are never written.

In the kinds of POSITIVE, "confidence" is p(positive), and "correct" is whether the label is positive. The cells of
POSITIVE_LABELS are those of `fine_cell_of`.

A label of ORDERED_LABELS has one row per level, and "predicted" is the level k. For k = 1 .. K - 1, it is a row of
POSITIVE_LABELS by the probability of "at least level k". For k = 0, "cell" is that of `residual_cell`, "confidence" the
residual, "correct" whether the true level is the median one, "nll" the score if it is off, and "brier" the RPS.

ROUNDED_LABELS has rows for labels of rounded answers, and of exact answers whose true class has probability 0.
"correct" is whether that probability is 0, "nll" the lower bound of the NLL of a rounded answer, and "brier" the NLL of
a zero.
"""
SUMS_OF = {
    (ANSWERS, LABELS): (TOTAL, BY_CLASS, BY_TAG),
    (POSITIVE_ANSWERS, POSITIVE_LABELS): (POSITIVE, POSITIVE_BY_CLASS, POSITIVE_BY_TAG),
    (ACTED_ANSWERS, ACTED_LABELS): (ACTED,),
    (ORDERED_ANSWERS, ORDERED_LABELS): (ORDERED,),
    (ROUNDED_ANSWERS, ROUNDED_LABELS): (ROUNDED,),
}
"""Kinds of sums that each pair of kinds of deltas contributes to."""
LEVEL_CELLS = 2 * CELLS
"""Cells of one level in the keys of ORDERED: at least those of `fine_cell_of`, and those of `residual_cell`."""
ANSWER = np.dtype([("minute", "<i4"), ("cell", "<u2"), ("tag", "u1"), ("predicted", "<u4"), ("sign", "i1")])
LABEL = np.dtype([*ANSWER.descr, ("correct", "u1"), ("confidence", "<f8"), ("nll", "<f8"), ("brier", "<f8")])
_SEAL, _PLACE = struct.Struct("<I"), struct.Struct("<qq")
DeltaRows = npt.NDArray[np.void]
"""Array of dtype ANSWER or LABEL."""


def answer_deltas(
    created_ms: npt.ArrayLike,
    confidence_N: Array,
    predicted_N: npt.ArrayLike,
    tag_N: npt.ArrayLike,
    sign_N: npt.ArrayLike = 1,
) -> DeltaRows:
    """Return the deltas of N answers. The sign 1 adds a row to the sums; -1 subtracts it."""
    rows_N = np.zeros(len(confidence_N), ANSWER)
    rows_N["minute"], rows_N["cell"] = minute_of(created_ms), cell_of(confidence_N)
    rows_N["tag"], rows_N["predicted"], rows_N["sign"] = tag_N, predicted_N, sign_N
    return rows_N


def label_deltas(
    created_ms_N: npt.ArrayLike,
    confidence_N: Array,
    predicted_N: npt.ArrayLike,
    tag_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    nll_N: npt.ArrayLike,
    brier_N: npt.ArrayLike,
    sign_N: npt.ArrayLike = 1,
    *,
    positive: bool = False,
) -> DeltaRows:
    """Return the deltas of N labels, with signs as in `answer_deltas`. `positive` uses p(positive) and finer cells."""
    rows_N = np.zeros(len(confidence_N), LABEL)
    rows_N["minute"] = minute_of(created_ms_N)
    rows_N["cell"] = fine_cell_of(confidence_N) if positive else cell_of(confidence_N)
    rows_N["tag"], rows_N["predicted"], rows_N["sign"] = tag_N, predicted_N, sign_N
    rows_N["correct"], rows_N["confidence"] = correct_N, confidence_N
    rows_N["nll"], rows_N["brier"] = nll_N, brier_N
    return rows_N


def level_deltas(
    created_ms_N: npt.ArrayLike, rows: OrderedRows, tag_N: npt.ArrayLike, sign_N: npt.ArrayLike = 1
) -> DeltaRows:
    """Return the deltas of N labels of ordered classes, K rows for each, with signs as in `answer_deltas`."""
    none_N = np.zeros(len(rows.rps_N), np.int64)
    of_rows = label_deltas(
        created_ms_N, none_N.astype(np.float64), none_N, tag_N, rows.is_median_N, rows.rps_if_off_N, rows.rps_N, sign_N
    )
    of_rows["cell"], of_rows["confidence"] = residual_cell(rows.residual_N, rows.is_median_N), rows.residual_N
    parts = [of_rows]
    for k, (p_N, reached_N) in enumerate(zip(rows.at_least_NK.T, rows.reached_NK.T, strict=True), 1):
        scores = nll_of(np.where(reached_N, p_N, 1 - p_N)), (p_N - reached_N) ** 2
        parts.append(
            label_deltas(created_ms_N, p_N, np.full_like(none_N, k), tag_N, reached_N, *scores, sign_N, positive=True)
        )
    return np.concatenate(parts)


def insert_of(version: int, kind: int, *parts: DeltaRows) -> Insert:
    """Return the statement that adds deltas of one kind to a version."""
    return Insert("moves", ("version", "kind", "data"), [(version, kind, seal_rows(version, kind, *parts))])


def seal_rows(version: int, kind: int, *parts: DeltaRows) -> bytes:
    """Return the blob of some deltas, with a checksum of them and of the place that they belong to."""
    body = b"".join(part.tobytes() for part in parts)
    return _seal(version, kind, body) + body


def _seal(version: int, kind: int, body: bytes) -> bytes:
    return _SEAL.pack(crc32(body, crc32(_PLACE.pack(version, kind))))


def _open_seal(version: int, kind: int, blob: bytes) -> DeltaRows:
    dtype = ANSWER if kind in (ANSWERS, POSITIVE_ANSWERS, ACTED_ANSWERS, ORDERED_ANSWERS) else LABEL
    seal, body = blob[: _SEAL.size], blob[_SEAL.size :]
    if len(seal) != _SEAL.size or len(body) % dtype.itemsize or seal != _seal(version, kind, body):
        raise StoreDamagedError("a checksum or a length in its table moves is wrong")
    return np.frombuffer(body, dtype)


@dataclass(frozen=True, eq=False)
class Deltas:
    """Answers and labels of one version that are not merged into periods yet."""

    answers: DeltaRows
    labels: DeltaRows

    @classmethod
    def from_blobs(cls, version: int, blobs: list[tuple[int, bytes]], kinds: tuple[int, int]) -> Deltas:
        """Read the two kinds, of answers and of labels, from rows (kind, data) of a version.

        Raises:
            StoreDamagedError: A checksum or a length is wrong.
        """
        parts = ([_open_seal(version, kind, bytes(data)) for kind, data in blobs if kind == k] for k in kinds)
        empty = np.zeros(0, ANSWER), np.zeros(0, LABEL)
        return cls(*(np.concatenate([none, *part]) for none, part in zip(empty, parts, strict=True)))

    def __len__(self) -> int:
        return len(self.answers) + len(self.labels)

    def between(self, hours: Hours) -> Deltas:
        """Return the deltas of the hours [first, end)."""
        return Deltas(*(rows[within(rows["minute"] // 60, hours)] for rows in (self.answers, self.labels)))


def pending(version: int, kind: int) -> Work[Deltas]:
    """Read the deltas of a version that are not merged into a kind of sums yet."""
    kinds = next(pair for pair, sums in SUMS_OF.items() if kind in sums)
    rows = yield Query("SELECT kind, data FROM moves WHERE version = $1 AND kind = ANY($2)", (version, list(kinds)))
    return Deltas.from_blobs(version, [(kind, data) for kind, data in rows], kinds)


def keys_of(rows_N: DeltaRows, kind: int) -> Integers:
    """Return the keys of rows in the sums of a kind: the cell, or 60 x the group + the cell of 60.

    For ORDERED, the key is LEVEL_CELLS x the level + the cell.
    """
    cell_N = rows_N["cell"].astype(np.int64)
    if kind in TOTALS:
        return cell_N
    if kind == ORDERED:
        return rows_N["predicted"].astype(np.int64) * LEVEL_CELLS + cell_N
    cell_N = equal_cell_of(cell_N)
    group_N = rows_N["predicted" if kind in (BY_CLASS, POSITIVE_BY_CLASS) else "tag"].astype(np.int64)
    return group_N * COARSE_CELLS + cell_N // (CELLS // COARSE_CELLS)


def columns_of(rows_N: DeltaRows) -> Array:
    """Return, as 7 x N, what each label's row adds to the columns of the calibration sums."""
    nll, brier, sign = rows_N["nll"], rows_N["brier"], rows_N["sign"].astype(np.float64)
    columns = (np.ones(len(rows_N)), rows_N["confidence"], rows_N["correct"], nll, nll * nll, brier, brier * brier)
    assert len(columns) == len(COLUMNS)
    return np.stack([sign * column for column in columns])
