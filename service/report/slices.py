"""Versions, classes and tags beside each other, and the trend over time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import get_args

from service.errors import ServiceError
from service.report.cache import remembered
from service.report.schemas import Slice, Trend, TrendPoint, Unit
from service.report.scope import NO_TAG, Asked
from service.store import MAX_PERIODS, Store
from service.store.records import StoredSums, Version
from trueodds import metrics
from trueodds.sums.bins import Binning

UNITS: tuple[Unit, ...] = get_args(Unit)
MAX_POINTS = 120
"""Points of a trend whose unit was left to us."""
MAX_VERSIONS = 8
"""Versions beside each other: those served last."""


@remembered(1024)
def _numbers(sums: StoredSums, bins: int, binning: Binning, level: float) -> dict[str, float | bool]:
    told, n = sums.labelled, sums.labelled.n
    if not n:
        return {}
    low, high = metrics.binomial_interval([told.total("correct")], [n], level=level)
    table, floor = metrics.whole_bins(told, bins, binning), metrics.noise_floor(told, bins=bins, binning=binning)
    ece = float(abs(table.gap_B).sum() / table.n)
    return {
        "accuracy": metrics.accuracy(told),
        "accuracy_lower": float(low[0]),
        "accuracy_upper": float(high[0]),
        "mean_confidence": metrics.mean_confidence(told),
        "signed_gap": metrics.signed_gap(told),
        "ece": ece,
        "floor_p95": floor.p95,
        "more_than_chance": ece > floor.p95,
    }


def slice_of(name: str, sums: StoredSums, asked: Asked) -> Slice:
    """One row of a table."""
    numbers = _numbers(sums, asked.bins, asked.binning, asked.level)
    return Slice.model_validate({"name": name, "answers": sums.answers, "labelled": sums.labelled.n, **numbers})


async def versions(store: Store, known: list[Version], asked: Asked, version: Version, sums: StoredSums) -> list[Slice]:
    """The versions of one model in the same window, in the order in which they were first served; the last 8 and the
    one that is asked for. Of a class, a tag or the last labels there is none.
    """
    if asked.group or asked.last is not None:
        return []
    same = [v.version for v in known if v.model == version.model]
    shown = [name for k, name in enumerate(same) if k >= len(same) - MAX_VERSIONS or name == version.version]
    found = []
    for name in shown:
        other = name != version.version
        read = await store.read_sums(version.model, name, asked.since_ms, asked.until_ms) if other else sums
        found.append(slice_of(name, read, asked))
    return found


async def groups(store: Store, version: Version, asked: Asked) -> list[Slice]:
    """By class in the order of the classes, or by tag, the most frequent first."""
    assert asked.by is not None
    read = await store.read_sums_by(asked.by, version.model, version.version, asked.since_ms, asked.until_ms)

    def rows() -> Iterable[Slice]:
        for name, sums in read.items():
            yield slice_of(name or NO_TAG if asked.by == "tag" else name, sums, asked)

    found = await asyncio.to_thread(lambda: list(rows()))
    return found if asked.by == "class" else sorted(found, key=lambda row: (-row.answers, row.name))


@remembered(2048)
def _point(sums: StoredSums, bins: int, binning: Binning, level: float) -> dict[str, float]:
    told = sums.labelled
    if not told.n:
        return {}
    interval = metrics.ece_interval(told, bins=bins, level=level, binning=binning)
    return {
        "accuracy": metrics.accuracy(told),
        "mean_confidence": metrics.mean_confidence(told),
        "ece": interval.ece,
        "ece_estimate": interval.estimate,
        "ece_lower": interval.lower,
        "ece_upper": interval.upper,
        "floor_p95": metrics.noise_floor(told, bins=bins, binning=binning).p95,
    }


async def trend(store: Store, version: Version, asked: Asked) -> Trend:
    """One point for each hour, day or month with answers. auto: the finest unit that needs no more than 120 points.

    3 ms for each point whose sums have changed since it was last computed; the others are remembered.

    Raises:
        ServiceError: 422 for more than 750 periods.
    """
    unit, periods = await _chosen(store, version, asked)

    def computed() -> list[TrendPoint]:
        return [
            TrendPoint.model_validate(
                {
                    "start": datetime.fromtimestamp(start / 1000, UTC),
                    "answers": sums.answers,
                    "labelled": sums.labelled.n,
                    **_point(sums, asked.bins, asked.binning, asked.level),
                }
            )
            for start, sums in periods
        ]

    return Trend(unit=unit, points=await asyncio.to_thread(computed))


Periods = list[tuple[int, StoredSums]]


async def _chosen(store: Store, version: Version, asked: Asked) -> tuple[Unit, Periods]:
    assert asked.trend is not None
    if asked.trend != "auto":
        try:
            return asked.trend, await _read(store, version, asked, asked.trend, MAX_PERIODS)
        except ValueError as error:
            raise ServiceError(422, "invalid_parameter", f"trend = {asked.trend}: {error}, or trend=auto") from None
    found: tuple[Unit, Periods] = ("month", [])
    for unit in reversed(UNITS):
        try:
            periods = await _read(store, version, asked, unit, MAX_POINTS)
        except ValueError:  # far more than 750
            break
        if len(periods) > MAX_POINTS and unit != "month":
            break
        found = unit, periods
    return found


async def _read(store: Store, version: Version, asked: Asked, unit: Unit, most: int) -> Periods:
    """The periods of a unit; no more than one above `most`."""
    by, group = asked.group or (None, "")
    key, found = (version.model, version.version), []
    async for period in await store.read_trend(*key, unit, asked.since_ms, asked.until_ms, by=by, group=group):
        found.append(period)
        if len(found) > most:
            break
    return found
