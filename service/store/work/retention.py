"""Retention: removes old predictions and their labels in small transactions. Sums are kept for ever."""

from __future__ import annotations

import json
from typing import NamedTuple

from service.store.rows import DeletionCounts, HeldLabel, decoding
from service.store.work import decisions
from service.store.work.statements import Lock, Query, Work

# A label that a state has not used yet stays in the log, with its prediction. A prediction whose window is open also
# stays: it counts once the window closes.
_OLD = (
    "SELECT p.id, p.model, p.version, p.created_ms FROM predictions p"
    " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE {which} AND p.created_ms < $1 AND (l.sequence IS NULL OR l.sequence <="
    " (SELECT coalesce(min(s.sequence), l.sequence) FROM states s WHERE s.version = l.version))"
    " AND NOT EXISTS (SELECT 1 FROM maturing w WHERE w.version = p.version AND w.prediction = p.id)"
)
OURS = _OLD.format(which="p.digest IS NULL AND p.id < $2 AND p.id > $3") + " ORDER BY p.id LIMIT $4"
OWN = _OLD.format(which="p.digest IS NOT NULL") + " ORDER BY p.created_ms LIMIT $2"


def prune(before_ms: int, after: str, limit: int, *, own: bool) -> Work[tuple[int, int, str]]:
    """Remove up to `limit` predictions, either with callers' own ids or with ids of the service.

    Ids of the service begin with their time and are removed in order, from `after` on. Return the number of predictions
    and of labels, and the last id; it is empty when nothing is left.
    """
    rows = yield from old(before_ms, after, limit, own=own)
    labels = 0
    for model in sorted({row.model for row in rows}):
        yield lock_of_model(model)
        labels += yield from remove_answers(model, [row.id for row in rows if row.model == model])
    return len(rows), labels, rows[-1].id if len(rows) == limit else ""


class OldAnswer(NamedTuple):
    """An answer that retention may remove."""

    id: str
    model: int
    version: int
    created_ms: int


def old(before_ms: int, after: str, limit: int, *, own: bool) -> Work[list[OldAnswer]]:
    """Find up to `limit` predictions that retention may remove; see `prune`."""
    rows = yield Query(OWN, (before_ms, limit)) if own else Query(OURS, (before_ms, f"{before_ms:012x}", after, limit))
    return [OldAnswer(*row) for row in rows]


def lock_of_model(model: int) -> Lock:
    """Return the lock that keeps others from labelling a model's answers until the transaction ends."""
    return Lock("SELECT key FROM versions WHERE model = $1 ORDER BY key FOR NO KEY UPDATE", (model,))


def remove_answers(model: int, ids: list[str]) -> Work[int]:
    """Remove predictions of a model with their labels, under `lock_of_model`. Return the number of labels.

    A label that came after the predictions were found, just before the lock, is kept with its prediction.
    """
    labels = yield Query(
        "DELETE FROM labels WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model = $2)"
        " AND sequence <= (SELECT coalesce(min(s.sequence), labels.sequence) FROM states s WHERE s.version ="
        " labels.version) RETURNING prediction",
        (ids, model),
    )
    yield Query(
        "DELETE FROM replaced WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model = $2)",
        ([id_ for (id_,) in labels], model),
    )
    yield Query(
        "DELETE FROM doubtful WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model = $2)",
        (ids, model),
    )
    yield Query(
        "DELETE FROM label_queue WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model = $2)"
        " AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.prediction = label_queue.prediction AND l.version ="
        " label_queue.version)",
        (ids, model),
    )
    yield Query(
        "DELETE FROM judge_labels WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model = $2)"
        " AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.prediction = judge_labels.prediction AND l.version ="
        " judge_labels.version)",
        (ids, model),
    )
    yield Query(
        "DELETE FROM observed_sets WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model ="
        " $2) AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.prediction = observed_sets.prediction AND l.version ="
        " observed_sets.version)",
        (ids, model),
    )
    yield Query(
        "DELETE FROM predictions WHERE id = ANY($1) AND model = $2 AND NOT EXISTS (SELECT 1 FROM labels l"
        " WHERE l.prediction = predictions.id AND l.version = predictions.version)",
        (ids, model),
    )
    return len(labels)


def remove(id_: str, models: list[str]) -> Work[DeletionCounts]:
    """Delete the predictions of an id, of the given models, with their labels, including held ones."""
    of = "SELECT key FROM models WHERE name = ANY($1)"
    yield Lock(f"{of} ORDER BY key FOR UPDATE", (models,))
    yield Lock(f"SELECT key FROM versions WHERE model IN ({of}) ORDER BY key FOR NO KEY UPDATE", (models,))
    versions = f"SELECT key FROM versions WHERE model IN ({of})"
    yield Query(f"DELETE FROM replaced WHERE version IN ({versions}) AND prediction = $2", (models, id_))
    yield Query(f"DELETE FROM doubtful WHERE version IN ({versions}) AND prediction = $2", (models, id_))
    yield Query(f"DELETE FROM early WHERE version IN ({versions}) AND prediction = $2", (models, id_))
    yield Query(f"DELETE FROM label_queue WHERE version IN ({versions}) AND prediction = $2", (models, id_))
    yield Query(f"DELETE FROM judge_labels WHERE version IN ({versions}) AND prediction = $2", (models, id_))
    yield Query(f"DELETE FROM observed_sets WHERE version IN ({versions}) AND prediction = $2", (models, id_))
    waiting = yield Query(
        f"DELETE FROM maturing WHERE version IN ({versions}) AND prediction = $2 RETURNING version", (models, id_)
    )
    for (version,) in waiting:
        yield Query("UPDATE versions SET matured = matured + 1 WHERE key = $1", (version,))
    labels = yield Query(
        f"DELETE FROM labels WHERE version IN ({versions}) AND prediction = $2 RETURNING prediction", (models, id_)
    )
    predictions = yield Query(f"DELETE FROM predictions WHERE model IN ({of}) AND id = $2 RETURNING id", (models, id_))
    held = yield Query(f"DELETE FROM held WHERE model IN ({of}) AND id = $2 RETURNING id", (models, id_))
    yield from decisions.remove(id_, models)
    return DeletionCounts(len(predictions), len(labels), len(held))


def held_before(before_ms: int, limit: int) -> Work[list[HeldLabel]]:
    """Read up to `limit` labels that arrived before this time and whose predictions never arrived, oldest first."""
    rows = yield Query(
        "SELECT m.name, h.id, h.label, h.given_ms, h.import_id FROM held h JOIN models m ON m.key = h.model"
        " WHERE h.given_ms < $1 ORDER BY h.given_ms, m.name, h.id LIMIT $2",
        (before_ms, limit),
    )
    with decoding("its table held"):
        return [HeldLabel(model, id_, json.loads(label), *given) for model, id_, label, *given in rows]


def remove_held(labels: list[HeldLabel]) -> Work[int]:
    """Remove held labels, unless another label has replaced them meanwhile. Return their number."""
    removed = 0
    for label in labels:
        rows = yield Query(
            "DELETE FROM held WHERE id = $1 AND given_ms = $2 AND model = (SELECT key FROM models WHERE name = $3)"
            " RETURNING id",
            (label.id, label.given_ms, label.model),
        )
        removed += len(rows)
    return removed


def prune_held(before_ms: int) -> Work[int]:
    """Remove labels that arrived before this time and whose predictions never arrived."""
    rows = yield Query("DELETE FROM held WHERE given_ms < $1 RETURNING id", (before_ms,))
    return len(rows)
