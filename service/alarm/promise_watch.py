"""The watch over promises to act alone, beside the requests, and what becomes of it where labels are voided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from service.alarm.promise import PROMISE, PromiseState, restarting_promise, taking_promise
from service.alarm.promise_readings import acting_alone
from service.alarm.state import ALARM
from service.alarm.watch import Key, State, Watch, restarting
from service.alarm.webhooks import BROKEN, news
from service.settings import Settings
from service.store import Store, StoreError
from service.store.rows import LabelBlock, Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle import ActAlone


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
        self._promises = {(v.model, v.version): v.act_alone for v in versions if v.act_alone is not None}
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


async def update_promise(store: Store, version: Version, settings: Settings) -> None:
    """Take the labels that are there into the evidence about a version's promise, if it has one."""
    if (promise := version.act_alone) is not None:
        await store.update_state(version.model, version.version, PROMISE, taking_promise(promise, settings))
