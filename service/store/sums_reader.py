"""The part of the store's reading half that gives versions and sums."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from service.store.databases.database import Database
from service.store.rows import By, Unit, Version, decoding
from service.store.work import class_and_tag, deltas, reading, versions
from service.store.work.class_and_tag import RowSums
from service.store.work.compaction import check_minutes
from service.store.work.period_sums import UNIT_OF, PeriodSums, start_ms
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import hours_of

MAX_PERIODS = 750
"""Periods of one trend: the hours of a month."""

_KINDS = {None: deltas.TOTAL, "class": deltas.BY_CLASS, "tag": deltas.BY_TAG}
_KINDS_OF_POSITIVE = {None: deltas.POSITIVE, "class": deltas.POSITIVE_BY_CLASS, "tag": deltas.POSITIVE_BY_TAG}


class SumsReader:
    """Reads versions, and the sums of their answers; raises StoreError when the database fails.

    Times are Unix milliseconds. Sums are kept by hour of the PREDICTION, UTC: `since` and `until` reach out to whole
    hours.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._known, self._totals = versions.KnownVersions(), reading.MergedTotals()

    async def read_versions(self) -> list[Version]:
        """All versions, in the order in which they were first served."""
        await self._reload()
        return list(self._known.versions.values())

    async def read_versions_by_activity(self) -> list[Version]:
        """All versions, those first whose last answer was latest (to the hour)."""
        keys = await self.database.read(versions.by_activity)
        if not self._known.versions.keys() >= set(keys):
            await self._reload()
        return [self._known.versions[key] for key in keys if key in self._known.versions]

    async def read_sums(
        self, model: str, version: str, since: int | None = None, until: int | None = None, *, positive: bool = False
    ) -> AnswerSums:
        """The sums of one version; zero if it has none.

        `positive`: by p(positive), see `PositiveClass.sums`; zero without a positive class.
        """
        key = await self._key(model, version)
        if key is None:
            return AnswerSums.zero()
        kinds = _KINDS_OF_POSITIVE if positive else _KINDS
        work = partial(reading.sums, key, kinds[None], hours_of(since, until), totals=self._totals)
        return (await self.database.read(work))[0]

    async def count_acted(self, model: str, version: str, since: int | None = None, until: int | None = None) -> int:
        """Count the answers of a version that acted alone; 0 for a version without a promise."""
        key = await self._key(model, version)
        if key is None:
            return 0
        work = partial(reading.sums, key, deltas.ACTED, hours_of(since, until), totals=self._totals)
        return (await self.database.read(work))[0].answers

    async def read_sums_by(
        self,
        by: By,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        only: str | None = None,
        positive: bool = False,
    ) -> dict[str, AnswerSums]:
        """Sums by PREDICTED class (top-label calibration is conditional on it), or by tag, on 60 cells; 192 KB each.

        The first 100 tags of a version, and up to 150 that are more frequent, have sums of their own, the rest share
        "(other)"; answers without a tag are under the empty name. `only`: of one class or tag. `positive`: as in
        `read_sums`.
        """
        key = await self._key(model, version)
        if key is None:
            return {}
        names = await self._names(key, by)
        group = None if only is None else next((number for number, name in names.items() if name == only), -1)
        kind = (_KINDS_OF_POSITIVE if positive else _KINDS)[by]
        work = partial(reading.sums, key, kind, hours_of(since, until), group, totals=self._totals)
        sums = await self.database.read(work)
        if sums.keys() - names.keys():  # a tag that came in between
            names = await self._names(key, by)
        return {names[number]: group_sums for number, group_sums in sums.items()}

    async def read_class_and_tag(
        self, model: str, version: str, class_: str, tag: str, since: int | None = None, until: int | None = None
    ) -> RowSums:
        """Sums of the answers of a predicted class that have a tag, counted from their rows, on 3,000 cells.

        `read_rare_tag` is asked for a tag that has no sums of its own.

        Raises:
            ValueError: more than 100,000 rows of the class and of the tag, or a million of the version, in the window;
                or retention, or a deletion, has taken some.
        """
        key = await self._key(model, version)
        if key is None:
            return RowSums([])
        tags = {name: number for number, name in (await self._names(key, "tag")).items()}
        index = self._known.versions[key].classes.index(class_)
        hours = hours_of(since, until)
        rare = None
        if tag not in tags:
            rare = await self.database.read(partial(class_and_tag.read_rare, key, tag, hours, totals=self._totals))
            if rare is None:  # it has just got its place
                tags = {name: number for number, name in (await self._names(key, "tag")).items()}
        if rare is None:
            work = partial(class_and_tag.read, key, index, tags[tag], hours, totals=self._totals)
            rows = await self.database.read(work)
        else:
            rows = [row for row in rare if row[2] == index]
        with decoding("its table labels or predictions"):
            return await asyncio.to_thread(RowSums, rows)

    async def read_rare_tag(
        self, model: str, version: str, tag: str, since: int | None = None, until: int | None = None
    ) -> RowSums | None:
        """Sums of the answers with a tag that has no sums of its own, counted from their rows; None of other tags.

        Raises:
            ValueError: over a million rows of such tags in the window, over 100,000 of this one; or retention, or a
                deletion, has taken some.
        """
        key = await self._key(model, version)
        if key is None or tag in (await self._names(key, "tag")).values():
            return None
        rare = partial(class_and_tag.read_rare, key, tag, hours_of(since, until), totals=self._totals)
        rows = await self.database.read(rare)
        if rows is None:  # it has just got its place
            return None
        with decoding("its table labels or predictions"):
            return await asyncio.to_thread(RowSums, rows)

    async def has_answers_of(self, model: str, version: str, tag: str) -> bool:
        """Whether a tag that has no sums of its own has answers at any time, as far as they are stored."""
        key = await self._key(model, version)
        return key is not None and await self.database.read(partial(class_and_tag.is_rare, key, tag))

    async def read_trend(
        self,
        model: str,
        version: str,
        unit: Unit,
        since: int | None = None,
        until: int | None = None,
        *,
        by: By | None = None,
        group: str = "",
        most: int = MAX_PERIODS,
    ) -> AsyncIterator[tuple[int, AnswerSums]]:
        """(start, sums) of each period with answers that the window touches, of one group if `by` is given.

        Raises:
            ValueError: more periods than `most`; or minutes of hours before those of which they are kept.
        """
        kind, key, hours = _KINDS[by], await self._key(model, version), hours_of(since, until)
        if key is None:
            return _stored({}, 0, kind, 0)
        if unit == "minute":
            check_minutes(await self.database.read(partial(reading.first_hour, key, hours)))
        periods = await self.database.read(partial(reading.trend, key, kind, unit, hours, most))
        numbers = {name: number for number, name in (await self._names(key, by)).items()} if by else {"": 0}
        return _stored(periods, UNIT_OF[unit], kind, numbers.get(group, -1))

    async def _key(self, model: str, version: str) -> int | None:
        if (model, version) not in self._known.keys:
            await self._reload()
        return self._known.keys.get((model, version))

    async def _reload(self) -> None:
        self._known = await self.database.read(partial(versions.load_versions, self._known))

    async def _names(self, key: int, by: By) -> dict[int, str]:
        if by == "class":
            return dict(enumerate(self._known.versions[key].classes))
        await self._reload()
        return self._known.tag_names(key)


async def _stored(
    periods: dict[int, PeriodSums], unit: int, kind: int, group: int
) -> AsyncIterator[tuple[int, AnswerSums]]:
    """One period's 192 KB of sums at a time."""
    for period, period_sums in periods.items():
        stored = period_sums.stored(kind, group).get(group)
        if stored is not None:
            yield start_ms(period, unit), stored
