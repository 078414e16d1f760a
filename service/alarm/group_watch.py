"""Watch over tags and predicted classes, which takes labels into the evidence and calls webhooks where this is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from service.alarm.group_readings import group_alarms, name_of
from service.alarm.groups import GROUPS, GroupState, taking_groups
from service.alarm.watch import Deliverable, Key, Watch
from service.alarm.webhooks import GROUP, news
from service.http.parameters import moment_of
from service.settings import Settings
from service.store import Store
from service.store.rows import LabelBlock
from service.telemetry.metrics import Telemetry


class GroupWatch(Watch):
    """Watch over the groups of all versions. It starts no recalibration."""

    NAME = GROUPS
    STARTS_RUNS = False
    READS_LEVELS = False

    def __init__(self, store: Store, settings: Settings, telemetry: Telemetry) -> None:
        super().__init__(store, settings, telemetry)
        if not settings.alarm_groups:
            self._webhooks = []

    async def _take(self, key: Key) -> Callable[[Any, LabelBlock], Any]:
        return taking_groups(len((await self._version(key)).classes), self._settings)

    def _read(self, key: Key, tree: Any) -> GroupState:
        return GroupState.read(tree, len(self._versions[key].classes), self._settings)

    async def _update(self, key: Key, last_label: int, last_taken: int) -> None:
        await self._version(key)
        await super()._update(key, last_label, last_taken)

    async def _news(self, key: Key, state: Deliverable) -> dict[str, Any]:
        assert isinstance(state, GroupState) and state.paging is not None
        mark, version = state.paging, await self._version(key)
        part = await asyncio.to_thread(group_alarms, state, version.classes)
        group = name_of(mark, version.classes)
        evidence = next(one for one in part.groups if (one.about, one.name) == (mark.about, group))
        numbers = {
            "about": mark.about,
            "group": group,
            "fired_at": moment_of(mark.fired.at_ms).isoformat(),
            "fired_after": mark.fired.after,
            "threshold": evidence.threshold,
            "tolerance": state.tolerance,
            "marked_for_good": [
                {"about": one.about, "group": one.name} for one in part.groups if one.ever_marked_at is not None
            ],
        }
        return news(*key, GROUPS, numbers, reading=part.reading, address=self._settings.address, kind=GROUP)
