"""The label queue: draws of answers to label, leases, and what became of each drawn answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.store.queue_rows import ClosedAnswer, Drawable, LabelDraw, OverlapError, QueueCounts, QueuedAnswer
from service.store.rows import storable
from service.store.work.statements import ExecuteMany, Insert, Query, Work, lock_of

_LABELLED = "EXISTS (SELECT 1 FROM labels l WHERE l.prediction = {id} AND l.version = {version})"
_EARLY = "EXISTS (SELECT 1 FROM early e WHERE e.prediction = {id} AND e.version = {version})"
_OF_ANSWER = {"id": "p.id", "version": "p.version"}
_OF_ENTRY = {"id": "q.prediction", "version": "q.version"}
_OF_CLOSED = {"id": "label_queue.prediction", "version": "label_queue.version"}
COLUMNS = ("version", "prediction", "draw", "place", "propensity")
DRAWABLE = (
    "SELECT p.id, p.confidence, p.tag FROM predictions p WHERE p.version = $1 AND p.created_ms >= $2"
    f" AND p.created_ms < $3 AND p.propensity IS NULL AND NOT {_LABELLED.format(**_OF_ANSWER)}"
    f" AND NOT {_EARLY.format(**_OF_ANSWER)} ORDER BY p.id LIMIT $4"
)
_ENTRY = (
    "SELECT q.prediction, q.propensity, p.created_ms, p.predicted, p.confidence, p.tag, p.logits, p.digest,"
    " q.lease_until_ms FROM label_queue q JOIN predictions p ON p.id = q.prediction AND p.version = q.version"
    f" WHERE q.version = $1 AND q.skipped = 0 AND NOT {_LABELLED.format(**_OF_ENTRY)}"
    f" AND NOT {_EARLY.format(**_OF_ENTRY)}"
)
LEASED = f"{_ENTRY} AND q.leased_to = $2 AND q.lease_until_ms > $3 ORDER BY q.draw, q.place LIMIT $4"
FREE = (
    f"{_ENTRY} AND (q.lease_until_ms IS NULL OR q.lease_until_ms <= $2 OR q.leased_to = $3)"
    " ORDER BY CASE WHEN q.leased_to = $3 AND q.lease_until_ms > $2 THEN 0 ELSE 1 END, q.draw, q.place LIMIT $4"
)
# A label that nobody sent (assumed at the end of a window) closes nothing. `e` has labels whose window is still open.
_FOUND = (
    "SELECT q.prediction, q.who, q.at_ms, q.skipped, l.corrected_ms, l.import_id, e.last_ms, e.first_ms,"
    " CASE WHEN l.assumed IS NULL THEN coalesce(l.arrived_ms, e.first_ms) ELSE l.corrected_ms END AS label_ms,"
    " (SELECT one.import_id FROM early one WHERE one.key = e.last_key) AS early_import FROM label_queue q LEFT JOIN"
    " labels l ON l.prediction = q.prediction AND l.version = q.version LEFT JOIN (SELECT prediction,"
    " min(given_ms) AS first_ms, max(given_ms) AS last_ms, max(key) AS last_key FROM early WHERE version = $1"
    " GROUP BY prediction) e ON e.prediction = q.prediction WHERE q.version = $1"
)
CLOSED = (
    "SELECT prediction, who, at_ms, skipped, label_ms, coalesce(corrected_ms, CASE WHEN last_ms > first_ms THEN last_ms"
    f" END), coalesce(import_id, early_import) FROM ({_FOUND}) AS found WHERE label_ms IS NOT NULL OR skipped = 1"
    " ORDER BY CASE WHEN at_ms IS NOT NULL AND (skipped = 0 OR label_ms IS NULL) THEN at_ms ELSE label_ms END DESC,"
    " prediction LIMIT $2"
)
COUNTS = (
    "SELECT what, count(*), sum(1.0 / propensity) FROM (SELECT q.propensity, CASE WHEN l.label = l.predicted THEN 1"
    f" WHEN l.label IS NOT NULL THEN 2 WHEN {_EARLY.format(**_OF_ENTRY)} THEN 3 WHEN q.skipped = 1 THEN 4 ELSE 5 END"
    " AS what FROM label_queue q LEFT JOIN labels l ON l.prediction = q.prediction AND l.version = q.version"
    " WHERE q.version = $1) AS entries GROUP BY what"
)


def drawable(version: int, since_ms: int, until_ms: int, limit: int) -> Work[list[Drawable]]:
    """Read up to `limit` answers without a label and without a propensity, made in [since, until)."""
    rows = yield Query(DRAWABLE, (version, since_ms, until_ms, limit))
    return [Drawable(*row) for row in rows]


def last_end(version: int) -> Work[int]:
    """Read the end of the last draw's window; 0 without a draw."""
    rows = yield Query("SELECT coalesce(max(until_ms), 0) FROM label_draws WHERE version = $1", (version,))
    return int(rows[0][0])


