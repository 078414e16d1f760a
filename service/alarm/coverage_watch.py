"""Watch over the coverage of conformal sets, which takes labels into the evidence and calls webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from service.alarm.coverage import COVERAGE, CoverageState, taking_sets
from service.alarm.coverage_readings import set_coverage
from service.alarm.watch import Deliverable, Key, Watch
from service.alarm.webhooks import UNCOVERED, news
from service.store.rows import LabelBlock, Version


class CoverageWatch(Watch):
    """Watch over the conformal sets of all versions. It starts no recalibration."""

    NAME = COVERAGE
    STARTS_RUNS = False
    READS_LEVELS = False

    async def _progress(self) -> list[tuple[str, str, int, int]]:
        versions = {v.key: v for v in await self._store.read_versions() if v.set_rules}
        self._versions |= versions
        if not versions:
            return []
        return [row for row in await super()._progress() if row[:2] in versions]

    async def _take(self, key: Key) -> Callable[[Any, LabelBlock], Any]:
        return taking_sets((await self._version(key)).set_rules, self._settings)

    async def _advance(self, key: Key, step: Callable[[Any, LabelBlock], Any]) -> Any:
        return await self._store.update_state(*key, self.NAME, step, needs_sets=True)

    def _read(self, key: Key, tree: Any) -> CoverageState:
        return CoverageState.read(tree, self._versions[key].set_rules, self._settings)

    async def _news(self, key: Key, state: Deliverable) -> dict[str, Any]:
        assert isinstance(state, CoverageState)
        version: Version = await self._version(key)
        part = await asyncio.to_thread(set_coverage, state, version.classes)
        first = min(part.fired_levels, key=lambda one: (one.alarm and one.alarm.fired_after) or 0)
        alarm = first.alarm
        fired = state.evidence[part.levels.index(first)].fired
        assert alarm is not None and alarm.fired_at is not None and fired is not None
        numbers = {
            "fired_at": alarm.fired_at.isoformat(),
            "fired_after": alarm.fired_after,
            "log_e": fired.log_e,
            "threshold": alarm.threshold,
            "level": first.level,
            "floor": alarm.floor,
            "coverage": first.coverage,
        }
        return news(*key, COVERAGE, numbers, reading=first.reading, address=self._settings.address, kind=UNCOVERED)
