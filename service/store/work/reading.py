"""Reads of the label log and of answers, each in one snapshot of the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.rows import (
    NO_SET,
    UNKNOWN,
    HeldLabels,
    LabelBlock,
    LabelledLogits,
    LabelledSets,
    StoredPrediction,
    Version,
    decoding,
)
from service.store.work.scoring import as_read, logits_of
from service.store.work.statements import Query, Work
from service.store.work.sums import deltas
from trueodds.sums.hours import HOUR_MS, Hours
from trueodds.sums.ordered import at_least

LOG = (
    "sequence, prediction, created_ms, coalesce(counted_ms, arrived_ms), label, predicted, first_correct,"
    f" coalesce(first_label, {UNKNOWN}), confidence, nll, brier, propensity, tag"
)
_NEVER = 2**62


def labels(version: int, after: int, limit: int, *, corrected_only: bool = False) -> Work[LabelBlock]:
    """Read the first `limit` labels after a sequence number. `corrected_only` reads only corrected labels."""
    where = " AND corrected_ms IS NOT NULL" if corrected_only else ""
    rows = yield Query(
        f"SELECT {LOG} FROM labels WHERE version = $1{where} AND sequence > $2 ORDER BY sequence LIMIT $3",
        (version, after, limit),
    )
    return block(rows)


def with_levels(block: LabelBlock, key: int, version: Version) -> Work[LabelBlock]:
    """Return labels of ordered classes with the probabilities of their answers, as the calibrator returns them.

    Deleting an answer deletes its label, so each label has one.
    """
    logits = yield from _logits(block.ids, key)
    with decoding("its table labels or predictions"):
        z_LC = _as_read([logits[id_] for id_ in block.ids], version)
        return replace(block, at_least_LK=at_least(version.calibrator(z_LC, groups=block.tags)))


def with_sets(block: LabelBlock, key: int, version: Version) -> Work[LabelBlock]:
    """Return labels with the size of each set, and whether it holds the first label.

    The sets are those of the version's rules. They follow from stored logits and ids, so they are the served ones.
    Those of another server are stored. A label whose first value is unknown has no sets.
    """
    if version.has_given_sets:
        return (yield from _with_given_sets(block, key, version))
    logits = yield from _logits(block.ids, key)
    with decoding("its table labels or predictions"):
        z_LC = _as_read([logits[id_] for id_ in block.ids], version)
        p_LC = version.calibrator(z_LC, groups=block.tags)
        inside = [rule.sets(p_LC, block.ids) for rule in version.set_rules]
        known_L, rows_L = block.first_label_L != UNKNOWN, np.arange(len(block))
        sizes = [np.where(known_L, sets_LC.sum(axis=1), NO_SET) for sets_LC in inside]
        covered = [sets_LC[rows_L, block.first_label_L] & known_L for sets_LC in inside]
        return replace(block, sets=LabelledSets(np.stack(sizes, axis=1), np.stack(covered, axis=1)))


def _with_given_sets(block: LabelBlock, key: int, version: Version) -> Work[LabelBlock]:
    """Return labels with the stored sets of their answers. An answer whose set is gone has none."""
    rows = yield Query(
        "SELECT prediction, members FROM observed_sets WHERE version = $1 AND prediction = ANY($2)", (key, block.ids)
    )
    with decoding("its table observed_sets"):
        packed, classes = {id_: bytes(members) for id_, members in rows}, len(version.classes)
        if any(len(members) != (classes + 7) // 8 for members in packed.values()):
            raise ValueError("a set of another number of classes")
        none = bytes((classes + 7) // 8)
        blob = b"".join(packed.get(id_, none) for id_ in block.ids)
        bits_LB = np.frombuffer(blob, np.uint8).reshape(len(block), -1)
        inside_LC = np.unpackbits(bits_LB, axis=1, count=classes).astype(bool)
        known_L = (block.first_label_L != UNKNOWN) & np.array([id_ in packed for id_ in block.ids], bool)
        size_L = np.where(known_L, inside_LC.sum(axis=1), NO_SET)
        covered_L = inside_LC[np.arange(len(block)), np.maximum(block.first_label_L, 0)] & known_L
        return replace(block, sets=LabelledSets(size_L[:, None], covered_L[:, None]))


def count_corrected_labels(
    version: int, predicted_class: int | None, tag: str | None, hours: Hours, after: int
) -> Work[int]:
    """Count the corrected labels after the sequence number `after`, of predictions in the hours [first, end).

    `predicted_class` (an index) and `tag` restrict the count.
    """
    first, end = (None if hour is None else hour * HOUR_MS for hour in hours)
    where, more = "", list[int | str]()
    if predicted_class is not None:
        where, more = " AND predicted = $5", [predicted_class]
    if tag == deltas.OTHER_TAGS:
        where += " AND tag IS NOT NULL AND tag NOT IN (SELECT name FROM tags WHERE version = $1)"
    elif tag is not None:
        where, more = f"{where} AND coalesce(tag, '') = ${5 + len(more)}", [*more, tag]
    rows = yield Query(
        "SELECT count(*) FROM labels WHERE version = $1 AND corrected_ms IS NOT NULL AND sequence > $2"
        f" AND created_ms >= $3 AND created_ms < $4{where}",
        (version, after, -_NEVER if first is None else first, _NEVER if end is None else end, *more),
    )
    return int(rows[0][0])


def last_labels(version: int, last: int) -> Work[LabelBlock]:
    """Read the last `last` labels."""
    rows = yield Query(f"SELECT {LOG} FROM labels WHERE version = $1 ORDER BY sequence DESC LIMIT $2", (version, last))
    return block(rows[::-1])


def block(rows: Sequence[Sequence[Any]]) -> LabelBlock:
    """Convert rows of LOG to arrays.

    Raises:
        StoreDamagedError: The rows have values that no label has.
    """
    with decoding("its table labels"):
        read = _block(rows)
        if not _is_sound(read):
            raise ValueError("impossible values")
    return read


def _is_sound(block: LabelBlock) -> bool:
    """Return whether all numbers are in the range in which they are written."""
    confidence_L, propensity_L = block.confidence_L, block.propensity_L
    known_L, slack = ~np.isnan(block.nll_L), 1e-9
    nll_L, brier_L = block.nll_L[known_L], block.brier_L[known_L]
    return bool(
        (np.diff(block.sequence_L) > 0).all()
        and ((block.label_L >= 0) & (block.predicted_L >= 0) & (block.first_label_L >= UNKNOWN)).all()
        and (block.arrived_ms_L >= block.created_ms_L).all()
        and ((confidence_L >= 0) & (confidence_L <= 1 + slack)).all()
        and (np.isnan(propensity_L) | ((propensity_L > 0) & (propensity_L <= 1))).all()
        and ((nll_L >= -slack) & (brier_L >= -slack) & (brier_L <= 2 + slack)).all()
    )


def _block(rows: Sequence[Sequence[Any]]) -> LabelBlock:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 13
    sequence, ids, created, arrived, label, predicted, *firsts, confidence, nll, brier, propensity, tags = columns
    first_correct, first_label = firsts
    label_L, predicted_L = np.array(label, np.int64), np.array(predicted, np.int64)
    return LabelBlock(
        sequence_L=np.array(sequence, np.int64),
        ids=list(ids),
        created_ms_L=np.array(created, np.int64),
        arrived_ms_L=np.array(arrived, np.int64),
        label_L=label_L,
        predicted_L=predicted_L,
        confidence_L=np.array(confidence, np.float64),
        correct_L=label_L == predicted_L,
        first_correct_L=np.array(first_correct, bool),
        nll_L=np.array(nll, np.float64),
        brier_L=np.array(brier, np.float64),
        propensity_L=np.array(propensity, np.float64),
        tags=list(tags),
        first_label_L=np.array(first_label, np.int64),
        at_least_LK=np.zeros((len(label_L), 0)),
    )


NO_LABELS = block([])


def before_last(version: int, last: int) -> Work[int]:
    """Return the sequence number that precedes the `last` labels; 0 if there are no more than those."""
    rows = yield Query(
        "SELECT sequence FROM labels WHERE version = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2", (version, last)
    )
    return rows[0][0] if rows else 0


def last_answer_ids(versions: list[int], since_ms: int, last: int) -> Work[list[str]]:
    """Read the ids of the `last` answers by the time of their first label in any of these versions."""
    rows = yield Query(
        "SELECT prediction FROM labels WHERE version = ANY($1) AND created_ms >= $2 GROUP BY prediction"
        " ORDER BY min(coalesce(counted_ms, arrived_ms)) DESC, max(sequence) DESC, prediction DESC LIMIT $3",
        (versions, since_ms, last),
    )
    return [id_ for (id_,) in rows]


def read_labelled_logits(
    version: int,
    of: Version,
    since_ms: int,
    after: int,
    limit: int,
    shadow: tuple[int, Version] | None = None,
    only: list[str] | None = None,
) -> Work[tuple[int, LabelledLogits]]:
    """Read one block of labelled logits. Return the last sequence number of the block (0 at the end), and the logits.

    With `shadow`, a version and its key, read only answers that it has scored too. With `only`, read these alone.
    Rounded answers are as `as_read` reads them.
    """
    of_ids = "" if only is None else " AND prediction = ANY($5)"
    # Two statements: for a join, PostgreSQL may read all predictions for every block.
    rows = yield Query(
        "SELECT sequence, prediction, created_ms, label, propensity, tag, coalesce(counted_ms, arrived_ms) FROM labels"
        f" WHERE version = $1 AND sequence > $2 AND created_ms >= $3{of_ids} ORDER BY sequence LIMIT $4",
        (version, after, since_ms, limit, *([] if only is None else [only])),
    )
    last = rows[-1][0] if rows else 0
    beside = None
    if shadow is not None:
        beside = yield from _logits([row[1] for row in rows], shadow[0])
        rows = [row for row in rows if row[1] in beside]
    _, ids, created, label, propensity, tags, arrived = zip(*rows, strict=True) if rows else [()] * 7
    logits = yield from _logits(ids, version)

    with decoding("its table labels or predictions"):
        return last, LabelledLogits(
            _as_read([logits[id_] for id_ in ids], of),
            np.array(label, np.int64),
            list(ids),
            np.array(created, np.int64),
            np.array(propensity, np.float64),
            list(tags),
            np.array(arrived, np.int64),
            None if beside is None or shadow is None else _as_read([beside[id_] for id_ in ids], shadow[1]),
        )


def _as_read(rows: Sequence[tuple[bytes, float]], version: Version) -> npt.NDArray[np.float32]:
    logits_NC = logits_of([blob for blob, _ in rows], len(version.classes))
    return as_read(logits_NC, np.array([confidence for _, confidence in rows], np.float64), version)


def _logits(ids: Sequence[str], version: int) -> Work[dict[str, tuple[bytes, float]]]:
    rows = yield Query(
        "SELECT id, logits, confidence FROM predictions WHERE id = ANY($1) AND version = $2", (list(ids), version)
    )
    return {id_: (logits, confidence) for id_, logits, confidence in rows}


def answers(model: str, ids: list[str]) -> Work[dict[str, StoredPrediction]]:
    """Read stored answers of a model by id. Unknown ids are left out."""
    rows = yield Query(f"{_STORED.format(logits='p.logits')} WHERE p.id = ANY($1) AND m.name = $2", (ids, model))
    return {row[0]: stored_prediction(row) for row in rows}


def count_held() -> Work[dict[str, HeldLabels]]:
    """Count the labels that wait for their predictions, by model. Models without any are left out."""
    rows = yield Query(
        "SELECT m.name, count(*), min(h.given_ms) FROM held h JOIN models m ON m.key = h.model GROUP BY m.name"
    )
    return {model: HeldLabels(int(count), int(oldest_ms)) for model, count, oldest_ms in rows}


def answers_of(id_: str) -> Work[list[StoredPrediction]]:
    """Read the answers of all models with an id."""
    rows = yield Query(f"{_STORED.format(logits='p.logits')} WHERE p.id = $1 ORDER BY m.name", (id_,))
    return [stored_prediction(row) for row in rows]


def exported_ours(
    version: int, times: tuple[int, int], after: str, limit: int, *, logits: bool
) -> Work[list[StoredPrediction]]:
    """Read the first `limit` predictions with ids of the service above `after`, made in the milliseconds [first, end).

    These ids begin with their time. A shadow's answer has the id of the answer that it shadows, which is slightly
    older.
    """
    first, end = times
    least = f"{max(first - HOUR_MS, 0):012x}"
    rows = yield Query(
        f"{_STORED.format(logits='p.logits' if logits else 'NULL')} WHERE p.version = $1 AND p.digest IS NULL"
        " AND p.id > $2 AND p.id < $3 AND p.created_ms >= $4 AND p.created_ms < $5 ORDER BY p.id LIMIT $6",
        (version, max(after, least), f"{end:012x}", first, end, limit),
    )
    return [stored_prediction(row) for row in rows]


def exported_own(
    version: int, times: tuple[int, int], after: tuple[int, str], limit: int, *, logits: bool
) -> Work[list[StoredPrediction]]:
    """Read predictions with callers' own ids by time and id; see `exported_ours`. `after` is the last row before."""
    first, end = times
    rows = yield Query(
        f"{_STORED.format(logits='p.logits' if logits else 'NULL')} WHERE p.version = $1 AND p.digest IS NOT NULL"
        " AND p.created_ms >= $2 AND p.created_ms < $3 AND (p.created_ms > $2 OR p.id > $4)"
        " ORDER BY p.created_ms, p.id LIMIT $5",
        (version, max(first, after[0]), end, after[1] if after[0] >= first else "", limit),
    )
    return [stored_prediction(row) for row in rows]


