"""Sums that the tables and the trend of a report are made of, read from the store."""

from __future__ import annotations

from typing import get_args

from service.errors import ServiceError
from service.report.schemas import Unit
from service.report.scope import Asked
from service.store import MAX_PERIODS, Store
from service.store.records import StoredSums, Version

UNITS: tuple[Unit, ...] = get_args(Unit)
MAX_POINTS = 120
"""Points of a trend whose unit was left to us."""
MAX_VERSIONS = 8
"""Versions beside each other: those served last."""

Periods = list[tuple[int, StoredSums]]
"""The start of each period, in Unix milliseconds, and its sums."""


async def sums_of_versions(
    store: Store, known: list[Version], asked: Asked, version: Version, sums: StoredSums
) -> dict[str, StoredSums]:
    """The versions of one model in the same window, in the order in which they were first served.

    The last 8 and the version that the report is about, whose `sums` are there already. Of a class, a tag or the last
    labels there is none.
    """
    if asked.group or asked.last is not None:
        return {}
    same = [v.version for v in known if v.model == version.model]
    shown = [name for k, name in enumerate(same) if k >= len(same) - MAX_VERSIONS or name == version.version]
    window = asked.since_ms, asked.until_ms
    return {
        name: sums if name == version.version else await store.read_sums(version.model, name, *window) for name in shown
    }


async def sums_of_groups(store: Store, version: Version, asked: Asked) -> dict[str, StoredSums]:
    """By class or by tag, under the store's names."""
    assert asked.by is not None
    return await store.read_sums_by(asked.by, version.model, version.version, asked.since_ms, asked.until_ms)


async def periods_of(store: Store, version: Version, asked: Asked) -> tuple[Unit, Periods]:
    """Each hour, day or month with answers. auto: the finest unit that needs no more than 120 points, else the month.

    Raises:
        ServiceError: 422 for more than 750 periods.
    """
    assert asked.trend is not None
    if asked.trend != "auto":
        try:
            return asked.trend, await _read(store, version, asked, asked.trend, MAX_PERIODS)
        except ValueError as error:
            raise ServiceError(422, "invalid_parameter", f"trend = {asked.trend}: {error}, or trend=auto") from None
    chosen: tuple[Unit, Periods] = ("month", [])
    for unit in reversed(UNITS):
        try:
            periods = await _read(store, version, asked, unit, MAX_POINTS)
        except ValueError:  # far more than 750
            break
        if len(periods) > MAX_POINTS and unit != "month":
            break
        chosen = unit, periods
    return chosen


async def _read(store: Store, version: Version, asked: Asked, unit: Unit, most: int) -> Periods:
    """The periods of a unit; no more than one above `most`."""
    by, group = asked.group or (None, "")
    window, periods = (asked.since_ms, asked.until_ms), Periods()
    trend = await store.read_trend(version.model, version.version, unit, *window, by=by, group=group)
    async for period in trend:
        periods.append(period)
        if len(periods) > most:
            break
    return periods
