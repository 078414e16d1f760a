"""Tasks beside the requests: they bring evidence up to date as labels come in, and call webhooks.

Every worker does it, for any of them may die. The store's lock lets one at a time take labels; a webhook is claimed
in the store for some seconds before it is called, so that no other worker calls it meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from service.alarm.evidence import Delivery, Evidence
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
from trueodds.sums.positive import PositiveClass

POLL_SECONDS = 1.0
CLAIM_MS = int(1000 * (SEND_SECONDS + 5))
SKEW_MS = 30_000
"""How far the clocks of two replicas may be apart; a claim of one that died is held against others so much longer."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 600_000
"""Between two tries of a webhook; each is twice as long as the one before."""

log = logging.getLogger("trueodds")

Key = tuple[str, str]
"""Model and version."""


def taking(settings: Settings, positive: PositiveClass | None = None) -> Callable[[Any, LabelBlock], Any]:
    """The step of `store.fold` that takes labels; `positive`: the version's positive class."""

    def step(tree: Any, block: LabelBlock) -> Any:
        if tree is not None and not len(block):
            return tree
        return AlarmState.read(tree, settings).take(block, positive).tree()

    return step


def restarting(settings: Settings) -> Callable[[Any, int], tuple[Any, int] | None]:
    """The step of `Store.void_labels` that has evidence begin anew; damaged evidence stays as it is."""

    def step(tree: Any, first: int) -> tuple[Any, int] | None:
        try:
            state = AlarmState.read(tree, settings).anew(first)
        except StoreError:
            return None
        return None if state is None else (state.tree(), state.start_sequence)

    return step


State = AlarmState | PromiseState


class Watch:
    """`keep_watching` runs until it is cancelled."""

    NAME = ALARM
    """Name of the state that it keeps up to date."""
    STARTS_RUNS = True
    """Whether its news go to webhooks that start a recalibration."""

    def __init__(self, store: Store, settings: Settings, telemetry: Telemetry) -> None:
        self._store, self._settings, self._telemetry = store, settings, telemetry
        self._webhooks = [hook for hook in settings.alarm_webhook if self.STARTS_RUNS or not hook.starts_run]
        for hook in self._webhooks:
            telemetry.webhook(str(hook))
        self._seen: dict[Key, int] = {}
        """Labels taken by the states that this process has seen."""
        self._due: dict[Key, int] = {}
        """When a webhook is to be called again, Unix milliseconds."""
        self._positive: dict[Key, PositiveClass | None] = {}
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
        """Takes the labels that count by now, and calls the webhooks that are due; a failure is logged once."""
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
            except Exception as error:  # a fault here must not end the watch over the others
                if f"{error!r}" not in self._logged:
                    log.exception("alarm of %s/%s", model, version)
                problems.add(f"{error!r}")
        for problem in sorted(problems - self._logged):
            log.warning("%s", problem)
        self._logged = problems

    async def _progress(self) -> list[tuple[str, str, int, int]]:
        """The versions that are watched, their last label, and the last that was taken."""
        await self._store.mature()
        return await self._store.read_progress(self.NAME)

    async def _take(self, key: Key) -> Callable[[Any, LabelBlock], Any]:
        """The step of `store.fold` that takes labels of a version."""
        if key not in self._positive:  # a version never changes
            self._positive |= {v.key: v.positive_class for v in await self._store.read_versions()}
        return taking(self._settings, self._positive.get(key))

    def _read(self, key: Key, tree: Any) -> State:
        """The state of a version that the store gave."""
        return AlarmState.read(tree, self._settings)

    async def _update(self, key: Key, arrived: int, taken: int) -> None:
        if arrived > taken:
            tree = await self._store.update_state(*key, self.NAME, await self._take(key))
        elif self._seen.get(key) != taken:
            tree = await self._store.read_state(*key, self.NAME)
        elif key not in self._due or key in self._sending or _now() < self._due[key]:
            return
        else:
            tree = await self._store.read_state(*key, self.NAME)
        if tree is None:
            return
        state = await asyncio.to_thread(self._read, key, tree)
        self._seen[key] = max(arrived, taken)
        self._due.pop(key, None)
        if self._undelivered(key, state) and key not in self._sending:
            self._sending[key] = task = asyncio.create_task(self._deliver_all(key, state))
            task.add_done_callback(lambda _: self._sending.pop(key, None))

    def _undelivered(self, key: Key, state: State) -> list[Webhook]:
        """Webhooks that have not taken the news of this version's alarm; of a new one, only while it is open."""
        evidence = state.paging
        if is_shadow(key[0]) or evidence is None:
            return []
        return [hook for hook in self._webhooks if _is_undelivered(state.deliveries.get(hook.key), evidence)]

    async def _deliver_all(self, key: Key, state: State) -> None:
        """Calls every webhook whose turn it is, and notes when the next is due."""
        due = []
        for hook in self._undelivered(key, state):
            try:
                due.append(await self._deliver(key, hook))
            except StoreError as error:
                log.warning("alarm of %s/%s: whether %s was told could not be stored: %s", *key, hook, error)
                due.append(_now() + CLAIM_MS)
            except Exception:
                log.exception("alarm of %s/%s: %s was not told", *key, hook)
                due.append(_now() + CLAIM_MS)
        if waiting := [ms for ms in due if ms is not None]:
            self._due[key] = min(waiting)

    async def _deliver(self, key: Key, hook: Webhook) -> int | None:
        """Call a webhook, if no other worker does; when to try again, None if there is no need."""
        token = secrets.token_hex(8)

        def claim(delivery: Delivery) -> Delivery:
            now = _now()
            # A claim or pause longer than any is from a clock that has been put back.
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
            async with asyncio.timeout((mine.claimed_until_ms - _now()) / 1000):  # from then on another worker may call
                await send(hook, await self._news(key, state))
        except TimeoutError:
            problem = f"{hook} was not told within the {CLAIM_MS / 1000:g} s of a try"
        except WebhookError as error:
            problem = str(error)
        self._telemetry.delivery(str(hook), delivered=not problem)
        if problem:
            (log.warning if problem != mine.problem else log.debug)("alarm of %s/%s: %s", *key, problem)

        def settle(delivery: Delivery) -> Delivery:
            if delivery.claimed_by != token:  # it took so long that another has taken over
                return delivery
            now, attempts = _now(), mine.attempts + 1
            if not problem:
                return Delivery(attempts=attempts, delivered_ms=now, fired_ms=mine.fired_ms)
            pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(mine.attempts, 20))
            return Delivery(attempts=attempts, next_ms=now + pause, problem=problem, fired_ms=mine.fired_ms)

        settled = (await self._change(key, hook, settle)).deliveries.get(hook.key)
        if settled is None or settled.delivered_ms is not None:
            return None
        return max(settled.claimed_until_ms, settled.next_ms)

    async def _change(self, key: Key, hook: Webhook, change: Callable[[Delivery], Delivery]) -> State:
        """Change what is stored of a delivery, with all workers taking turns."""
        take = await self._take(key)

        def step(tree: Any, block: LabelBlock) -> Any:
            state = self._read(key, take(tree, block))
            fired = state.paging.fired if state.paging else None
            if fired is None:
                return state.tree()
            before = state.deliveries.get(hook.key, Delivery(fired_ms=fired.at_ms))
            return state.with_delivery(hook.key, change(before)).tree()

        return self._read(key, await self._store.update_state(*key, self.NAME, step))

    async def _news(self, key: Key, state: State) -> dict[str, Any]:
        assert isinstance(state, AlarmState)
        state = state.model_copy(update={"deliveries": {}})  # the same news at every try
        sums = await self._store.read_sums(*key)
        known = {v.key: v for v in await self._store.read_versions()}
        positive = known[key].positive
        alarm = await asyncio.to_thread(alarm_of, state, self._settings, model=key[0], sums=sums, positive=positive)
        test, fired = alarm.refuted_null, state.paging.fired if state.paging else None
        assert fired is not None and test is not None and test.fired_at is not None
        numbers = {
            "fired_at": test.fired_at.isoformat(),
            "fired_after": fired.after,
            "log_e": fired.log_e,
            "threshold": test.threshold,
            "tolerance": test.tolerance,
            "ratio_tolerance": test.ratio_tolerance,
            "ece": ece(sums.labelled),
        }
        return news(*key, test.null, numbers, reading=alarm.reading, address=self._settings.address)


