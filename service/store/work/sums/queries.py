"""Reads of sums over any hours, and of their trend, in one snapshot of the database."""

from __future__ import annotations

from collections import OrderedDict

from service.store.rows import By, Unit, Version
from service.store.work.statements import Query, Work
from service.store.work.sums import deltas
from service.store.work.sums.deltas import OTHER_KEY, OTHER_TAGS, UNTAGGED_KEY
from service.store.work.sums.period_sums import (
    HOUR,
    UNIT_OF,
    PeriodSums,
    add_up,
    by_period,
    check_minutes,
    check_number,
    cover,
    periods_of,
)
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import Hours
from trueodds.sums.ordered import OrderedSums

_NEVER = 2**62
WINDOWS = 8
"""Number of windows whose merged totals are cached, at most 200 KB each."""
Window = tuple[int, int, int | None, int | None]
"""Version, kind of sums, first and end hour."""


class MergedTotals:
    """Cache of the totals of a few windows. Only compaction writes sums, so they stay valid until the next one.

    Without the cache, a report reads and adds up a blob per month, day and hour of its window: 4 ms for a year.
    """

    def __init__(self) -> None:
        self._number, self._sums = -1, OrderedDict[Window, PeriodSums]()

    def get(self, number: int, window: Window) -> PeriodSums | None:
        """Return the cached sums of a window, if there were exactly `number` compactions."""
        return self._sums.get(window) if number == self._number else None

    def keep(self, number: int, window: Window, sums: PeriodSums) -> None:
        if number != self._number:
            self._number = number
            self._sums.clear()
        self._sums[window] = sums
        if len(self._sums) > WINDOWS:
            self._sums.popitem(last=False)


def sums(
    version: int, kind: int, hours: Hours, only: int | None = None, *, totals: MergedTotals
) -> Work[dict[int, AnswerSums]]:
    """Read the sums of predictions in the hours [first, end), by group or of one group."""
    ((number,),) = yield Query("SELECT number FROM compactions")
    window = version, kind, *hours
    is_total = kind in deltas.TOTALS
    merged = totals.get(number, window) if is_total else None
    if merged is None:
        merged = yield from _merge_periods(version, kind, hours)
        if is_total:  # sums by class are a hundred times larger
            totals.keep(number, window, merged)
    pending = (yield from deltas.pending(version, kind)).between(hours)
    return add_up([merged, PeriodSums.of(pending, kind)]).answer_sums(kind, only)


def ordered_sums(version: int, levels: int, hours: Hours) -> Work[OrderedSums]:
    """Read the sums by level of predictions in the hours [first, end)."""
    merged = yield from _merge_periods(version, deltas.ORDERED, hours)
    pending = (yield from deltas.pending(version, deltas.ORDERED)).between(hours)
    return add_up([merged, PeriodSums.of(pending, deltas.ORDERED)]).ordered_sums(levels)


def by_name(
    version: Version, key: int, by: By, hours: Hours, only: str | None, *, positive: bool, totals: MergedTotals
) -> Work[dict[str, AnswerSums]]:
    """Read the sums of the hours [first, end) by name of the predicted class or tag. `only` selects one of them."""
    names = yield from names_of(version, key, by)
    group = None if only is None else next((number for number, name in names.items() if name == only), -1)
    by_number = yield from sums(key, kind_of(by, positive=positive), hours, group, totals=totals)
    return {names[number]: group_sums for number, group_sums in by_number.items()}


def names_of(version: Version, key: int, by: By) -> Work[dict[int, str]]:
    """Return the name of each class by its index, or of each tag by its key. No tag is the empty name."""
    if by == "class":
        return dict(enumerate(version.classes))
    rows = yield Query("SELECT key, name FROM tags WHERE version = $1", (key,))
    return dict(rows) | {UNTAGGED_KEY: "", OTHER_KEY: OTHER_TAGS}


def kind_of(by: By | None, *, positive: bool = False) -> int:
    """Return the kind of sums: of all answers, by class or by tag. `positive` selects those by p(positive)."""
    if positive:
        return {None: deltas.POSITIVE, "class": deltas.POSITIVE_BY_CLASS, "tag": deltas.POSITIVE_BY_TAG}[by]
    return {None: deltas.TOTAL, "class": deltas.BY_CLASS, "tag": deltas.BY_TAG}[by]


def _limits(first: int | None, end: int | None) -> tuple[int, int]:
    return -_NEVER if first is None else first, _NEVER if end is None else end


def _merge_periods(version: int, kind: int, hours: Hours) -> Work[PeriodSums]:
    parts = []
    for unit, low, high in cover(*hours):
        rows = yield Query(
            "SELECT data FROM sums WHERE version = $1 AND kind = $2 AND unit = $3 AND period >= $4 AND period < $5",
            (version, kind, unit, *_limits(low, high)),
        )
        parts += [PeriodSums.from_bytes(bytes(data)) for (data,) in rows]
    return add_up(parts)


def trend(version: int, kind: int, name: Unit, hours: Hours, most: int) -> Work[dict[int, PeriodSums]]:
    """Read the sums of each period that begins in the hours [first, end).

    Raises:
        ValueError: There are more than `most`.
    """
    unit = UNIT_OF[name]
    low, high = _limits(*periods_of(hours, unit))
    where = "WHERE version = $1 AND kind = $2 AND unit = $3 AND period >= $4 AND period < $5"
    ((number,),) = yield Query(f"SELECT count(*) FROM sums {where}", (version, kind, unit, low, high))
    pending = dict(by_period((yield from deltas.pending(version, kind)), unit))
    added = {period: PeriodSums.of(part, kind) for period, part in pending.items() if low <= period < high}
    check_number(max(number, len(added)), name, most)
    rows = yield Query(f"SELECT period, data FROM sums {where} ORDER BY period", (version, kind, unit, low, high))
    by_start = {period: PeriodSums.from_bytes(bytes(data)) for period, data in rows}
    for period, part in added.items():
        by_start[period] = by_start[period] + part if period in by_start else part
    return dict(sorted(by_start.items()))


def trend_of(
    version: Version, key: int, unit: Unit, hours: Hours, most: int, by: By | None, group: str
) -> Work[tuple[dict[int, PeriodSums], int]]:
    """Read the sums of each period with answers, and the number of the group that the caller asks for.

    Raises:
        ValueError: There are more than `most` periods, or the window includes minutes that are no longer kept.
    """
    if unit == "minute":
        check_minutes((yield from first_hour(key, hours)))
    periods = yield from trend(key, kind_of(by), unit, hours, most)
    if by is None:
        return periods, 0
    names = yield from names_of(version, key, by)
    return periods, next((number for number, name in names.items() if name == group), -1)


def first_hour(version: int, hours: Hours) -> Work[int | None]:
    """Read the first of the hours [first, end) with answers; None if there is none."""
    ((merged,),) = yield Query(
        "SELECT min(period) FROM sums WHERE version = $1 AND kind = $2 AND unit = $3 AND period >= $4 AND period < $5",
        (version, deltas.TOTAL, HOUR, *_limits(*hours)),
    )
    minute_N = (yield from deltas.pending(version, deltas.TOTAL)).between(hours).answers["minute"]
    known = [] if merged is None else [int(merged)]
    return min([*known, *(minute_N.min(keepdims=True) // 60).tolist()] if len(minute_N) else known, default=None)
