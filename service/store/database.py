"""Both stores: what they do is in the modules of work; how a database runs that is left to two methods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from service.store import (
    MAX_LAST,
    MAX_PERIODS,
    By,
    StoreError,
    Unit,
    catalogue,
    compaction,
    folding,
    labels,
    moves,
    predictions,
    reading,
    retention,
)
from service.store.catalogue import Catalogue
from service.store.label_rules import Outcome, Plan, Problem, storable
from service.store.records import (
    Earlier,
    GivenLabel,
    LabelBlock,
    LabelCounts,
    LabelledLogits,
    PredictionBatch,
    Pruned,
    StoredAnswer,
    StoredSums,
    Version,
)
from service.store.steps import MakeWork
from service.store.sums import DAY, HOUR, MONTH, PeriodSums, first_hour
from trueodds.hours import HOUR_MS, hours_of
from trueodds.shadows import shadow_of

T = TypeVar("T")

COMPACT_ROWS = 512
"""Commits of this process after which it compacts."""
COMPACT_MOVES = 100_000
"""Or rows of them: adding up as many at a read takes 7 ms."""
BLOCK_BYTES = 4 << 20
"""Logits in one block of `labelled`."""
FOLD_LABELS = 10_000
"""Labels that one transaction of `fold` takes: 20 to 50 ms in which no other label can be written."""
SMALL = 500
"""Rows from which working on them is moved off the event loop."""

_UNITS = {"hour": HOUR, "day": DAY, "month": MONTH}
_KINDS = {None: moves.TOTAL, "class": moves.BY_CLASS, "tag": moves.BY_TAG}

log = logging.getLogger("trueodds")


class DatabaseStore(ABC):
    """See `service.store.Store`."""

    def __init__(self) -> None:
        self._catalogue, self._merged = Catalogue(), reading.Merged()
        self._rows = self._moves = 0
        self._compacting: asyncio.Task[None] | None = None
        self._closed = False

    @abstractmethod
    async def _write(self, make: MakeWork[T], *, large: bool = False) -> T:
        """Run work in a transaction that is durable when this returns. `large`: not on the event loop."""

    @abstractmethod
    async def _read(self, make: MakeWork[T]) -> T:
        """Run work that only reads, in one snapshot of what was committed before the call."""

    @abstractmethod
    async def ping(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def put_version(self, version: Version) -> None:
        await self._write(partial(catalogue.add_version, version))

    async def put_predictions(self, batch: PredictionBatch) -> list[Earlier | None]:
        key = await self._key(batch.model, batch.version)
        if key is None:
            name = f"{batch.model}/{batch.version}"
            raise StoreError(f"{name} is not known to the store; put_version comes before put_predictions")
        texts = (*batch.tags, *(id_ for id_, digest in zip(batch.ids, batch.digests, strict=True) if digest))
        if bad := [text for text in texts if text is not None and not storable(text)]:
            raise ValueError(f"{bad[0]!r} holds a NUL or half a surrogate pair; not allowed in own ids and tags")
        tag_keys = self._catalogue.tag_keys(key, batch.tags)
        if tag_keys is None:  # in a transaction before, so that a key in the catalogue is never rolled back
            await self._write(partial(catalogue.add_tags, key, batch))
            await self._reload()
            tag_keys = self._catalogue.tag_keys(key, batch.tags)
            assert tag_keys is not None
        known, keys = self._catalogue, tag_keys
        outcomes = await self._write(partial(predictions.put, batch, keys, known))
        self._count(len(batch.ids))
        return outcomes

    async def put_labels(self, given: list[GivenLabel]) -> LabelCounts:
        return (await self._put_labels(given, each=False)).counts

    async def put_each_label(self, given: list[GivenLabel]) -> list[Outcome | Problem]:
        return (await self._put_labels(given, each=True)).outcomes

    async def _put_labels(self, given: list[GivenLabel], *, each: bool) -> Plan:
        known, now = self._catalogue, time.time_ns() // 1_000_000
        plan = await self._write(partial(labels.put, given, known, now, each=each), large=len(given) > SMALL)
        self._count(len(given))
        return plan

    async def read_versions(self) -> list[Version]:
        await self._reload()
        return list(self._catalogue.versions.values())

    async def read_answers(self, model: str, ids: list[str]) -> dict[str, StoredAnswer]:
        return await self._read(partial(reading.answers, model, ids))

    async def read_sums(
        self, model: str, version: str, since: int | None = None, until: int | None = None
    ) -> StoredSums:
        key, hours = await self._key(model, version), hours_of(since, until)
        if key is None:
            return StoredSums.zero()
        return (await self._read(partial(reading.sums, key, moves.TOTAL, *hours, merged=self._merged)))[0]

    async def read_sums_by(
        self,
        by: By,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        only: str | None = None,
    ) -> dict[str, StoredSums]:
        key, hours = await self._key(model, version), hours_of(since, until)
        if key is None:
            return {}
        names = await self._names(key, by)
        group = None if only is None else next((number for number, name in names.items() if name == only), -1)
        found = await self._read(partial(reading.sums, key, _KINDS[by], *hours, group, merged=self._merged))
        if found.keys() - names.keys():  # a tag that came in between
            names = await self._names(key, by)
        return {names[number]: sums for number, sums in found.items()}

    async def _names(self, key: int, by: By) -> dict[int, str]:
        if by == "class":
            return dict(enumerate(self._catalogue.versions[key].classes))
        await self._reload()
        tags = {number: name for name, number in self._catalogue.tags.get(key, {}).items()}
        return tags | {moves.NO_TAG: "", moves.OTHER_KEY: moves.OTHER_TAGS}

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
    ) -> AsyncIterator[tuple[int, StoredSums]]:
        kind, key = _KINDS[by], await self._key(model, version)
        if key is None:
            return _expand({}, 0, kind, 0)
        hours = hours_of(since, until)
        found = await self._read(partial(reading.trend, key, kind, _UNITS[unit], *hours, MAX_PERIODS))
        if isinstance(found, int):
            cure = "ask for a coarser unit (day, month) or a shorter window"
            raise ValueError(f"the window holds {found:,} periods of one {unit}; the limit is {MAX_PERIODS:,}: {cure}")
        numbers = {name: number for number, name in (await self._names(key, by)).items()} if by else {"": 0}
        return _expand(found, _UNITS[unit], kind, numbers.get(group, -1))

    async def read_labels(
        self, model: str, version: str, *, after: int = 0, limit: int = MAX_LAST, last: int | None = None
    ) -> LabelBlock:
        key = await self._key(model, version)
        if key is None:
            return reading.block([])
        if last is not None:
            return await self._read(partial(reading.last_labels, key, min(last, MAX_LAST)))
        return await self._read(partial(reading.labels, key, after, min(limit, MAX_LAST)))

    async def read_corrected(self, model: str, version: str, *, after: int = 0) -> LabelBlock:
        key = await self._key(model, version)
        if key is None:
            return reading.block([])
        return await self._read(partial(reading.corrected, key, after, MAX_LAST))

    async def count_corrected(
        self,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        by: By | None = None,
        group: str = "",
        after: int = 0,
    ) -> int:
        key, hours = await self._key(model, version), hours_of(since, until)
        if key is None:
            return 0
        name = str(self._catalogue.versions[key].classes.index(group)) if by == "class" else group
        return await self._read(partial(reading.count_corrected, key, _KINDS[by], name, hours, after))

    async def labelled(
        self, model: str, version: str, since: int | None = None, last: int | None = None, shadow: str | None = None
    ) -> AsyncIterator[LabelledLogits]:
        key = await self._key(model, version)
        beside = None if shadow is None else await self._key(shadow_of(model), shadow)
        if key is None or (beside is None and shadow is not None):
            return
        after = 0 if last is None else await self._read(partial(reading.before_last, key, last))
        classes = len(self._catalogue.versions[key].classes)
        limit = max(BLOCK_BYTES // (4 * classes), 1)
        while True:
            after, block = await self._read(partial(reading.labelled, key, classes, since or 0, after, limit, beside))
            if not after:
                return
            yield block

    async def fold(self, model: str, version: str, name: str, step: Callable[[Any, LabelBlock], Any]) -> Any:
        key = await self._key(model, version)
        if key is None:
            raise StoreError(f"{model}/{version} is not known to the store, so it has no labels to fold")
        while True:
            state, count = await self._write(partial(folding.fold, key, name, step, FOLD_LABELS), large=True)
            if count < FOLD_LABELS:
                return state

    async def read_state(self, model: str, version: str, name: str) -> Any:
        key = await self._key(model, version)
        return None if key is None else await self._read(partial(folding.state, key, name))

    async def read_progress(self, name: str) -> list[tuple[str, str, int, int]]:
        return await self._read(partial(folding.progress, name))

    async def prune(self, before: int | None = None, held_before: int | None = None) -> Pruned:
        gone, told, held, after = 0, 0, 0, "0"
        while before is not None and after:
            removed, of_labels, after = await self._write(partial(retention.prune_ours, before, after), large=True)
            gone, told = gone + removed, told + of_labels
        after = "more"
        while before is not None and after:
            removed, of_labels, after = await self._write(partial(retention.prune_own, before), large=True)
            gone, told = gone + removed, told + of_labels
        if held_before is not None:
            held = await self._write(partial(retention.prune_held, held_before))
        return Pruned(gone, told, held)

    async def compact(self) -> None:
        """Merge moves into the sums of their periods, until few are left. Reads give the same before and after."""
        while (pending := await self._read(compaction.read)) is not None:
            after = await asyncio.to_thread(pending.after)
            done = await self._write(partial(compaction.write, pending, after), large=True)
            if not done or len(pending.keys) < compaction.MOST:
                return

    def _count(self, rows: int) -> None:
        self._rows, self._moves = self._rows + 1, self._moves + rows
        if (self._rows >= COMPACT_ROWS or self._moves >= COMPACT_MOVES) and self._compacting is None:
            self._rows = self._moves = 0
            self._compacting = asyncio.create_task(self._compact())

    async def _compact(self) -> None:
        try:
            await self.compact()
        except StoreError as error:  # the next one takes what this one leaves
            log.warning("sums were not compacted: %s", error)
        except Exception:
            log.exception("sums were not compacted")
        finally:
            self._compacting = None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed: the service is shutting down")

    async def _finish_compacting(self) -> None:
        if self._compacting:
            with contextlib.suppress(asyncio.CancelledError):
                await self._compacting

    async def _key(self, model: str, version: str) -> int | None:
        if (model, version) not in self._catalogue.keys:
            await self._reload()
        return self._catalogue.keys.get((model, version))

    async def _reload(self) -> None:
        known = self._catalogue
        self._catalogue = await self._read(partial(catalogue.load, known))


async def _expand(
    found: dict[int, PeriodSums], unit: int, kind: int, group: int
) -> AsyncIterator[tuple[int, StoredSums]]:
    """One period's 192 KB of sums at a time."""
    for period, sums in found.items():
        stored = sums.stored(kind, group).get(group)
        if stored is not None:
            yield first_hour(period, unit) * HOUR_MS, stored
