"""Background tasks that bring the evidence up to date as labels arrive, and call webhooks.

Every worker runs them, because any worker may die. The store's lock lets one worker at a time take labels. A worker
claims a webhook in the store for some seconds before it calls it, so that no other worker calls it meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from service.alarm.coverage import COVERAGE, CoverageState, restarting_sets, taking_sets
from service.alarm.evidence import Delivery
from service.alarm.groups import GROUPS, GroupState, restarting_groups, taking_groups
from service.alarm.promise import PROMISE, PromiseState, restarting_promise, taking_promise
from service.alarm.promise_readings import acting_alone
from service.alarm.readings import alarm_of
from service.alarm.state import ALARM, AlarmState
from service.alarm.webhooks import BROKEN, SEND_SECONDS, WebhookError, news, send
from service.settings import Settings, Webhook
from service.store import Store, StoreError
from service.store.rows import LabelBlock, Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle import ActAlone
from trueodds.bundle.contents import is_shadow
from trueodds.metrics import ece

POLL_SECONDS = 1.0
CLAIM_MS = int(1000 * (SEND_SECONDS + 5))
SKEW_MS = 30_000
"""Largest difference between the clocks of two replicas. A dead worker's claim holds this much longer for others."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 600_000
"""First and longest pause between two attempts at a webhook. Each pause is twice as long as the one before."""
RECORD_MS = 500
"""Pause before a call is recorded again where the store has failed."""

log = logging.getLogger("trueodds")

Key = tuple[str, str]
"""Model and version."""


def taking(settings: Settings, version: Version | None = None) -> Callable[[Any, LabelBlock], Any]:
    """Return the step of `Store.update_state` that takes labels of a version."""
    positive = None if version is None else version.positive_class
    levels = None if version is None or version.watched_levels is None else len(version.watched_levels)

    def step(tree: Any, block: LabelBlock) -> Any:
        if tree is not None and not len(block):
            return tree
        return AlarmState.read(tree, settings).take(block, positive, levels).tree()

    return step


def needs_levels(settings: Settings, version: Version) -> Callable[[Any], bool] | None:
    """Return the function of `Store.update_state` that tells whether a state needs the levels of its labels."""
    if version.watched_levels is None:
        return None
    return lambda tree: settings.alarm_levels if tree is None else bool(dict(tree).get("watches_levels"))


def restarting(settings: Settings) -> Callable[[Any, int], tuple[Any, int] | None]:
    """Return the step of `Store.void_labels` that restarts evidence. Damaged evidence stays as it is."""

    def step(tree: Any, first: int) -> tuple[Any, int] | None:
        try:
            state = AlarmState.read(tree, settings).anew(first)
        except StoreError:
            return None
        return None if state is None else (state.tree(), state.start_sequence)

    return step


WatchedState = AlarmState | PromiseState | CoverageState | GroupState


class Paging(Protocol):
    """Finding that webhooks are told about."""

    @property
    def acknowledged(self) -> object:
        """None as long as nobody has taken care of it."""


class Deliverable(Protocol):
    """State with a finding, if there is one, and its deliveries by webhook."""

    @property
    def paging(self) -> Paging | None: ...

    @property
    def deliveries(self) -> Mapping[str, Delivery]: ...


