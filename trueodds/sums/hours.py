"""Whole hours since 1970, UTC: live sums are stored and reports are limited by these times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

Hours = tuple[int | None, int | None]
"""The hours [first, end). None means no limit."""


def hour_of(time_ms: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the hour of each time, which is in Unix milliseconds.

    Examples:
        >>> int(hour_of(3_599_999)), int(hour_of(3_600_000))
        (0, 1)
    """
    return np.asarray(time_ms, np.int64) // HOUR_MS


def minute_of(time_ms: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the minute since 1970 of each time, which is in Unix milliseconds.

    Examples:
        >>> int(minute_of(3_599_999)), int(minute_of(3_600_000))
        (59, 60)
    """
    return np.asarray(time_ms, np.int64) // MINUTE_MS


def within(hour_N: npt.NDArray[np.integer], hours: Hours) -> npt.NDArray[np.bool_]:
    """Return which of N hours lie within [first, end)."""
    first, end = hours
    inside_N: npt.NDArray[np.bool_] = np.ones(len(hour_N), bool)
    if first is not None:
        inside_N &= hour_N >= first
    if end is not None:
        inside_N &= hour_N < end
    return inside_N


def hours_of(since_ms: int | None, until_ms: int | None) -> Hours:
    """Return the whole hours that the times [since, until) touch.

    Examples:
        >>> hours_of(3_599_999, 3_600_001)
        (0, 2)
    """
    first = None if since_ms is None else since_ms // HOUR_MS
    return first, None if until_ms is None else -(-until_ms // HOUR_MS)
