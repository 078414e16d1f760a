"""Halves of what comes in two parts: each waits, durably, for the other, whichever worker gets it."""

from __future__ import annotations

from service.store.work.statements import Query, Work

HALVES = ("request", "response")
"""Columns: each half's own."""


def put(model: str, id_: str, half: str, data: bytes, now_ms: int) -> Work[bytes | None]:
    """Store one half; the other, if it is there. Of two that come at once the second waits, and sees the first."""
    own, other = (half, *(name for name in HALVES if name != half))
    rows = yield Query(
        f"INSERT INTO pairs (model, id, arrived_ms, {own}) VALUES ($1, $2, $3, $4)"
        f" ON CONFLICT (model, id) DO UPDATE SET {own} = excluded.{own} RETURNING {other}",
        (model, id_, now_ms, data),
    )
    return None if rows[0][0] is None else bytes(rows[0][0])


def remove(model: str, id_: str) -> Work[None]:
    """Forget a pair that is used up."""
    yield Query("DELETE FROM pairs WHERE model = $1 AND id = $2", (model, id_))


def drop(before_ms: int) -> Work[tuple[int, int]]:
    """Forget halves that came before a time: how many requests, and how many responses."""
    # The column, not `request IS NULL`: SQLite 3.40 says 0 there for every row.
    rows = yield Query("DELETE FROM pairs WHERE arrived_ms < $1 RETURNING request", (before_ms,))
    requests = sum(request is not None for (request,) in rows)
    return requests, len(rows) - requests