class PromiseWatch(Watch):
    """The same for the promises of versions to act alone. A broken one is not mended by a recalibration."""

    NAME = PROMISE
    STARTS_RUNS = False

    def __init__(self, store: Store, settings: Settings, telemetry: Telemetry) -> None:
        super().__init__(store, settings, telemetry)
        self._promises: dict[Key, ActAlone] = {}
        self._noted = set[Key]()
        """Versions whose evidence knows the audit's share."""

    async def _progress(self) -> list[tuple[str, str, int, int]]:
        versions = await self._store.read_versions()
        self._promises = {v.key: v.act_alone for v in versions if v.act_alone is not None}
        if not self._promises:
            return []
        if self._settings.audit_share:
            await self._note_audit()
        return [row for row in await super()._progress() if row[:2] in self._promises]

    async def _note_audit(self) -> None:
        """Have the evidence know the audit's share before labels come: they may come once the share is another."""
        for key in self._promises.keys() - self._noted:
            try:
                await self._store.update_state(*key, self.NAME, await self._take(key))
            except StoreError:  # damaged evidence; `_update` says so
                continue
            self._noted.add(key)

    async def _take(self, key: Key) -> Callable[[Any, LabelBlock], Any]:
        return taking_promise(self._promises[key], self._settings)

    def _read(self, key: Key, tree: Any) -> State:
        return PromiseState.read(tree, self._promises[key], self._settings)

    async def _news(self, key: Key, state: State) -> dict[str, Any]:
        assert isinstance(state, PromiseState) and state.fired is not None
        answers = (await self._store.read_sums(*key)).answers
        acted = await self._store.count_acted(*key)
        part = await asyncio.to_thread(acting_alone, state, self._settings, answers=answers, acted=acted)
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
        return news(*key, PROMISE, numbers, type_=BROKEN, **beside)


def restarts(settings: Settings) -> dict[str, Callable[[Any, int], tuple[Any, int] | None]]:
    """Return the functions that restart evidence whose labels were voided, by the names of the states."""
    return {ALARM: restarting(settings), PROMISE: restarting_promise}


async def update_evidence(store: Store, version: Version, settings: Settings) -> None:
    """Take the labels that are there into the evidence about a version, and about its promise if it has one."""
    key = version.key
    await store.update_state(*key, ALARM, taking(settings, version.positive_class))
    if (promise := version.act_alone) is not None:
        await store.update_state(*key, PROMISE, taking_promise(promise, settings))


def _is_undelivered(known: Delivery | None, evidence: Evidence | PromiseState) -> bool:
    return evidence.acknowledged is None if known is None else known.delivered_ms is None


def _now() -> int:
    return time.time_ns() // 1_000_000
