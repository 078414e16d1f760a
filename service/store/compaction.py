"""Merging moves into the sums of their hours, days and months, once each however many workers try.

Reading and adding up is done outside the write transaction. That one then checks that nobody else compacted in the
meantime; if so, it writes nothing. Only compaction writes sums, so nothing else can come between.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.store import moves
from service.store.steps import Many, Rows, Work
from service.store.sums import UNITS, PeriodSums, by_period

MOST = 256
"""Rows of moves that one compaction takes: what it holds in memory and how long it keeps others waiting."""

Place = tuple[int, int, int, int]
"""Version, kind, unit, period."""


@dataclass(frozen=True)
class Pending:
    """Moves to merge, and what the periods they belong to hold so far."""

    number: int
    """Of compactions so far."""
    keys: list[int]
    added: dict[Place, PeriodSums]
    before: dict[Place, bytes]

    def after(self) -> list[tuple[int, int, int, int, bytes]]:
        """The new sums of every place."""
        written = []
        for place, added in self.added.items():
            sums = PeriodSums.from_bytes(self.before[place]) + added if place in self.before else added
            written.append((*place, sums.cleared().to_bytes()))
        return written


def read() -> Work[Pending | None]:
    """What is to be merged, in one snapshot; None if nothing is."""
    ((number,),) = yield Rows("SELECT number FROM compactions")
    rows = yield Rows("SELECT key, version, kind, data FROM moves ORDER BY key LIMIT $1", (MOST,))
    if not rows:
        return None
    added: dict[Place, PeriodSums] = {}
    before: dict[Place, bytes] = {}
    for version in sorted({row[1] for row in rows}):
        found = moves.read([(kind, data) for _, key, kind, data in rows if key == version])
        for unit in UNITS:
            periods = dict(by_period(found, unit))
            for kind in moves.KINDS:
                for period, part in periods.items():
                    added[version, kind, unit, period] = PeriodSums.of(part, kind)
                held = yield Rows(
                    "SELECT period, data FROM sums WHERE version = $1 AND kind = $2 AND unit = $3 AND period = ANY($4)",
                    (version, kind, unit, sorted(periods)),
                )
                before |= {(version, kind, unit, period): bytes(data) for period, data in held}
    return Pending(number, [row[0] for row in rows], added, before)


def write(pending: Pending, after: list[tuple[int, int, int, int, bytes]]) -> Work[bool]:
    """Replace the sums and forget the moves; False, and nothing is written, if someone else has compacted."""
    ours = yield Rows(
        "UPDATE compactions SET number = number + 1 WHERE number = $1 RETURNING number", (pending.number,)
    )
    if not ours:
        return False
    yield Many(
        "INSERT INTO sums (version, kind, unit, period, data) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (version, kind, unit, period) DO UPDATE SET data = excluded.data",
        after,
    )
    yield Rows("DELETE FROM moves WHERE key = ANY($1)", (pending.keys,))
    return True