_STORED = (
    "SELECT p.id, m.name, v.version, p.created_ms, p.predicted, p.raw_confidence, p.confidence, {logits}, p.tag,"
    " p.propensity, l.label, coalesce(l.corrected_ms, CASE WHEN l.assumed IS NULL THEN l.arrived_ms END),"
    " l.corrected_ms, l.import_id, w.due_ms, p.confidence_source, j.label, o.members FROM predictions p"
    " JOIN versions v ON v.key = p.version JOIN models m ON m.key = v.model"
    " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " LEFT JOIN maturing w ON w.prediction = p.id AND w.version = p.version"
    " LEFT JOIN judge_labels j ON j.prediction = p.id AND j.version = p.version"
    " LEFT JOIN observed_sets o ON o.prediction = p.id AND o.version = p.version"
)


def stored_prediction(row: Sequence[Any]) -> StoredPrediction:
    """Convert a row with the columns of `_STORED`."""
    *answer, logits, tag, propensity, label, labelled_ms, corrected_ms, import_id, due_ms, source, judge, packed = row
    corrected = None if label is None else corrected_ms is not None
    of_label = label, labelled_ms, corrected, import_id, due_ms, source, judge
    members = None if packed is None else bytes(packed)
    return StoredPrediction(*(*answer, bytes(logits or b""), tag, propensity, *of_label, members))
