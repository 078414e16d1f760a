"""Every hour: retention of old predictions and of labels whose prediction never came, and places of frequent tags."""

from __future__ import annotations

import asyncio
import logging
import time

from service.store.rows import StoreError
from service.store.store import Store
from trueodds.sums.hours import HOUR_MS

SECONDS = 3600.0
"""From one round to the next."""

log = logging.getLogger("trueodds")


async def keep_house(store: Store, retention_days: int | None, hold_hours: int, *, seconds: float = SECONDS) -> None:
    """Remove what is too old, and keep frequent tags apart, every hour, until cancelled.

    `retention_days` None: predictions stay for ever.
    """
    while True:
        now = time.time_ns() // 1_000_000
        before = None if retention_days is None else now - retention_days * 24 * HOUR_MS
        try:
            removed = await store.prune(before, now - hold_hours * HOUR_MS)
        except StoreError as error:
            log.warning("retention: %s", error)
        else:
            if removed.held:
                log.warning(
                    "%d labels were held %d hours for predictions that never came; they are gone",
                    removed.held,
                    hold_hours,
                )
        try:
            await store.admit_tags()
        except StoreError as error:
            log.warning("frequent tags: %s", error)
        await asyncio.sleep(seconds)
