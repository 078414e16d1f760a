"""Hourly housekeeping: remove old predictions and labels that wait in vain, and give frequent tags their own sums."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from service.store.rows import StoreError
from service.store.store import Store
from trueodds.sums.hours import HOUR_MS
from trueodds.texts import plural

SECONDS = 3600.0
"""Pause between two rounds."""

log = logging.getLogger("trueodds")


class Archiving(Protocol):
    """An archive. Its methods raise OSError if it fails; then nothing more is removed."""

    async def run(self, before_ms: int) -> int:
        """Move the answers from before a time to the archive. Return their number."""

    async def keep_labels(self, before_ms: int) -> int:
        """Move the labels that have waited since before a time to the archive. Return their number."""


async def keep_house(
    store: Store,
    retention_days: int | None,
    hold_hours: int,
    *,
    archive: Archiving | None = None,
    no_copy: bool = False,
    seconds: float = SECONDS,
) -> None:
    """Remove old rows and give frequent tags their own sums, every hour until cancelled.

    Args:
        store: The store.
        retention_days: Age at which predictions are removed; None keeps them for ever.
        hold_hours: Time for which a label waits for its prediction.
        archive: Takes the old predictions and labels. If it fails, they stay in the store.
        no_copy: Remove predictions without an archive even if the store has archived before. Otherwise they stay,
            because a missing setting must not lose what others expect in the archive.
        seconds: Pause between two rounds.
    """
    while True:
        now = time.time_ns() // 1_000_000
        before = None if retention_days is None else now - retention_days * 24 * HOUR_MS
        held_before = now - hold_hours * HOUR_MS
        held, keep_held = 0, archive is not None
        try:
            if archive is not None and before is not None:
                await archive.run(before)
                held = await archive.keep_labels(held_before)
            elif archive is None and not no_copy and (state := await store.read_archive()).is_used:
                if before is not None:
                    log.warning(
                        "archive: this store has archived %s, but --archive is not set, so no prediction is removed;"
                        " set --archive, or set it to off to remove predictions without a copy",
                        plural(state.files, "file"),
                    )
                before = None
                keep_held = True
        except (OSError, StoreError) as error:
            log.warning("archive: %s. Old answers and labels stay in the store until it works", error)
            before, keep_held = None, True
        except Exception:  # a fault in the archive or in a library must not end housekeeping
            log.exception("archive: old answers and labels stay in the store until it works")
            before, keep_held = None, True
        try:
            removed = await store.prune(before, None if keep_held else held_before, keep_answers=archive is not None)
        except StoreError as error:
            log.warning("retention: %s", error)
        else:
            held += removed.held
        if held:
            log.warning(
                "removed %d labels that had waited %d hours for predictions that never arrived%s",
                held,
                hold_hours,
                "; the archive has them" if archive else "",
            )
        try:
            await store.admit_tags()
        except StoreError as error:
            log.warning("frequent tags: %s", error)
        await asyncio.sleep(seconds)
