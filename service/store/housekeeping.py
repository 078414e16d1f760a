"""Hourly housekeeping: remove old predictions and labels that wait in vain, and give frequent tags their own sums."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from service.store.rows import StoreError
from service.store.store import Store
from trueodds.sums.hours import HOUR_MS

SECONDS = 3600.0
"""Pause between two rounds."""

log = logging.getLogger("trueodds")


Archiving = Callable[[int], Awaitable[object]]
"""Function that moves the answers from before a time to the archive. It raises OSError if the archive fails."""


async def keep_house(
    store: Store,
    retention_days: int | None,
    hold_hours: int,
    *,
    archive: Archiving | None = None,
    seconds: float = SECONDS,
) -> None:
    """Remove old rows and give frequent tags their own sums, every hour until cancelled.

    Args:
        store: The store.
        retention_days: Age at which predictions are removed; None keeps them for ever.
        hold_hours: Time for which a label waits for its prediction.
        archive: Takes the old predictions. If it fails, they stay in the store.
        seconds: Pause between two rounds.
    """
    while True:
        now = time.time_ns() // 1_000_000
        before = None if retention_days is None else now - retention_days * 24 * HOUR_MS
        if archive is not None and before is not None:
            try:
                await archive(before)
            except (OSError, StoreError) as error:
                log.warning("archive: %s. Old answers stay in the store until it works", error)
                before = None
        try:
            removed = await store.prune(before, now - hold_hours * HOUR_MS, keep_answers=archive is not None)
        except StoreError as error:
            log.warning("retention: %s", error)
        else:
            if removed.held:
                log.warning(
                    "removed %d labels that had waited %d hours for predictions that never arrived",
                    removed.held,
                    hold_hours,
                )
        try:
            await store.admit_tags()
        except StoreError as error:
            log.warning("frequent tags: %s", error)
        await asyncio.sleep(seconds)
