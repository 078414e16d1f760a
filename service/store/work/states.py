"""States that use each label of the log once, in order: sequential evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from service.store.rows import LabelBlock, decoding
from service.store.work import reading
from service.store.work.statements import Lock, Query, Work, lock_of
from service.store.work.versions import VersionCache, with_resolutions

State = Any
"""Any value that is serialisable as JSON."""
Update = Callable[[State | None, LabelBlock], State]

_SELECT = "SELECT state, sequence FROM states WHERE version = $1 AND name = $2"


def update(
    version: int,
    name: str,
    function: Update,
    limit: int,
    cache: VersionCache,
    needs_levels: Callable[[State | None], bool] | None = None,
) -> Work[tuple[State, int]]:
    """Advance a state in one transaction. Return it, with the number of labels used (below `limit`: none are left).

    The labels have `at_least_LK` if `needs_levels(state)` is true.

    The holder of the lock on the state's row is the only one to advance it. The very first caller locks the version's
    row, because the state has no row yet. Sequence numbers of labels become visible in order (see `labels.put`), so no
    number below the stored one can appear later.
    """
    yield Lock(f"{_SELECT} FOR UPDATE", (version, name))
    rows = yield Query(_SELECT, (version, name))
    if not rows:
        yield lock_of(version)
        rows = yield Query(_SELECT, (version, name))
    before, sequence = rows[0] if rows else (None, 0)
    block = yield from reading.labels(version, sequence, limit)
    state = None if before is None else _decode(before, name)
    if needs_levels is not None and len(block) and needs_levels(state):
        cache = yield from with_resolutions(cache)
        block = yield from reading.with_levels(block, version, cache.versions[version])
    state = function(state, block)
    after = json.dumps(state, allow_nan=False)
    if len(block) or after != before:
        yield Query(
            "INSERT INTO states (version, name, sequence, state) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (version, name) DO UPDATE SET sequence = excluded.sequence, state = excluded.state",
            (version, name, int(block.sequence_L[-1]) if len(block) else sequence, after),
        )
    return state, len(block)


def restart(
    version: int, name: str, function: Callable[[State, int], tuple[State, int] | None], first: int
) -> Work[None]:
    """Replace a state that has used labels, from the sequence number `first` on, that have changed since.

    `function(state, first)` returns an earlier state and the sequence number of the last label that it has used, or
    None to keep the state.
    """
    yield Lock(f"{_SELECT} FOR UPDATE", (version, name))
    rows = yield Query(_SELECT, (version, name))
    if rows and (anew := function(_decode(rows[0][0], name), first)) is not None:
        state, sequence = anew
        yield Query(
            "UPDATE states SET state = $3, sequence = $4 WHERE version = $1 AND name = $2",
            (version, name, json.dumps(state, allow_nan=False), sequence),
        )


def progress(name: str) -> Work[list[tuple[str, str, int, int]]]:
    """Read model, version, the last label's sequence number, and the last one that a state has used; 0 stands for none.

    The list has every version. It costs two index look-ups per version, so it may run every second.
    """
    rows = yield Query(
        "SELECT m.name, v.version, (SELECT coalesce(max(l.sequence), 0) FROM labels l WHERE l.version = v.key),"
        " coalesce(s.sequence, 0) FROM versions v JOIN models m ON m.key = v.model"
        " LEFT JOIN states s ON s.version = v.key AND s.name = $1 ORDER BY v.key",
        (name,),
    )
    return [(model, version, int(last), int(taken)) for model, version, last, taken in rows]


def read(version: int, name: str) -> Work[State | None]:
    """Read the state as it was last stored; None before the first update."""
    rows = yield Query("SELECT state FROM states WHERE version = $1 AND name = $2", (version, name))
    return _decode(rows[0][0], name) if rows else None


def _decode(text: str, name: str) -> State:
    with decoding(f"the state {name} of its table states"):
        return json.loads(text)
