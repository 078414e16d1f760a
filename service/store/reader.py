"""The reading half of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from service.store.databases.database import Database
from service.store.rows import (
    By,
    HeldLabels,
    LabelBlock,
    LabelledLogits,
    StoredPrediction,
    Unit,
    Version,
    Voiding,
    storable,
)
from service.store.work import class_and_tag, deltas, reading, states, versions, voiding
from service.store.work.class_and_tag import RowSums
from service.store.work.compaction import check_minutes
from service.store.work.period_sums import UNIT_OF, PeriodSums, start_ms
from trueodds.bundle.shadows import shadow_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import hours_of

MAX_LAST = 100_000
"""Labels that one read_labels gives."""
MAX_PERIODS = 750
"""Periods of one trend: the hours of a month."""
BLOCK_BYTES = 4 << 20
"""Logits in one block of `read_labelled_logits`."""

EXPORTED = 10_000
"""Predictions in one block of `export`."""
LATEST_MS = 2**47
"""A time in milliseconds that no prediction has; ids hold twelve hex digits of it."""

_KINDS = {None: deltas.TOTAL, "class": deltas.BY_CLASS, "tag": deltas.BY_TAG}
_KINDS_OF_POSITIVE = {None: deltas.POSITIVE, "class": deltas.POSITIVE_BY_CLASS, "tag": deltas.POSITIVE_BY_TAG}


class StoreReader:
    """Reads answers, labels and their sums; raises StoreError when the database fails.

    Times are Unix milliseconds. Sums are kept by hour of the PREDICTION, UTC: `since` and `until` reach out to whole
    hours. Labels are logged in the order of their arrival, by sequence numbers per version. A later correction changes
    the sums and the values that `read_labels` gives, but is no new entry of the log and leaves `first_correct_L`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._known, self._totals = versions.KnownVersions(), reading.MergedTotals()

    async def read_versions(self) -> list[Version]:
        """All versions, in the order in which they were first served."""
        await self._reload()
        return list(self._known.versions.values())

    async def read_answers(self, model: str, ids: list[str]) -> dict[str, StoredPrediction]:
        """Stored answers of a model by id; ids that are unknown are left out."""
        return await self.database.read(partial(reading.answers, model, ids))

    async def read_answers_of(self, id_: str) -> list[StoredPrediction]:
        """The stored answers of all models, and of their shadows, with an id."""
        return await self.database.read(partial(reading.answers_of, id_)) if storable(id_) else []

    async def export(
        self,
        model: str,
        version: str,
        since: int = 0,
        until: int = LATEST_MS,
        *,
        logits: bool = False,
        limit: int = EXPORTED,
    ) -> AsyncIterator[list[StoredPrediction]]:
        """The predictions of a version made in the milliseconds [since, until), with their labels, in blocks.

        First those with ids of ours, then those with callers' own, each in the order of their time. `logits`: with
        them, in smaller blocks. A block is as the store is when it is read.
        """
        key = await self._key(model, version)
        if key is None:
            return
        if logits:
            limit = min(limit, max(BLOCK_BYTES // (4 * len(self._known.versions[key].classes)), 1))
        last, times = "", (since, until)
        while rows := await self.database.read(partial(reading.exported_ours, key, times, last, limit, logits=logits)):
            yield rows
            last = rows[-1].id
        place = (-1, "")
        while rows := await self.database.read(partial(reading.exported_own, key, times, place, limit, logits=logits)):
            yield rows
            place = rows[-1].created_ms, rows[-1].id

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

        The first 100 tags of a version have sums of their own, the rest share "(other)"; answers without a tag are
        under the empty name. `only`: of one class or tag. `positive`: as in `read_sums`.
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
        work = partial(class_and_tag.read, key, index, tags.get(tag, -1), hours, totals=self._totals)
        rows = await self.database.read(work)
        return await asyncio.to_thread(RowSums, rows)

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

    async def read_labels(
        self, model: str, version: str, *, after: int = 0, limit: int = MAX_LAST, last: int | None = None
    ) -> LabelBlock:
        """The label log: up to `limit` entries after a sequence number, or the `last` ones; at most 100,000."""
        key = await self._key(model, version)
        if key is None:
            return reading.block([])
        if last is not None:
            return await self.database.read(partial(reading.last_labels, key, min(last, MAX_LAST)))
        return await self.database.read(partial(reading.labels, key, after, min(limit, MAX_LAST)))

    async def read_corrected(self, model: str, version: str, *, after: int = 0) -> LabelBlock:
        """Those labels of the log above a sequence number that were corrected, as they are now; at most 100,000."""
        key = await self._key(model, version)
        if key is None:
            return reading.block([])
        return await self.database.read(partial(reading.corrected, key, after, MAX_LAST))

    async def count_corrected(
        self,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        class_: str | None = None,
        tag: str | None = None,
        after: int = 0,
    ) -> int:
        """Labels that were replaced by another class since they first came, of a predicted class or a tag if given.

        `after`: only those above a sequence number. Labels that retention has removed are not counted.
        """
        key = await self._key(model, version)
        if key is None:
            return 0
        index = None if class_ is None else self._known.versions[key].classes.index(class_)
        return await self.database.read(
            partial(reading.count_corrected, key, index, tag, hours_of(since, until), after)
        )

    async def read_labelled_logits(
        self,
        model: str,
        version: str,
        since: int | None = None,
        last: int | None = None,
        shadow: str | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> AsyncIterator[LabelledLogits]:
        """Logits and labels of all labelled answers since then, in blocks, in the order of their labels' arrival.

        `last`: only those among the labels that arrived last, this many. `shadow`, a version: only answers that it has
        scored as the model's shadow, and its logits.
        """
        key = await self._key(model, version)
        shadow_key = None if shadow is None else await self._key(shadow_of(model), shadow)
        if key is None or (shadow_key is None and shadow is not None):
            return
        after = 0 if last is None else await self.database.read(partial(reading.before_last, key, last))
        classes = len(self._known.versions[key].classes)
        limit = max(block_bytes // (4 * classes), 1)
        while True:
            work = partial(reading.labelled, key, classes, since or 0, after, limit, shadow_key)
            after, block = await self.database.read(work)
            if not after:
                return
            yield block

    async def read_state(self, model: str, version: str, name: str) -> Any:
        """The state that `update_state` stored last; None before."""
        key = await self._key(model, version)
        return None if key is None else await self.database.read(partial(states.read, key, name))

    async def read_progress(self, name: str) -> list[tuple[str, str, int, int]]:
        """Model, version, the last label's sequence number, and the last one that a state has taken.

        Of every version; 0: none. Two look-ups in an index for each, so it may be asked every second.
        """
        return await self.database.read(partial(states.progress, name))

    async def read_held(self) -> dict[str, HeldLabels]:
        """The labels that wait for their predictions, by model; models without any are left out."""
        return await self.database.read(reading.held)

    async def read_voidings(self, model: str, version: str) -> list[Voiding]:
        """The voidings of labels of a version, in their order."""
        key = await self._key(model, version)
        return [] if key is None else await self.database.read(partial(voiding.voidings, key))

    async def last_voiding(self, model: str, version: str) -> int:
        """A number that is another after every voiding of labels of a version: what was read of its log is stale."""
        key = await self._key(model, version)
        return 0 if key is None else await self.database.read(partial(voiding.last_voiding, key))

    async def is_voided(self, import_id: str) -> bool:
        """Whether labels of an import were voided before."""
        return await self.database.read(partial(voiding.is_voided, import_id))

    async def ping(self) -> None:
        """Raise StoreError unless rows could be stored now, as far as can be told without storing one."""
        await self.database.ping()

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
