"""Retention: old predictions and their labels go, in small transactions; sums stay for ever."""

from __future__ import annotations

from service.store.steps import Lock, Rows, Work

CHUNK = 2000
"""Predictions that one transaction removes: 12 ms, so that nobody waits long."""

# A label that a state has not taken yet stays in the log, and its prediction with it.
_FIND = (
    "SELECT p.id, p.model FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE {which} AND p.created_ms < $1 AND (l.sequence IS NULL OR l.sequence <="
    " (SELECT coalesce(min(s.sequence), l.sequence) FROM states s WHERE s.version = l.version))"
)
OURS = _FIND.format(which="p.digest IS NULL AND p.id < $2 AND p.id > $3") + " ORDER BY p.id LIMIT $4"
OWN = _FIND.format(which="p.digest IS NOT NULL") + " ORDER BY p.created_ms LIMIT $2"


def prune_ours(before_ms: int, after: str) -> Work[tuple[int, int, str]]:
    """Predictions and labels removed, and the last id (empty: done). Our ids begin with their time."""
    rows = yield Rows(OURS, (before_ms, f"{before_ms:012x}", after, CHUNK))
    gone = yield from _remove(sorted((model, id_) for id_, model in rows))
    return len(rows), gone, rows[-1][0] if len(rows) == CHUNK else ""


def prune_own(before_ms: int) -> Work[tuple[int, int, str]]:
    """As `prune_ours`, of ids that callers gave; the last one only says whether there is more."""
    rows = yield Rows(OWN, (before_ms, CHUNK))
    gone = yield from _remove(sorted((model, id_) for id_, model in rows))
    return len(rows), gone, rows[-1][0] if len(rows) == CHUNK else ""


def _remove(found: list[tuple[int, str]]) -> Work[int]:
    removed = 0
    for model in sorted({model for model, _ in found}):
        ids = [id_ for key, id_ in found if key == model]
        yield Lock("SELECT key FROM versions WHERE model = $1 ORDER BY key FOR NO KEY UPDATE", (model,))
        # Nobody labels these meanwhile: labels wait for the version's row. One that came just before is kept.
        gone = yield Rows(
            "DELETE FROM labels WHERE prediction = ANY($1) AND version IN (SELECT key FROM versions WHERE model = $2)"
            " AND sequence <= (SELECT coalesce(min(s.sequence), labels.sequence) FROM states s WHERE s.version ="
            " labels.version) RETURNING prediction",
            (ids, model),
        )
        removed += len(gone)
        yield Rows(
            "DELETE FROM predictions WHERE id = ANY($1) AND model = $2 AND NOT EXISTS (SELECT 1 FROM labels l"
            " WHERE l.prediction = predictions.id AND l.version = predictions.version)",
            (ids, model),
        )
    return removed


def prune_held(before_ms: int) -> Work[int]:
    """Labels given before this time, whose predictions never came."""
    rows = yield Rows("DELETE FROM held WHERE given_ms < $1 RETURNING id", (before_ms,))
    return len(rows)
