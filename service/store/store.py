"""The store: what is done is in the modules of work, and how a transaction runs is left to a database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from service.errors import Refusal
from service.store.databases.database import Database
from service.store.label_rules import Outcome, Plan, RefusedLabelsError
from service.store.reader import StoreReader
from service.store.rows import (
    DeletionCounts,
    EarlierPrediction,
    Label,
    LabelBlock,
    LabelCounts,
    LabelSelection,
    PredictionBatch,
    PruneCounts,
    SettleCounts,
    Settlement,
    StoreError,
    Version,
    VoidCounts,
    Voiding,
    storable,
)
from service.store.work import (
    compaction,
    doubtful,
    labels,
    pairs,
    predictions,
    retention,
    states,
    tag_places,
    versions,
    voiding,
    windows,
)
from service.store.work.deltas import MAX_TAGS
from trueodds.bundle.contents import shadowed_by, shadows_of
from trueodds.sums.maturity import Matures

COMPACT_COMMITS = 512
"""Commits of this process after which it compacts."""
COMPACT_ROWS = 100_000
"""Or rows of them: adding up as many at a read takes 7 ms."""
STATE_LABELS = 10_000
"""Labels that one transaction of `update_state` takes: 20 to 50 ms in which no other label can be written."""
PRUNED = 2000
"""Predictions that one transaction of `prune` removes: 12 ms, so that nobody waits long."""
ADMITTED = 20_000
"""Answers that one transaction of `admit_tags` moves: a tag with more is in two sums until the next, for .2 s."""
VOIDED = 2000
"""Labels that one transaction of `void_labels` takes out."""
CLOSED = 2000
"""Answers that one transaction of `mature` counts."""
SMALL = 500
"""Rows from which working on them is moved off the event loop."""

log = logging.getLogger("trueodds")


def now_ms() -> int:
    """The time, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Store(StoreReader):
    """Answers, labels and their sums, in batches only.

    Every `put_` returns after its rows, and what they add to the sums, are durable in one transaction. All methods
    raise StoreError when the store fails, RowsError where only this call does. Then nothing was stored, unless the
    connection to a database server was lost during the commit itself: sending the same labels, or the same own ids,
    again is safe.
    """

    def __init__(
        self,
        database: Database,
        *,
        compact_commits: int = COMPACT_COMMITS,
        matures: Matures = (),
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """`matures`: the windows that versions begin with which come from now on, by model."""
        super().__init__(database)
        self._matures, self._clock = dict(matures), clock
        self._compact_commits = compact_commits
        self._commits = self._rows = 0
        self._compacting: asyncio.Task[None] | None = None

    async def put_version(self, version: Version) -> None:
        """Make a model version known; needed before its predictions. Again: nothing changes.

        Raises:
            OtherOriginError: answers of another origin have its name.
        """
        maturity = self._matures.get(shadowed_by(version.model), version.maturity)
        await self.database.write(partial(versions.add_version, replace(version, maturity=maturity)))

    async def put_predictions(self, batch: PredictionBatch) -> list[EarlierPrediction | None]:
        """Store answers and count them. Row by row: None, or what was stored under the caller's own id before."""
        tag_keys = await self._tag_keys(batch)
        outcomes = await self.database.write(partial(predictions.put, batch, tag_keys, self._known, self._clock()))
        self._count(len(batch.ids))
        return outcomes

    async def put_observations(
        self, batches: list[PredictionBatch], *, each: bool
    ) -> list[list[EarlierPrediction | None]]:
        """As `put_predictions`, for answers of several versions in one transaction; with `each`, a row stands alone.

        Raises:
            ConflictsError: without `each`, an id came with another answer before.
        """
        keyed = [(batch, await self._tag_keys(batch)) for batch in batches]
        rows = sum(len(batch.ids) for batch in batches)
        work = partial(predictions.put_all, keyed, self._known, self._clock(), each=each)
        outcomes = await self.database.write(work, large=rows > SMALL)
        self._count(rows)
        return outcomes

    async def _tag_keys(self, batch: PredictionBatch) -> list[int]:
        """The keys under which the rows of a batch are summed by tag; new tags become known."""
        key = await self._key(batch.model, batch.version)
        if key is None:
            name = f"{batch.model}/{batch.version}"
            raise StoreError(f"{name} is not known to the store; put_version comes before its answers")
        texts = (*batch.tags, *(id_ for id_, digest in zip(batch.ids, batch.digests, strict=True) if digest))
        if bad := [text for text in texts if text is not None and not storable(text)]:
            raise ValueError(f"{bad[0]!r} holds a NUL or half a surrogate pair; not allowed in own ids and tags")
        tag_keys = self._known.tag_keys(key, batch.tags)
        if tag_keys is None:  # in a transaction before, so that a key that is known is never rolled back
            await self.database.write(partial(versions.add_tags, key, batch))
            await self._reload()
            tag_keys = self._known.tag_keys(key, batch.tags)
            assert tag_keys is not None
        return tag_keys

    async def put_labels(self, labels: list[Label], import_id: str | None = None) -> LabelCounts:
        """Store labels, all or none; `import_id` names those that came together, to void them.

        Raises:
            RefusedLabelsError: unknown ids, unknown classes or conflicting labels.
        """
        plan = await self._put_labels(labels, import_id, each=False)
        if plan.refusals:
            raise RefusedLabelsError(plan.refusals, len(labels))
        return plan.counts

    async def put_each_label(self, labels: list[Label], import_id: str | None = None) -> list[Outcome | Refusal]:
        """Store each label that can be, as if each came in a call of its own, in one transaction."""
        return (await self._put_labels(labels, import_id, each=True)).outcomes

    async def _put_labels(self, rows: list[Label], import_id: str | None, *, each: bool) -> Plan:
        arrival, large = labels.Arrival(self._clock(), import_id), len(rows) > SMALL
        if any(version.maturity for version in self._known.versions.values()):
            await self.mature(arrival.at_ms)  # a label that comes after its window is late, whoever closes that when
        plan = await self.database.write(partial(labels.put, rows, self._known, arrival, each=each), large=large)
        self._count(len(rows))
        return plan

    async def update_state(
        self,
        model: str,
        version: str,
        name: str,
        update: Callable[[Any, LabelBlock], Any],
        *,
        limit: int = STATE_LABELS,
    ) -> Any:
        """Bring a state up to date with the label log and return it: each label once, whoever dies or races.

        `update(state, block)` gives the new state, which json can write; the state is None at first. In one transaction
        at a time and with one leader, it is called for blocks of labels until there are no more, and at least once,
        with an empty block if nothing is new. It must have no other effects: a transaction may be tried again. It may
        use `first_correct_L`, not `correct_L`, if it has to be the same whenever it is called.
        """
        key = await self._key(model, version)
        if key is None:
            raise StoreError(f"{model}/{version} is not known to the store, so it has no labels for a state")
        while True:
            state, count = await self.database.write(partial(states.update, key, name, update, limit), large=True)
            if count < limit:
                return state

    async def void_labels(
        self, what: Voiding, restart: voiding.Restart, *, dry_run: bool = False, limit: int = VOIDED
    ) -> tuple[dict[tuple[str, str], VoidCounts], int]:
        """Void labels by their import or the time of their arrival, as if they had never come: those of versions, by
        model and version, and how many held ones.

        In transactions of `limit` labels, so that others are not kept waiting: who reads meanwhile finds some of them
        gone. Again: nothing is left to void, or what an interruption left. `restart`: functions by the names of states,
        see `states.restart`; call `update_state` afterwards. `dry_run`: nothing is written.
        """
        counts: dict[tuple[str, str], VoidCounts] = {}

        def count(version: Version, voided: VoidCounts) -> None:
            place = version.model, version.version
            counts[place] = counts.get(place, VoidCounts()) + voided

        transact = self.database.read if dry_run else partial(self.database.write, large=True)
        held = await transact(partial(voiding.held, what, dry_run=dry_run))
        await self._reload()
        known = self._known
        for key in voiding.selected_versions(what.selection, known):
            after, version = 0, known.versions[key]
            while sequences := await self.database.read(partial(voiding.matching, key, what.selection, after, limit)):
                after = sequences[-1]
                work = partial(voiding.block, key, sequences, what, known, restart, dry_run=dry_run)
                count(version, await transact(work))
                self._count(0 if dry_run else len(sequences))
            for elsewhere in (doubtful.void, windows.void):
                voided = await transact(partial(elsewhere, key, what, dry_run=dry_run))
                if voided.labels:
                    count(version, voided)
        return counts, held

    async def settle_labels(
        self, selection: LabelSelection, settlement: Settlement, *, dry_run: bool = False, limit: int = VOIDED
    ) -> tuple[dict[tuple[str, str], SettleCounts], SettleCounts]:
        """Settle labels in doubt: those of versions, by model and version, and the held ones; see `work.doubtful`.

        In transactions of `limit` answers. Again: nothing is left, or what an interruption left. `dry_run`: nothing is
        written.
        """
        counts: dict[tuple[str, str], SettleCounts] = {}
        await self._reload()
        known = self._known
        transact = self.database.read if dry_run else partial(self.database.write, large=True)
        held = await transact(partial(doubtful.settle_held, selection, settlement.decision, known, dry_run=dry_run))
        for key in voiding.selected_versions(selection, known):
            after, place = "", (known.versions[key].model, known.versions[key].version)
            while True:
                work = partial(doubtful.settle, key, after, limit, selection, settlement, known, dry_run=dry_run)
                after, settled = await transact(work)
                if not after:
                    break
                counts[place] = counts.get(place, SettleCounts()) + settled
                self._count(0 if dry_run else settled.confirmed)
        return counts, held

    async def delete_prediction(self, model: str, id_: str) -> DeletionCounts:
        """Remove the prediction of an id, what shadows said about the same input, their labels and the held ones.

        Sums and evidence stay, as with retention: they hold counts, and nothing of whom they are.
        """
        return await self.database.write(partial(retention.remove, id_, [model, *shadows_of(model)]))

    async def prune(
        self, before: int | None = None, held_before: int | None = None, *, limit: int = PRUNED
    ) -> PruneCounts:
        """Remove predictions made before a time, with their labels, and labels held since before a time.

        Sums stay, but for old ones by minute. So do labels, with their predictions, that a state has not taken yet.
        """
        await self.database.write(compaction.drop_minutes)
        answers, answer_labels, held = 0, 0, 0
        if before is not None:
            for own in (False, True):
                after = "0"
                while after:
                    work = partial(retention.prune, before, after, limit, own=own)
                    removed, removed_labels, after = await self.database.write(work, large=True)
                    answers, answer_labels = answers + removed, answer_labels + removed_labels
        if held_before is not None:
            held = await self.database.write(partial(retention.prune_held, held_before))
        return PruneCounts(answers, answer_labels, held)

    async def admit_tags(self, *, limit: int = ADMITTED) -> None:
        """Give tags that turned out frequent sums of their own; see `work.tag_places`."""
        await self._reload()
        known = self._known
        for key, version in known.versions.items():
            if len(known.tags.get(key, ())) < MAX_TAGS:
                continue
            for tag in await self.database.read(partial(tag_places.frequent, key, self._totals)):
                admit = partial(tag_places.admit, key, tag, version.positive_class, limit)
                while await self.database.write(admit, large=True) == limit:
                    self._count(limit)
        await self._reload()

    async def mature(self, now: int | None = None, *, limit: int = CLOSED) -> int:
        """Count the answers whose maturity window has closed, in transactions of `limit`; how many there were.

        They enter sums and log as of the end of their window, so it does not matter how often this is done. Without
        versions that have a window it costs one look at a table of versions.
        """
        now, done = self._clock() if now is None else now, 0
        for key in await self.database.read(partial(windows.due, now)):
            if key not in self._known.versions:
                await self._reload()
            while True:
                work = partial(windows.close, key, now, limit, self._known)
                closed = await self.database.write(work, large=limit > SMALL)
                self._count(closed)
                done += closed
                if closed < limit:
                    break
        return done

    async def put_half(self, model: str, id_: str, half: str, data: bytes) -> bytes | None:
        """Store one half of a pair, `request` or `response`; the other, if it is there."""
        return await self.database.write(partial(pairs.put, model, id_, half, data, self._clock()))

    async def remove_pair(self, model: str, id_: str) -> None:
        """Forget a pair that is used up."""
        await self.database.write(partial(pairs.remove, model, id_))

    async def drop_halves(self, before: int) -> tuple[int, int]:
        """Forget halves that came before a time: how many requests, and how many responses."""
        return await self.database.write(partial(pairs.drop, before))

    async def compact(self) -> None:
        """Merge deltas into the sums of their periods, until few are left. Reads give the same before and after."""
        while (pending := await self.database.read(compaction.read)) is not None:
            after = await asyncio.to_thread(pending.after)
            done = await self.database.write(partial(compaction.write, pending, after), large=True)
            if not done or len(pending.keys) < compaction.MOST:
                return

    async def finish_compacting(self) -> None:
        """Wait for the compaction that is under way, if any."""
        if self._compacting:
            with contextlib.suppress(asyncio.CancelledError):
                await self._compacting

    async def close(self) -> None:
        """Finish what is queued, then close."""
        await self.finish_compacting()
        await self.database.close()

    def _count(self, rows: int) -> None:
        """Count a commit, and start a compaction when there have been enough."""
        self._commits, self._rows = self._commits + 1, self._rows + rows
        if (self._commits >= self._compact_commits or self._rows >= COMPACT_ROWS) and self._compacting is None:
            self._commits = self._rows = 0
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