class Watch:
    """Watch over the alarms of all versions. `keep_watching` runs until it is cancelled."""

    NAME = ALARM
    """Name of the state in the store."""
    STARTS_RUNS = True
    """Whether its messages also go to webhooks that start a recalibration."""
    READS_LEVELS = True
    """Whether its states may be about levels."""

    def __init__(self, store: Store, settings: Settings, telemetry: Telemetry) -> None:
        self._store, self._settings, self._telemetry = store, settings, telemetry
        self._webhooks = [hook for hook in settings.alarm_webhook if self.STARTS_RUNS or not hook.starts_run]
        for hook in self._webhooks:
            telemetry.webhook(str(hook))
        self._seen: dict[Key, int] = {}
        """Sequence number of the last label in each version's state, as this process last saw it."""
        self._due: dict[Key, int] = {}
        """Times of the next calls of webhooks, in Unix milliseconds."""
        self._versions: dict[Key, Version] = {}
        self._logged: set[str] = set()
        self._sending: dict[Key, asyncio.Task[None]] = {}

    async def keep_watching(self) -> None:
        try:
            while True:
                await self.poll()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in self._sending.values():
                task.cancel()
            await asyncio.gather(*self._sending.values(), return_exceptions=True)

    async def poll(self) -> None:
        """Take the new labels and call the webhooks that are due. A failure is logged once."""
        problems: set[str] = set()
        try:
            behind = await self._progress()
        except StoreError as error:
            problems.add(f"{self.NAME}: {error}")
            behind = []
        for model, version, arrived, taken in behind:
            try:
                await self._update((model, version), arrived, taken)
            except StoreError as error:
                problems.add(f"{self.NAME} of {model}/{version}: {error}")
            except Exception as error:  # a fault in one alarm must not end the watch over the others
                if f"{error!r}" not in self._logged:
                    log.exception("alarm of %s/%s", model, version)
                problems.add(f"{error!r}")
        for problem in sorted(problems - self._logged):
            log.warning("%s", problem)
        self._logged = problems

    async def _progress(self) -> list[tuple[str, str, int, int]]:
        """Return the watched versions with their last label, and the last label that was taken."""
        await self._store.mature()
        return await self._store.read_progress(self.NAME)

    async def _take(self, key: Key) -> Callable[[Any, LabelBlock], Any]:
        """Return the step of `Store.update_state` that takes labels of a version."""
        return taking(self._settings, await self._version(key))

    async def _version(self, key: Key) -> Version:
        if key not in self._versions:  # what the alarm needs of a version never changes
            self._versions |= {v.key: v for v in await self._store.read_versions()}
        return self._versions[key]

    async def _advance(self, key: Key, step: Callable[[Any, LabelBlock], Any]) -> Any:
        """Return the state of a version after all labels, as a tree."""
        needs = needs_levels(self._settings, await self._version(key)) if self.READS_LEVELS else None
        return await self._store.update_state(*key, self.NAME, step, needs_levels=needs)

    def _read(self, key: Key, tree: Any) -> WatchedState:
        """Read the state of a version from the store's tree."""
        return AlarmState.read(tree, self._settings)

    async def _update(self, key: Key, last_label: int, last_taken: int) -> None:
        if last_label > last_taken:
            tree = await self._advance(key, await self._take(key))
        elif self._seen.get(key) != last_taken:
            tree = await self._store.read_state(*key, self.NAME)
        elif not self._is_due(key):
            return
        else:
            tree = await self._store.read_state(*key, self.NAME)
        if tree is None:
            return
        state = await asyncio.to_thread(self._read, key, tree)
        self._seen[key] = max(last_label, last_taken)
        self._due.pop(key, None)
        self._begin(key, state)

    def _is_due(self, key: Key) -> bool:
        """Return whether a call of a webhook is due for a version, and none is going on."""
        return key in self._due and key not in self._sending and _now() >= self._due[key]

    def _begin(self, key: Key, state: Deliverable) -> None:
        """Begin to call the webhooks that are due, unless this is going on."""
        if self._undelivered_hooks(key, state) and key not in self._sending:
            self._sending[key] = task = asyncio.create_task(self._deliver_all(key, state))
            task.add_done_callback(lambda _: self._sending.pop(key, None))

    def _undelivered_hooks(self, key: Key, state: Deliverable) -> list[Webhook]:
        """Return the webhooks without this alarm's message. After an acknowledgement no new delivery begins."""
        evidence = state.paging
        if is_shadow(key[0]) or evidence is None:
            return []
        return [hook for hook in self._webhooks if _awaits_delivery(state.deliveries.get(hook.key), evidence)]

    async def _deliver_all(self, key: Key, state: Deliverable) -> None:
        """Call every webhook that is due, and set the time of the next call."""
        due = []
        for hook in self._undelivered_hooks(key, state):
            try:
                due.append(await self._deliver(key, hook))
            except StoreError as error:
                log.warning("alarm of %s/%s: the delivery to %s could not be recorded: %s", *key, hook, error)
                due.append(_now() + CLAIM_MS)
            except Exception:
                log.exception("alarm of %s/%s: the message to %s was not delivered", *key, hook)
                due.append(_now() + CLAIM_MS)
        if waiting := [ms for ms in due if ms is not None]:
            self._due[key] = min(waiting)

    async def _deliver(self, key: Key, hook: Webhook) -> int | None:
        """Call a webhook unless another worker does. Return the time of the next attempt, or None if none is needed."""
        token = secrets.token_hex(8)

        def claim(delivery: Delivery) -> Delivery:
            now = _now()
            # A claim or pause longer than the longest possible one comes from a clock that was set back.
            claimed = now - SKEW_MS < delivery.claimed_until_ms <= now + CLAIM_MS + SKEW_MS
            resting = now < delivery.next_ms <= now + LONGEST_PAUSE_MS + SKEW_MS
            if delivery.delivered_ms is not None or claimed or resting:
                return delivery
            return delivery.model_copy(update={"claimed_by": token, "claimed_until_ms": now + CLAIM_MS})

        state = await self._change(key, hook, claim)
        mine = state.deliveries.get(hook.key)
        if mine is None or state.paging is None:  # the labels that fired it were voided
            return None
        if mine.delivered_ms is not None:
            return None
        if mine.claimed_by != token:
            return max(mine.claimed_until_ms, mine.next_ms)
        problem = ""
        try:
            async with asyncio.timeout((mine.claimed_until_ms - _now()) / 1000):  # after this, another worker may call
                await send(hook, await self._news(key, state))
        except TimeoutError:
            problem = f"{hook} did not accept the message within {CLAIM_MS / 1000:g} s"
        except WebhookError as error:
            problem = str(error)
        self._telemetry.delivery(str(hook), is_delivered=not problem)
        if problem:
            (log.warning if problem != mine.problem else log.debug)("alarm of %s/%s: %s", *key, problem)

        is_late = False

        def settle(delivery: Delivery) -> Delivery:
            nonlocal is_late
            is_late = delivery.claimed_by != token  # it took so long that another worker has taken over
            if is_late:
                return delivery
            now, attempts = _now(), mine.attempts + 1
            if not problem:
                return Delivery(attempts=attempts, delivered_ms=now, fired_ms=mine.fired_ms)
            pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(mine.attempts, 20))
            return Delivery(attempts=attempts, next_ms=now + pause, problem=problem, fired_ms=mine.fired_ms)

        settled = (await self._record(key, hook, settle, mine.claimed_until_ms)).deliveries.get(hook.key)
        if is_late:
            log.warning(
                "alarm of %s/%s: the claim on %s ended before the call was recorded: it may be repeated", *key, hook
            )
        if settled is None or settled.delivered_ms is not None:
            return None
        return max(settled.claimed_until_ms, settled.next_ms)

    async def _record(
        self, key: Key, hook: Webhook, settle: Callable[[Delivery], Delivery], until_ms: int
    ) -> Deliverable:
        """Record the result of a call. A store that fails is tried again until the claim ends.

        Without the record the webhook would be called again.
        """
        while True:
            try:
                return await self._change(key, hook, settle)
            except StoreError:
                if _now() + RECORD_MS > until_ms:
                    raise
            await asyncio.sleep(RECORD_MS / 1000)

    async def _change(self, key: Key, hook: Webhook, change: Callable[[Delivery], Delivery]) -> Deliverable:
        """Change the stored delivery. The store lets workers do this one at a time."""
        take = await self._take(key)

        def step(tree: Any, block: LabelBlock) -> Any:
            state = self._read(key, take(tree, block))
            fired = state.paging.fired if state.paging else None
            if fired is None:
                return state.tree()
            before = state.deliveries.get(hook.key, Delivery(fired_ms=fired.at_ms))
            return state.with_delivery(hook.key, change(before)).tree()

        return self._read(key, await self._advance(key, step))

    async def _news(self, key: Key, state: Deliverable) -> dict[str, Any]:
        assert isinstance(state, AlarmState)
        state = state.model_copy(update={"deliveries": {}})  # every attempt must send the same message
        sums = await self._store.read_sums(*key)
        version = await self._version(key)
        alarm = await asyncio.to_thread(
            alarm_of,
            state,
            self._settings,
            model=key[0],
            sums=sums,
            positive=version.positive,
            levels=version.watched_levels,
        )
        test, fired = alarm.refuted_null, state.paging.fired if state.paging else None
        assert fired is not None and test is not None and test.fired_at is not None
        numbers = {
            "fired_at": test.fired_at.isoformat(),
            "fired_after": fired.after,
            "log_e": fired.log_e,
            "threshold": test.threshold,
            "tolerance": test.tolerance,
            "ratio_tolerance": test.ratio_tolerance,
            "level": test.level,
            "ece": ece(sums.labelled),
        }
        return news(*key, test.null, numbers, reading=alarm.reading, address=self._settings.address)


