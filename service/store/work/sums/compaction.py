"""Compaction: merges deltas into the sums of hours, days, months and recent minutes, exactly once.

A compaction reads and adds up outside its write transaction. That transaction then checks whether another process has
compacted meanwhile; if so, it writes nothing. Only compaction writes sums, so nothing else can interfere.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.store.work.statements import ExecuteMany, Query, Work
from service.store.work.sums.deltas import ANSWERS, LABELS, SUMS_OF, Deltas
from service.store.work.sums.period_sums import MINUTE, UNITS, PeriodSums, by_period, minutes_from, period_of

MOST = 256
"""Rows of deltas per compaction. It bounds the memory and the time for which others wait."""

OF_TOP_LABEL = ANSWERS, LABELS
"""Kinds of deltas that have sums by minute: trends show the top label."""

Place = tuple[int, int, int, int]
"""Version, kind, unit and period."""


@dataclass(frozen=True)
class Pending:
    """Deltas to merge, and the current sums of their periods."""

    number: int
    """Number of compactions so far."""
    keys: list[int]
    additions: dict[Place, PeriodSums]
    before: dict[Place, PeriodSums]

    def after(self) -> list[tuple[int, int, int, int, bytes]]:
        """Return the new sums of every place."""
        rows = []
        for place, added in self.additions.items():
            sums = self.before[place] + added if place in self.before else added
            rows.append((*place, sums.without_empty().to_bytes()))
        return rows


def read() -> Work[Pending | None]:
    """Read the deltas to merge, in one snapshot; None if there are none."""
    young = minutes_from() - 1, None
    ((number,),) = yield Query("SELECT number FROM compactions")
    rows = yield Query("SELECT key, version, kind, data FROM moves ORDER BY key LIMIT $1", (MOST,))
    if not rows:
        return None
    additions: dict[Place, PeriodSums] = {}
    before: dict[Place, PeriodSums] = {}
    for version in sorted({row[1] for row in rows}):
        blobs = [(kind, data) for _, key, kind, data in rows if key == version]
        for pair, kinds in SUMS_OF.items():
            deltas = Deltas.from_blobs(version, blobs, pair)
            units = (*UNITS, MINUTE) if pair == OF_TOP_LABEL else UNITS
            for unit in units if len(deltas) else ():
                periods = dict(by_period(deltas.between(young) if unit == MINUTE else deltas, unit))
                for kind in kinds:
                    for period, part in periods.items():
                        additions[version, kind, unit, period] = PeriodSums.of(part, kind)
                    held = yield Query(
                        "SELECT period, data FROM sums"
                        " WHERE version = $1 AND kind = $2 AND unit = $3 AND period = ANY($4)",
                        (version, kind, unit, sorted(periods)),
                    )
                    before |= {
                        (version, kind, unit, period): PeriodSums.from_bytes(bytes(data)) for period, data in held
                    }
    return Pending(number, [row[0] for row in rows], additions, before)


def write(pending: Pending, after: list[tuple[int, int, int, int, bytes]]) -> Work[bool]:
    """Replace the sums and delete the merged deltas. Return False, and write nothing, after another compaction."""
    ours = yield Query(
        "UPDATE compactions SET number = number + 1 WHERE number = $1 RETURNING number", (pending.number,)
    )
    if not ours:
        return False
    yield ExecuteMany(
        "INSERT INTO sums (version, kind, unit, period, data) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (version, kind, unit, period) DO UPDATE SET data = excluded.data",
        after,
    )
    yield Query("DELETE FROM moves WHERE key = ANY($1)", (pending.keys,))
    return True


def drop_minutes() -> Work[None]:
    """Remove the sums by minute that are too old to be read."""
    yield Query(
        "DELETE FROM sums WHERE version IN (SELECT key FROM versions) AND kind = ANY($1) AND unit = $2 AND period < $3",
        (list(SUMS_OF[OF_TOP_LABEL]), MINUTE, int(period_of(minutes_from() - 1, MINUTE))),
    )