def put_draw(version: int, draw: LabelDraw, sample: list[tuple[str, float]]) -> Work[int]:
    """Store a draw with the ids and propensities of the drawn answers, in the order in which they will be labelled.

    The propensities go to the answers, and with them to their labels. Return the draw's number.

    Raises:
        OverlapError: Another draw reaches beyond this one's beginning.
    """
    yield lock_of(version)
    end = yield from last_end(version)
    if end > draw.since_ms:
        raise OverlapError(end)
    rows = yield Query(
        "INSERT INTO label_draws (version, at_ms, since_ms, until_ms, goal, threshold, tag, floor, budget, answers,"
        " drawn, who) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING key",
        (
            version,
            draw.at_ms,
            draw.since_ms,
            draw.until_ms,
            draw.goal,
            draw.threshold,
            draw.tag,
            draw.floor,
            draw.budget,
            draw.answers,
            len(sample),
            draw.who,
        ),
    )
    key = int(rows[0][0])
    # A label may have come since the answers were read. It belongs to a drawn answer as well.
    for table, column in (("predictions", "id"), ("labels", "prediction")):
        yield ExecuteMany(
            f"UPDATE {table} SET propensity = $3 WHERE {column} = $1 AND version = $2 AND propensity IS NULL",
            [(id_, version, propensity) for id_, propensity in sample],
        )
    yield Insert(
        "label_queue", COLUMNS, [(version, id_, key, place, chance) for place, (id_, chance) in enumerate(sample)]
    )
    return key


def leases(version: int, who: str, now_ms: int, limit: int) -> Work[list[QueuedAnswer]]:
    """Read the answers that are leased to a person now."""
    if not storable(who):
        return []
    rows = yield Query(LEASED, (version, who, now_ms, limit))
    return [_answer_of(row) for row in rows]


def lease(version: int, who: str, now_ms: int, until_ms: int, count: int) -> Work[list[QueuedAnswer]]:
    """Lease up to `count` answers to a person until a time: first those that the person has, then free ones.

    A longer lease of the same person stays as it is.
    """
    yield lock_of(version)
    rows = yield Query(FREE, (version, now_ms, who, count))
    yield ExecuteMany(
        "UPDATE label_queue SET leased_to = $3, lease_until_ms = $4 WHERE version = $1 AND prediction = $2",
        [(version, row[0], who, max(row[-1] or 0, until_ms)) for row in rows],
    )
    return [_answer_of((*row[:-1], max(row[-1] or 0, until_ms))) for row in rows]


def ids_of(version: int, ids: list[str]) -> Work[set[str]]:
    """Return which of the ids were drawn."""
    known = [id_ for id_ in ids if storable(id_)]
    drawn = "SELECT prediction FROM label_queue WHERE version = $1 AND prediction = ANY($2)"
    rows = yield Query(drawn, (version, known))
    return {id_ for (id_,) in rows}


def close(version: int, ids: list[str], who: str, at_ms: int, *, is_skip: bool) -> Work[None]:
    """Record who has labelled or skipped drawn answers, and when, and end their leases.

    Skipping an answer that has a label has no effect. Nor has a second label: a label that is not the stored one is
    refused before, so the first person stays.
    """
    unlabelled = f" AND NOT {_LABELLED.format(**_OF_CLOSED)} AND NOT {_EARLY.format(**_OF_CLOSED)}"
    open_ = unlabelled if is_skip else " AND (at_ms IS NULL OR skipped = 1)"
    yield ExecuteMany(
        "UPDATE label_queue SET skipped = $3, who = $4, at_ms = $5, leased_to = NULL, lease_until_ms = NULL"
        f" WHERE version = $1 AND prediction = $2{open_}",
        [(version, id_, int(is_skip), who, at_ms) for id_ in ids],
    )


def reopen(version: int, ids: list[str]) -> Query:
    """Return the statement that forgets who labelled answers whose labels are voided. Skipped answers stay skipped."""
    return Query(
        "UPDATE label_queue SET who = NULL, at_ms = NULL WHERE version = $1 AND prediction = ANY($2) AND skipped = 0",
        (version, ids),
    )


def closures(version: int, limit: int) -> Work[list[ClosedAnswer]]:
    """Read the last `limit` drawn answers that were labelled or skipped, the newest first.

    A label that came from elsewhere closes an answer too, also one that a person skipped.
    """
    rows = yield Query(CLOSED, (version, limit))
    return [_closed_answer(*row) for row in rows]


def _closed_answer(
    id_: str,
    who: str | None,
    at_ms: int | None,
    is_skipped: int,
    label_ms: int | None,
    corrected_ms: int | None,
    import_id: str | None,
) -> ClosedAnswer:
    """Return what became of an answer: the queue's row has who labelled or skipped it there, and when."""
    if label_ms is None:
        return ClosedAnswer(id_, who, int(at_ms or 0), is_skip=True, skipped_by=who, skipped_ms=at_ms)
    in_queue = at_ms is not None and not is_skipped
    return ClosedAnswer(
        id_,
        who if in_queue else None,
        int(at_ms if in_queue and at_ms is not None else label_ms),
        is_skip=False,
        skipped_by=who if is_skipped else None,
        skipped_ms=at_ms if is_skipped else None,
        corrected_ms=corrected_ms if corrected_ms is not None and corrected_ms > (at_ms or label_ms) else None,
        import_id=import_id,
    )


def counts(version: int) -> Work[QueueCounts | None]:
    """Count the drawn answers by their state; None without a draw."""
    rows = yield Query(COUNTS, (version,))
    by_state = {int(what): (int(number), float(weight)) for what, number, weight in rows}
    if not by_state:
        return None
    none = 0, 0.0
    right, wrong, maturing, skipped, waiting = (by_state.get(what, none) for what in range(1, 6))
    return QueueCounts(right[0], wrong[0], skipped[0], waiting[0], maturing[0], right[1], wrong[1], skipped[1])


def _answer_of(row: Sequence[Any]) -> QueuedAnswer:
    id_, propensity, created_ms, predicted, confidence, tag, logits, digest, until_ms = row
    return QueuedAnswer(
        id=id_,
        propensity=propensity,
        created_ms=created_ms,
        predicted=predicted,
        confidence=confidence,
        tag=tag,
        logits=bytes(logits),
        digest=None if digest is None else bytes(digest),
        lease_until_ms=until_ms,
    )