class PromiseWatch(Watch):
    """Watch over the promises to act alone. Recalibration does not repair a broken promise, so it starts no run."""

    NAME = PROMISE
    STARTS_RUNS = False
    READS_LEVELS = False

    def __init__(self, store: Store, settings: Settings, telemetry: Telemetry) -> None:
        super().__init__(store, settings, telemetry)
        self._promises: dict[Key, ActAlone] = {}
        self._noted = set[Key]()
        """Versions whose evidence has recorded the audit share."""

    async def _progress(self) -> list[tuple[str, str, int, int]]:
        versions = await self._store.read_versions()
        self._promises = {v.key: v.act_alone for v in versions if v.act_alone is not None}
        if not self._promises:
            return []
        if self._settings.audit_share:
            await self._note_audit()
        return [row for row in await super()._progress() if row[:2] in self._promises]

    async def _note_audit(self) -> None:
        """Record the audit share in the evidence before labels arrive, because the share may change until then."""
        for key in self._promises.keys() - self._noted:
            try:
                await self._store.update_state(*key, self.NAME, await self._take(key))
            except StoreError:  # damaged evidence, which `_update` reports
                continue
            self._noted.add(key)

    async def _take(self, key: Key) -> Callable[[Any, LabelBlock], Any]:
        return taking_promise(self._promises[key], self._settings)

    def _read(self, key: Key, tree: Any) -> WatchedState:
        return PromiseState.read(tree, self._promises[key], self._settings)

    async def _news(self, key: Key, state: Deliverable) -> dict[str, Any]:
        assert isinstance(state, PromiseState) and state.fired is not None
        answers = (await self._store.read_sums(*key)).answers
        acted = await self._store.count_acting_answers(*key)
        part = await asyncio.to_thread(acting_alone, state, self._settings, answers=answers, acted_count=acted)
        assert part.alarm.fired_at is not None
        numbers = {
            "fired_at": part.alarm.fired_at.isoformat(),
            "fired_after": state.fired.after,
            "log_e": state.fired.log_e,
            "threshold": part.alarm.threshold,
            "promised_risk": part.promised_risk,
            "risk": part.risk,
        }
        beside = {"reading": part.reading, "address": self._settings.address}
        return news(*key, PROMISE, numbers, kind=BROKEN, **beside)


def restarts(settings: Settings) -> dict[str, Callable[[Any, int], tuple[Any, int] | None]]:
    """Return the functions that restart evidence whose labels were voided, by state name."""
    return {
        ALARM: restarting(settings),
        PROMISE: restarting_promise,
        COVERAGE: restarting_sets,
        GROUPS: restarting_groups,
    }


async def update_evidence(store: Store, version: Version, settings: Settings) -> None:
    """Take the stored labels into the evidence about a version and its groups, and about its promise and sets."""
    key = version.key
    needs = needs_levels(settings, version)
    await store.update_state(*key, ALARM, taking(settings, version), needs_levels=needs)
    await store.update_state(*key, GROUPS, taking_groups(len(version.classes), settings))
    if (promise := version.act_alone) is not None:
        await store.update_state(*key, PROMISE, taking_promise(promise, settings))
    if version.set_rules:
        await store.update_state(*key, COVERAGE, taking_sets(version.set_rules, settings), needs_sets=True)


def _awaits_delivery(delivery: Delivery | None, evidence: Paging) -> bool:
    return evidence.acknowledged is None if delivery is None else delivery.delivered_ms is None


def _now() -> int:
    return time.time_ns() // 1_000_000
