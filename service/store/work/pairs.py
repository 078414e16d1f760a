"""Halves of pairs: each waits in the store for its other half, whichever worker receives it."""

from __future__ import annotations

from service.store.work.statements import Query, Work

HALVES = ("request", "response")
"""Names of the halves, which are also columns."""


def put(model: str, id_: str, half: str, data: bytes, now_ms: int) -> Work[bytes | None]:
    """Store one half. Return the other one if it is there. If both arrive at once, the second waits for the first."""
    own, other = (half, *(name for name in HALVES if name != half))
    rows = yield Query(
        f"INSERT INTO pairs (model, id, arrived_ms, {own}) VALUES ($1, $2, $3, $4)"
        f" ON CONFLICT (model, id) DO UPDATE SET {own} = excluded.{own} RETURNING {other}",
        (model, id_, now_ms, data),
    )
    return None if rows[0][0] is None else bytes(rows[0][0])


def remove(model: str, id_: str) -> Work[None]:
    """Remove a pair that is no longer needed."""
    yield Query("DELETE FROM pairs WHERE model = $1 AND id = $2", (model, id_))


def drop(before_ms: int) -> Work[tuple[int, int]]:
    """Remove halves that arrived before a time. Return the number of requests and of responses."""
    # Return the column itself, not `request IS NULL`: SQLite 3.40 returns 0 for that in every row.
    rows = yield Query("DELETE FROM pairs WHERE arrived_ms < $1 RETURNING request", (before_ms,))
    requests = sum(request is not None for (request,) in rows)
    return requests, len(rows) - requests
