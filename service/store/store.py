"""The store's public API. `work` holds the SQL; `databases` runs it in transactions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args

from service.errors import Refusal
from service.store.databases.database import Database
from service.store.decision_rows import QuestionDecisions
from service.store.label_rules import LabelPlan, Outcome, RefusedLabelsError
from service.store.queue_rows import ClosedAnswer, Drawable, LabelDraw, QueuedAnswer
from service.store.rows import (
    ArchiveFile,
    By,
    DeletionCounts,
    EarlierPrediction,
    HeldLabel,
    JudgedCounts,
    Label,
    LabelBlock,
    LabelCounts,
    LabelledLogits,
    LabelSelection,
    MaturedCounts,
    PredictionBatch,
    PruneCounts,
    SettleCounts,
    Settlement,
    StoreDamagedError,
    StoredPrediction,
    StoreError,
    Unit,
    Version,
    VoidCounts,
    Voiding,
    storable,
)
from service.store.work import (
    archiving,
    decisions,
    doubtful,
    labels,
    maturing,
    pairs,
    predictions,
    reading,
    resolutions,
    retention,
    states,
    versions,
    voiding,
    windows,
)
from service.store.work.labelling import judging, label_masses, label_queue
from service.store.work.statements import Work
from service.store.work.sums import class_and_tag, compaction, deltas, queries, tag_places
from service.store.work.sums.class_and_tag import RowSums
from service.store.work.sums.period_sums import UNIT_OF, PeriodSums, start_ms
from trueodds.bundle.contents import shadow_of, shadowed_by, shadows_of
from trueodds.metrics import CalibrationSums
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import hours_of
from trueodds.sums.maturity import Matures
from trueodds.sums.ordered import OrderedSums
from trueodds.sums.rounding import Resolution

COMPACT_COMMITS = 512
"""Number of commits by this process after which it compacts the sums."""
COMPACT_ROWS = 100_000
"""Number of rows after which it compacts. Adding up that many in a read takes 7 ms."""
STATE_LABELS = 10_000
"""Labels per transaction of `update_state`. It takes 20 to 50 ms, in which no other label can be written."""
PRUNE_BATCH = 2000
"""Predictions removed per transaction of `prune`. It takes 12 ms, so that other calls wait only briefly."""
ARCHIVE_ROWS = 100_000
"""Predictions that leave the live tables before their files are written: the most that wait for a failing archive."""
ARCHIVE_BYTES = 48 << 20
"""Largest size of a file of the archive, estimated without compression. An upload holds it in memory."""
ADMIT_BATCH = 20_000
"""Answers moved per transaction of `admit_tags`. A tag with more answers is split over two sums for .2 s each."""
VOID_BATCH = 2000
"""Labels voided per transaction of `void_labels`."""
MATURE_BATCH = 2000
"""Answers counted per transaction of `mature`."""
SMALL = 500
"""Number of rows from which work runs off the event loop."""
MAX_LAST = 100_000
"""Largest number of labels that `read_labels` returns."""
MAX_PERIODS = 750
"""Largest number of periods in a trend: the hours of a month."""
BLOCK_BYTES = 4 << 20
"""Bytes of logits in one block of `read_labelled_logits` and of `export`."""
EXPORT_BATCH = 10_000
"""Predictions in one block of `export`."""
LATEST_MS = 2**47
"""Time in milliseconds later than any prediction. Ids hold twelve hex digits of it."""


P = ParamSpec("P")
T = TypeVar("T")
N = TypeVar("N")
log = logging.getLogger("trueodds")


def now_ms() -> int:
    """Return the current time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _reads(work: Callable[P, Work[T]]) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Return a method of the store that reads by `work`. It has the parameters of the work and its documentation."""

    async def method(self: Store, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self.database.read(partial(work, *arguments, **options))

    update_wrapper(method, work)
    return method


def _writes(work: Callable[P, Work[T]]) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Return a method of the store that writes by `work`; see `_reads`."""

    async def method(self: Store, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self.database.write(partial(work, *arguments, **options))

    update_wrapper(method, work)
    return method


def _reads_of(
    work: Callable[Concatenate[int, P], Work[T]], none: Callable[[], N]
) -> Callable[Concatenate[Store, str, str, P], Coroutine[Any, Any, T | N]]:
    """Return a method of the store that reads by `work` about a model's version; `none()` if there is none."""

    async def method(self: Store, model: str, version: str, /, *arguments: P.args, **options: P.kwargs) -> T | N:
        return await self._ask(model, version, lambda key: work(key, *arguments, **options), none())

    update_wrapper(method, work)
    return method


class Store:
    """Answers, labels and their sums.

    Times are Unix milliseconds. Sums are kept per hour of the PREDICTION, in UTC; `since` and `until` are extended to
    whole hours. Labels are logged in the order of their arrival, with sequence numbers per version. A later correction
    changes the sums and the values that `read_labels` returns. It adds no entry to the log and leaves `first_correct_L`
    and `first_label_L` unchanged.

    Every `put_` method returns after its rows and their contribution to the sums are durable, in one transaction. All
    methods raise StoreError if the store fails, and RowsError if only this call fails. Then nothing was stored, with
    one exception: the connection to a database server broke during the commit. You may always send the same labels, or
    the same own ids, again.
    """

    def __init__(
        self,
        database: Database,
        *,
        compact_commits: int = COMPACT_COMMITS,
        matures: Matures = (),
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Make the store. `matures` has the maturity windows, by model, of versions that are added from now on."""
        self.database = database
        self._known, self._totals = versions.VersionCache(), queries.MergedTotals()
        self._matures, self._clock = dict(matures), clock
        self._compact_commits = compact_commits
        self._commits = self._rows = 0
        self._compacting: asyncio.Task[None] | None = None

    # Methods that are one piece of work. The functions of `work` document them.
    read_questions = _reads(decisions.questions)
    read_earlier_decisions = _reads(decisions.earlier_decisions)
    read_notices = _reads(decisions.notices)
    change_deliveries = _writes(decisions.change_deliveries)
    secret = _writes(decisions.secret)
    remove_pair = _writes(pairs.remove)
    drop_halves = _writes(pairs.drop)
    read_answers = _reads(reading.answers)
    read_held = _reads(reading.count_held)
    read_progress = _reads(states.progress)
    read_voidings = _reads_of(voiding.voidings, list[Voiding])
    last_voiding = _reads_of(voiding.last_voiding, int)
    latest_label = _reads(voiding.latest)
    is_voided = _reads(voiding.is_voided)
    count_doubtful = _reads_of(doubtful.waiting, int)
    read_settlements = _reads_of(doubtful.settlements, list[Settlement])
    has_answers_of = _reads_of(class_and_tag.is_rare, bool)
    read_drawable = _reads_of(label_queue.drawable, list[Drawable])
    read_last_draw_end = _reads_of(label_queue.last_end, int)
    read_label_masses = _reads_of(label_masses.of, lambda: None)
    read_queue_counts = _reads_of(label_queue.counts, lambda: None)
    read_leases = _reads_of(label_queue.leases, list[QueuedAnswer])
    read_closed_answers = _reads_of(label_queue.closures, list[ClosedAnswer])
    read_queue_ids = _reads_of(label_queue.ids_of, set[str])
    count_judge_labels = _reads_of(judging.count, int)
    count_judged = _reads_of(judging.counts, JudgedCounts)
    read_judge_stamp = _reads_of(judging.stamp, lambda: (0,))
    read_judged = _reads_of(judging.answers, lambda: None)

    async def put_version(self, version: Version) -> None:
        """Add a version. This must precede its predictions. Adding it again has no effect.

        Raises:
            OtherOriginError: The name already has answers of another origin.
        """
        maturity = self._matures.get(shadowed_by(version.model), version.maturity)
        await self.database.write(partial(versions.add_version, replace(version, maturity=maturity)))

    async def decide_resolution(self, model: str, version: str, resolution: Resolution) -> None:
        """Keep the resolution of a version, unless it has one. Its earlier labels are scored again."""
        key = await self._key(model, version)
        if key is not None:
            await self._reload()
            await self.database.write(partial(resolutions.decide, key, resolution, self._known), large=True)
            await self._reload()

    async def put_predictions(self, batch: PredictionBatch) -> list[EarlierPrediction | None]:
        """Store and count answers. Return per row None, or the earlier answer stored under the caller's own id."""
        tag_keys = await self._tag_keys(batch)
        outcomes = await self.database.write(partial(predictions.put, batch, tag_keys, self._known, self._clock()))
        self._count(len(batch.ids))
        return outcomes

    async def put_observations(
        self, batches: list[PredictionBatch], *, each: bool
    ) -> list[list[EarlierPrediction | None]]:
        """Store and count answers of several versions in one transaction; see `put_predictions`.

        Args:
            batches: The answers.
            each: Whether rows are stored independently. Otherwise a conflict prevents all of them.

        Raises:
            ConflictsError: Without `each`, an id was already used for another answer.
        """
        keyed = [(batch, await self._tag_keys(batch)) for batch in batches]
        rows = sum(len(batch.ids) for batch in batches)
        work = partial(predictions.put_all, keyed, self._known, self._clock(), each=each)
        outcomes = await self.database.write(work, large=rows > SMALL)
        self._count(rows)
        return outcomes

    async def put_decisions(
        self, batches: list[PredictionBatch], rows: list[QuestionDecisions], alpha: float, *, each: bool = True
    ) -> list[list[EarlierPrediction | None]]:
        """Store answers of decision models, and count their questions; see `put_observations`.

        Args:
            batches: The answers.
            rows: One row per answer and per declined question, by version of the question.
            alpha: Significance level of the test of declined questions.
            each: Whether rows are stored independently. Otherwise a conflict prevents all of them.

        Raises:
            ConflictsError: Without `each`, an id was already used for another answer.
        """
        keyed = [(batch, await self._tag_keys(batch)) for batch in batches]
        number = sum(len(some.rows) for some in rows)
        work = partial(decisions.put_all, keyed, rows, self._known, self._clock(), alpha, each=each)
        outcomes = await self.database.write(work, large=number > SMALL)
        self._count(number)
        return outcomes

    async def read_input(self, model: str, id_: str) -> str | None:
        """Read the input of an answer as JSON; None if the service has not kept it."""
        return await self.database.read(partial(decisions.kept_inputs, id_, model)) if storable(id_) else None

    async def _tag_keys(self, batch: PredictionBatch) -> list[int]:
        """Return the keys of the sums by tag for a batch's rows. New tags are added."""
        key = await self._key(batch.model, batch.version)
        if key is None:
            name = f"{batch.model}/{batch.version}"
            raise StoreError(f"the store does not have {name}; put_version must precede its answers")
        texts = (*batch.tags, *(id_ for id_, digest in zip(batch.ids, batch.digests, strict=True) if digest))
        if bad := [text for text in texts if text is not None and not storable(text)]:
            raise ValueError(f"{bad[0]!r} contains NUL or half a surrogate pair, which ids and tags must not")
        tag_keys = self._known.tag_keys(key, batch.tags)
        if tag_keys is None:  # in an earlier transaction of its own, so that a key in use is never rolled back
            await self.database.write(partial(versions.add_tags, key, batch))
            await self._reload()
            tag_keys = self._known.tag_keys(key, batch.tags)
            assert tag_keys is not None
        return tag_keys

    async def put_labels(self, labels: list[Label], import_id: str | None = None) -> LabelCounts:
        """Store labels, all or none. `import_id` names the call's labels, so that they can be voided.

        Raises:
            RefusedLabelsError: Unknown ids, unknown classes or conflicting labels.
        """
        plan = await self._put_labels(labels, import_id, each=False)
        if plan.refusals:
            raise RefusedLabelsError(plan.refusals, len(labels))
        return plan.counts

    async def put_each_label(self, labels: list[Label], import_id: str | None = None) -> list[Outcome | Refusal]:
        """Store each acceptable label, as if each were a call of its own, in one transaction."""
        return (await self._put_labels(labels, import_id, each=True)).outcomes

    async def put_judge_labels(self, labels: list[Label]) -> dict[str, int]:
        """Store labels of a judge, all or none, and count them by outcome; see `work.judging`.

        Raises:
            RefusedLabelsError: Unknown ids, or unknown classes.
        """
        plan = await self._put_judge(labels, each=False)
        if plan.refusals:
            raise RefusedLabelsError(plan.refusals, len(labels))
        return {name: plan.outcomes.count(name) for name in get_args(judging.JudgeOutcome)}

    async def put_each_judge_label(self, labels: list[Label]) -> list[judging.JudgeOutcome | Refusal]:
        """Store each acceptable label of a judge, in one transaction."""
        return (await self._put_judge(labels, each=True)).outcomes

    async def _put_judge(self, rows: list[Label], *, each: bool) -> judging.JudgePlan:
        work = partial(judging.put, rows, self._known, self._clock(), each=each)
        return await self.database.write(work, large=len(rows) > SMALL)

    async def _put_labels(self, rows: list[Label], import_id: str | None, *, each: bool) -> LabelPlan:
        arrival, large = labels.Arrival(self._clock(), import_id), len(rows) > SMALL
        if any(version.maturity for version in self._known.versions.values()):
            await self.mature(arrival.at_ms)  # a label after the window is late, whichever process closes the window
        plan = await self.database.write(partial(labels.put, rows, self._known, arrival, each=each), large=large)
        self._count(len(rows))
        return plan

    async def put_label_draw(self, model: str, version: str, draw: LabelDraw, sample: list[tuple[str, float]]) -> int:
        """Store a draw of answers to label; see `label_queue.put_draw`."""
        key = await self._existing(model, version)
        return await self.database.write(partial(label_queue.put_draw, key, draw, sample), large=len(sample) > SMALL)

    async def lease_answers(self, model: str, version: str, who: str, until_ms: int, count: int) -> list[QueuedAnswer]:
        """Lease the next drawn answers to a person; see `label_queue.lease`."""
        key = await self._existing(model, version)
        return await self.database.write(partial(label_queue.lease, key, who, self._clock(), until_ms, count))

    async def close_answers(self, model: str, version: str, ids: list[str], who: str, *, is_skip: bool) -> None:
        """Record who has labelled or skipped drawn answers; see `label_queue.close`."""
        key = await self._existing(model, version)
        await self.database.write(partial(label_queue.close, key, ids, who, self._clock(), is_skip=is_skip))

    async def _existing(self, model: str, version: str) -> int:
        key = await self._key(model, version)
        if key is None:
            raise StoreError(f"the store does not have {model}/{version}")
        return key

    async def update_state(
        self,
        model: str,
        version: str,
        name: str,
        update: Callable[[Any, LabelBlock], Any],
        *,
        limit: int = STATE_LABELS,
        needs_levels: Callable[[Any], bool] | None = None,
        needs_sets: bool = False,
    ) -> Any:
        """Bring a state up to date with the label log, and return it. Each label is used exactly once.

        This holds across crashes and concurrent callers. `update(state, block)` returns the new state, which must be
        serialisable as JSON; the first state is None. It is called for blocks of labels until none are left, one
        transaction and one caller at a time. If there are no new labels, it is called once with an empty block.

        `update` must have no side effects, because a transaction may be repeated. If its result must not depend on the
        time of the call, it may use `first_correct_L` and `first_label_L` but not `correct_L` and `label_L`.

        The labels have `at_least_LK` if `needs_levels(state)` is true. Then the classes must be ordered. They have the
        sets of their version if `needs_sets` is true.
        """
        key = await self._key(model, version)
        if key is None:
            raise StoreError(f"the store does not have {model}/{version}, so there are no labels for a state")
        while True:
            work = partial(states.update, key, name, update, limit, self._known, needs_levels, needs_sets)
            state, count = await self.database.write(work, large=True)
            if count < limit:
                return state

    async def void_labels(
        self, what: Voiding, restart: voiding.Restart, *, dry_run: bool = False, limit: int = VOID_BATCH
    ) -> tuple[dict[tuple[str, str], VoidCounts], int]:
        """Void labels by import or time of arrival. They are removed from all sums.

        Each transaction voids `limit` labels, so that other calls need not wait. A read in between sees some of them
        removed. Calling it again voids nothing, or the rest after an interruption. Call `update_state` afterwards.

        Args:
            what: The selection, and who voids it and why.
            restart: Functions by state name; see `states.restart`.
            dry_run: Count only; write nothing.
            limit: Labels per transaction.

        Returns:
            The counts by model and version, and the number of held labels.
        """
        counts: dict[tuple[str, str], VoidCounts] = {}

        def count(version: Version, void_counts: VoidCounts) -> None:
            place = version.key
            counts[place] = counts.get(place, VoidCounts()) + void_counts

        transact = self.database.read if dry_run else partial(self.database.write, large=True)
        held = await transact(partial(voiding.void_held, what, dry_run=dry_run))
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
        self, selection: LabelSelection, settlement: Settlement, *, dry_run: bool = False, limit: int = VOID_BATCH
    ) -> tuple[dict[tuple[str, str], SettleCounts], SettleCounts]:
        """Settle doubtful labels; see `work.doubtful`.

        Each transaction settles `limit` answers. Calling it again settles nothing, or the rest after an interruption.

        Args:
            selection: The labels.
            settlement: The decision, and who makes it and why.
            dry_run: Count only; write nothing.
            limit: Answers per transaction.

        Returns:
            The counts by model and version, and those of held labels.
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
        """Delete the prediction of an id, the shadows' answers to the same input, and all their labels.

        Held labels are deleted too. Sums and evidence stay, as with retention. They are aggregates of counts without
        ids or inputs.
        """
        return await self.database.write(partial(retention.remove, id_, [model, *shadows_of(model)]))

    async def prune(
        self,
        before: int | None = None,
        held_before: int | None = None,
        *,
        limit: int = PRUNE_BATCH,
        keep_answers: bool = False,
    ) -> PruneCounts:
        """Remove predictions made before a time, with their labels, and labels held since before a time.

        Sums stay, except old ones by minute. Labels that a state has not used yet also stay, with their predictions.
        With `keep_answers` no prediction is removed, because `move_to_archive` does it.
        """
        await self.database.write(compaction.drop_minutes)
        answers, answer_labels, held = 0, 0, 0
        if before is not None:
            for own in () if keep_answers else (False, True):
                after = "0"
                while after:
                    work = partial(retention.prune, before, after, limit, own=own)
                    removed, removed_labels, after = await self.database.write(work, large=True)
                    answers, answer_labels = answers + removed, answer_labels + removed_labels
            while await self.database.write(partial(decisions.prune, before, limit), large=True) == limit:
                pass
        if held_before is not None:
            held = await self.database.write(partial(retention.prune_held, held_before))
        return PruneCounts(answers, answer_labels, held)

    async def move_to_archive(
        self, before: int, *, most: int = ARCHIVE_ROWS, file_bytes: int = ARCHIVE_BYTES, limit: int = PRUNE_BATCH
    ) -> int:
        """Take up to about `most` predictions made before a time out of the live tables, to files for the archive.

        Call `read_archive_files` and `finish_archive_file` next, then this again until it returns 0. The rules are
        those of `prune`: sums stay, and so do predictions with labels that a state has not used yet.

        Args:
            before: The time in milliseconds.
            most: Number of predictions after which the files are sealed.
            file_bytes: Largest size of a file, estimated without compression.
            limit: Predictions in one transaction.
        """
        moved = 0
        for own in (False, True):
            after = "0"
            while after and moved < most:
                work = partial(archiving.move, before, after, limit, file_bytes, own=own)
                count, after = await self.database.write(work, large=True)
                moved += count
        await self.database.write(archiving.seal)
        return moved

    read_archive_files = _reads(archiving.waiting_files)
    is_archive_file_waiting = _reads(archiving.waits)
    note_archive_problem = _writes(archiving.note_problem)
    read_archive = _reads(archiving.state)
    read_archive_problem = _reads(archiving.problem)

    async def read_archive_rows(self, file: ArchiveFile) -> AsyncIterator[list[StoredPrediction]]:
        """Read the predictions of a file by id, with their labels and logits, in blocks."""
        await self._reload()
        classes = len(self._version(self._known.keys[file.model, file.version]).classes)
        limit, last = min(EXPORT_BATCH, max(BLOCK_BYTES // (4 * classes), 1)), ""
        while rows := await self.database.read(partial(archiving.rows_of, file.key, last, limit)):
            yield rows
            last = rows[-1].id

    async def finish_archive_file(self, file: ArchiveFile, *, limit: int = PRUNE_BATCH) -> bool:
        """Note that a file was written and verified, then remove its rows. Return whether this process did so.

        Raises:
            StoreDamagedError: The file's rows have changed since they were written.
        """
        done = await self.database.write(partial(archiving.finish, file.key, file.answers, self._clock()))
        if not done and await self.database.read(partial(archiving.waits, file)):
            raise StoreDamagedError("its table archiving has other rows than its table archive_files says", "")
        await self.clear_archive_rows(limit=limit)
        return done

    async def clear_archive_rows(self, *, limit: int = PRUNE_BATCH) -> None:
        """Remove the rows of finished files, also after a process that was killed before it did so."""
        while await self.database.write(partial(archiving.clear, limit), large=True):
            pass

    async def read_held_before(self, before: int, *, limit: int = EXPORT_BATCH) -> list[HeldLabel]:
        """Read up to `limit` labels that have waited for their predictions since before a time, oldest first."""
        return await self.database.read(partial(retention.held_before, before, limit))

    async def remove_held(self, labels: list[HeldLabel]) -> int:
        """Remove held labels that have not changed since they were read. Return their number."""
        return await self.database.write(partial(retention.remove_held, labels), large=True)

    async def admit_tags(self, *, limit: int = ADMIT_BATCH) -> None:
        """Give tags that have become frequent sums of their own; see `work.sums.tag_places`."""
        await self._reload()
        known = self._known
        for key, version in known.versions.items():
            if len(known.tags.get(key, ())) < deltas.MAX_TAGS:
                continue
            for tag in await self.database.read(partial(tag_places.frequent, key, self._totals)):
                admit = partial(tag_places.admit, key, tag, version.positive_class, limit)
                while await self.database.write(admit, large=True) == limit:
                    self._count(limit)
        await self._reload()

    async def mature(self, now: int | None = None, *, limit: int = MATURE_BATCH) -> int:
        """Count the answers whose maturity window has closed. Return their number.

        They enter the sums and the log with the time at which their window ended, so the time of this call does not
        matter. It costs one look at a small table if no version has a window. Each transaction counts `limit` answers.
        """
        now, done = self._clock() if now is None else now, 0
        for key in await self.database.read(partial(windows.due, now)):
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
        """Store one half of a pair, `request` or `response`. Return the other half if it is there."""
        return await self.database.write(partial(pairs.put, model, id_, half, data, self._clock()))

    async def read_versions(self) -> list[Version]:
        """Read all versions, in the order in which they were first served."""
        await self._reload()
        return list(self._known.versions.values())

    async def read_versions_by_activity(self) -> list[Version]:
        """Read all versions, ordered by their last answer (to the hour), latest first."""
        keys = await self.database.read(versions.by_activity)
        if not self._known.versions.keys() >= set(keys):
            await self._reload()
        return [self._known.versions[key] for key in keys if key in self._known.versions]

    async def read_sums(
        self, model: str, version: str, since: int | None = None, until: int | None = None, *, positive: bool = False
    ) -> AnswerSums:
        """Read the sums of one version; zero if it has none.

        With `positive`, the sums are by p(positive); see `PositiveClass.sums`. They are zero without a positive class.
        """
        return await self._read_total(model, version, queries.kind_of(None, positive=positive), since, until)

    async def read_rounded_sums(
        self, model: str, version: str, since: int | None = None, until: int | None = None
    ) -> CalibrationSums:
        """Read the sums of the labels that rounding is about; see `deltas.ROUNDED_LABELS`."""
        return (await self._read_total(model, version, deltas.ROUNDED, since, until)).labelled

    async def read_ordered_sums(
        self, model: str, version: str, since: int | None = None, until: int | None = None
    ) -> OrderedSums | None:
        """Read the sums by level of a version with ordered classes; None for others, and before its first answer."""
        hours = hours_of(since, until)

        def question(key: int) -> Work[OrderedSums | None]:
            known = self._version(key)
            if not known.ordered:
                return None
            return (yield from queries.ordered_sums(key, len(known.classes), hours))

        return await self._ask(model, version, question, None)

    async def count_acting_answers(
        self, model: str, version: str, since: int | None = None, until: int | None = None
    ) -> int:
        """Count the answers of a version that acted alone; 0 for a version without a promise."""
        return (await self._read_total(model, version, deltas.ACTED, since, until)).answers

    async def _read_total(
        self, model: str, version: str, kind: int, since: int | None, until: int | None
    ) -> AnswerSums:
        hours, totals = hours_of(since, until), self._totals
        none = dict[int, AnswerSums]()
        by_group = await self._ask(model, version, lambda key: queries.sums(key, kind, hours, totals=totals), none)
        return by_group[0] if by_group else AnswerSums.zero()

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
        """Read sums on 60 cells by PREDICTED class or by tag; 192 KB each.

        Top-label calibration is conditional on the predicted class. The first 100 tags of a version, and up to 150 more
        frequent ones, have sums of their own; the rest share "(other)". Answers without a tag are under the empty name.
        `only` restricts the read to one class or tag. For `positive` see `read_sums`.
        """
        hours, totals = hours_of(since, until), self._totals

        def question(key: int) -> Work[dict[str, AnswerSums]]:
            return queries.by_name(self._version(key), key, by, hours, only, positive=positive, totals=totals)

        return await self._ask(model, version, question, {})

    async def read_class_and_tag(
        self, model: str, version: str, class_: str, tag: str, since: int | None = None, until: int | None = None
    ) -> RowSums:
        """Sum the answers with a predicted class and a tag from their rows, on 3,000 cells.

        Raises:
            ValueError: The window has more than 100,000 rows of the class and tag, or more than a million of the
                version; or retention or a deletion has removed some of the rows.
        """
        hours, totals = hours_of(since, until), self._totals

        def question(key: int) -> Work[RowSums]:
            return class_and_tag.read_both(self._version(key), key, class_, tag, hours, totals=totals)

        return await self._ask(model, version, question, RowSums([]))

    async def read_rare_tag(
        self, model: str, version: str, tag: str, since: int | None = None, until: int | None = None
    ) -> RowSums | None:
        """Sum the answers with a tag that has no sums of its own from their rows; None for other tags.

        Raises:
            ValueError: The window has over a million rows of such tags, or over 100,000 of this tag; or retention or a
                deletion has removed some of the rows.
        """
        hours, totals = hours_of(since, until), self._totals
        return await self._ask(
            model, version, lambda key: class_and_tag.read_rare(key, tag, hours, totals=totals), None
        )

    async def read_sums_by_source(
        self, model: str, version: str, since: int | None = None, until: int | None = None
    ) -> dict[str, AnswerSums]:
        """Read sums by source of the confidence, "" if it is unknown, from the rows of the answers.

        Raises:
            ValueError: The window has over 100,000 answers, or retention or a deletion has removed some of the rows.
        """
        hours, totals = hours_of(since, until), self._totals
        none = dict[str, RowSums]()
        by_source = await self._ask(
            model, version, lambda key: class_and_tag.read_by_source(key, hours, totals=totals), none
        )
        return {source: rows.total() for source, rows in by_source.items()}

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
        """Read (start, sums) of each period with answers in the window, of one group if `by` is given.

        Raises:
            ValueError: There are more than `most` periods, or the window includes minutes that are no longer kept.
        """
        hours, none = hours_of(since, until), dict[int, PeriodSums]()

        def question(key: int) -> Work[tuple[dict[int, PeriodSums], int]]:
            return queries.trend_of(self._version(key), key, unit, hours, most, by, group)

        periods, number = await self._ask(model, version, question, (none, 0))
        return _answer_sums(periods, UNIT_OF[unit], queries.kind_of(by), number)

    async def read_answers_of(self, id_: str) -> list[StoredPrediction]:
        """Read the stored answers with an id, of all models and their shadows."""
        return await self.database.read(partial(reading.answers_of, id_)) if storable(id_) else []

    async def export(
        self,
        model: str,
        version: str,
        since: int = 0,
        until: int = LATEST_MS,
        *,
        logits: bool = False,
        limit: int = EXPORT_BATCH,
    ) -> AsyncIterator[list[StoredPrediction]]:
        """Read the predictions of a version made in [since, until), in milliseconds, with their labels, in blocks.

        Ids of the service come first, then callers' own ids, each sorted by time. `logits` includes the logits, in
        smaller blocks. Each block shows the store at the time of its read.
        """
        key = await self._key(model, version)
        if key is None:
            return
        if logits:
            limit = min(limit, max(BLOCK_BYTES // (4 * len(self._version(key).classes)), 1))
        last, times = "", (since, until)
        while rows := await self.database.read(partial(reading.exported_ours, key, times, last, limit, logits=logits)):
            yield rows
            last = rows[-1].id
        place = (-1, "")
        while rows := await self.database.read(partial(reading.exported_own, key, times, place, limit, logits=logits)):
            yield rows
            place = rows[-1].created_ms, rows[-1].id

    async def read_labels(
        self, model: str, version: str, *, after: int = 0, limit: int = MAX_LAST, last: int | None = None
    ) -> LabelBlock:
        """Read the label log: up to `limit` entries after a sequence number, or the `last` ones; at most 100,000."""
        if last is not None:
            newest = min(last, MAX_LAST)
            return await self._ask(model, version, lambda key: reading.last_labels(key, newest), reading.NO_LABELS)
        most = min(limit, MAX_LAST)
        return await self._ask(model, version, lambda key: reading.labels(key, after, most), reading.NO_LABELS)

    async def read_corrected_labels(self, model: str, version: str, *, after: int = 0) -> LabelBlock:
        """Read the corrected labels after a sequence number, with their current values; at most 100,000."""
        corrected = partial(reading.labels, after=after, limit=MAX_LAST, corrected_only=True)
        return await self._ask(model, version, corrected, reading.NO_LABELS)

    async def count_corrected_labels(
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
        """Count the labels that another class has replaced, of a predicted class or a tag if given.

        `after` restricts them to those after a sequence number. Labels that retention has removed are not counted.
        """
        hours = hours_of(since, until)

        def question(key: int) -> Work[int]:
            index = None if class_ is None else self._version(key).classes.index(class_)
            return reading.count_corrected_labels(key, index, tag, hours, after)

        return await self._ask(model, version, question, 0)

    async def read_labelled_logits(
        self,
        model: str,
        version: str,
        since: int | None = None,
        last: int | None = None,
        shadow: str | None = None,
        *,
        ids: list[str] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> AsyncIterator[LabelledLogits]:
        """Read logits and labels of all labelled answers since a time, in blocks, in the order of the labels' arrival.

        Args:
            model: Name of the model.
            version: Its version.
            since: Time of the first answer, in milliseconds.
            last: Only the labels that arrived last: this many.
            shadow: A version. Only answers that it has scored as the model's shadow are read, with its logits.
            ids: Only these answers.
            block_bytes: Bytes of logits in one block.
        """
        key = await self._key(model, version)
        shadow_key = None if shadow is None else await self._key(shadow_of(model), shadow)
        if key is None or (shadow_key is None and shadow is not None):
            return
        after = 0 if last is None else await self.database.read(partial(reading.before_last, key, last))
        await self._reload()
        of, beside = self._version(key), None if shadow_key is None else (shadow_key, self._version(shadow_key))
        limit = max(block_bytes // (4 * len(of.classes)), 1)
        while True:
            work = partial(reading.read_labelled_logits, key, of, since or 0, after, limit, beside, ids)
            after, block = await self.database.read(work)
            if not after:
                return
            yield block

    async def read_last_answer_ids(self, versions: list[tuple[str, str]], since: int | None, last: int) -> list[str]:
        """Read the ids of the `last` answers by the time of their first label in any of these versions."""
        keys = [key for one in versions if (key := await self._key(*one)) is not None]
        return await self.database.read(partial(reading.last_answer_ids, keys, since or 0, last))

    async def read_state(self, model: str, version: str, name: str) -> Any:
        """Read the state that `update_state` stored last, or None."""
        return await self._ask(model, version, lambda key: states.read(key, name), None)

    async def read_maturity_counts(self, model: str, version: str) -> MaturedCounts | None:
        """Count the matured answers of a version with a maturity window; None without a window."""
        key = await self._key(model, version)
        if key is None or self._version(key).maturity is None:
            return None
        return await self.database.read(partial(maturing.counts, key))

    async def ping(self) -> None:
        """Raise StoreError unless rows can be stored now, as far as this shows without storing one."""
        await self.database.ping()

    async def _ask(self, model: str, version: str, question: Callable[[int], Work[T]], none: N) -> T | N:
        """Answer a question about a version by its key. Return `none()` if there is none."""
        key = await self._key(model, version)
        return none if key is None else await self.database.read(partial(question, key))

    async def _key(self, model: str, version: str) -> int | None:
        if (model, version) not in self._known.keys:
            await self._reload()
        return self._known.keys.get((model, version))

    def _version(self, key: int) -> Version:
        return self._known.versions[key]

    async def _reload(self) -> None:
        self._known = await self.database.read(partial(versions.load_versions, self._known))

    async def compact(self) -> None:
        """Merge deltas into the sums of their periods, until few are left. Reads return the same before and after."""
        while (pending := await self.database.read(compaction.read)) is not None:
            after = await asyncio.to_thread(pending.after)
            done = await self.database.write(partial(compaction.write, pending, after), large=True)
            if not done or len(pending.keys) < compaction.MOST:
                return

    async def finish_compacting(self) -> None:
        """Wait for the running compaction, if any."""
        if self._compacting:
            with contextlib.suppress(asyncio.CancelledError):
                await self._compacting

    async def close(self) -> None:
        """Finish the queued work, then close."""
        await self.finish_compacting()
        await self.database.close()

    def _count(self, rows: int) -> None:
        """Count a commit, and start a compaction after enough of them."""
        self._commits, self._rows = self._commits + 1, self._rows + rows
        if (self._commits >= self._compact_commits or self._rows >= COMPACT_ROWS) and self._compacting is None:
            self._commits = self._rows = 0
            self._compacting = asyncio.create_task(self._compact())

    async def _compact(self) -> None:
        try:
            await self.compact()
        except StoreError as error:  # the next compaction takes over the rest
            log.warning("the sums were not compacted: %s", error)
        except Exception:
            log.exception("the sums were not compacted")
        finally:
            self._compacting = None


async def _answer_sums(
    periods: dict[int, PeriodSums], unit: int, kind: int, group: int
) -> AsyncIterator[tuple[int, AnswerSums]]:
    """Yield the sums of one period (192 KB) at a time."""
    for period, period_sums in periods.items():
        stored = period_sums.answer_sums(kind, group).get(group)
        if stored is not None:
            yield start_ms(period, unit), stored
