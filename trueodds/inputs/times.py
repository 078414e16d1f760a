"""Times as people write them: ISO 8601, or Unix time, whose size determines its unit. All readers use these rules."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

from trueodds.inputs import table
from trueodds.texts import short

UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Units of Unix time, each with its number per second."""
EARLIEST, LATEST = 10**9, 4_133_980_800
"""Range in seconds, 2001-09-09 to 2101. Times in other units than seconds must lie in it."""
TEN_YEARS = 315_532_800
"""Seconds from 1970 to 1980. If all times are smaller, they may be other numbers, such as a spreadsheet's days."""
COMPACT_DATES = 19700101, 21001231
"""Range of dates that are written without dashes. As seconds they are two weeks of 1970."""
YEARS_MS = (-62_135_596_800_000, 253_370_764_800_000)
"""Unix milliseconds of the beginning of the years 1 and 9999. Some files and databases have other times."""
_LEAP = re.compile(r":?59:?60")
ALLOWED = (
    "ISO 8601 (2026-03-01T09:30, UTC without an offset) or Unix time: seconds until 2100, or milli-, micro- or"
    " nanoseconds from September 2001 until 2100"
)


class Time(NamedTuple):
    """A time in Unix milliseconds, and the unit of the number that stated it; "" for ISO 8601."""

    ms: int
    unit: str = ""


def time_of(value: str | float) -> Time:
    """Parse a time from a text or a number.

    Raises:
        ValueError: It has neither form; or it has eight digits, which may be a date as well as Unix seconds.
    """
    try:
        number = table.number(value) if isinstance(value, str) else value
    except ValueError:
        return Time(_of_iso_8601(str(value)))
    if COMPACT_DATES[0] <= number <= COMPACT_DATES[1]:
        raise ValueError(f"{short(value)}, a date or Unix seconds; write a date with dashes: 2026-01-31")
    unit = unit_of(number)
    if not unit:
        raise ValueError(f"{short(value)}; allowed is {ALLOWED}")
    return Time(round(number * 1000 / UNITS[unit]), unit)


def unit_of(number: float) -> str:
    """Return the unit of a Unix time, by its size; "" if it fits none.

    Examples:
        >>> unit_of(1767225600), unit_of(1767225600000), unit_of(20260131093000)
        ('seconds', 'milliseconds', '')
    """
    if not math.isfinite(number):
        return ""
    if abs(number) < LATEST:
        return "seconds"
    return next((unit for unit, size in UNITS.items() if size > 1 and EARLIEST <= abs(number) / size < LATEST), "")


def note(name: str, unit: str, *, near_1970: bool) -> str:
    """Describe how a column of times is read; "" if there is nothing to note.

    Args:
        name: Name of the column.
        unit: Unit of its numbers; "" for ISO 8601 and timestamps.
        near_1970: Whether all times are less than `TEN_YEARS` from the beginning of 1970.
    """
    if unit == "seconds" and near_1970:
        return (
            f"{name} is read as Unix seconds, and all are between 1960 and 1980. If they are days or running numbers,"
            " give ISO 8601 or Unix time instead."
        )
    return f"{name} is read as Unix {unit}." if unit not in ("", "seconds") else ""


def _of_iso_8601(text: str) -> int:
    try:
        if not text.isascii():
            raise ValueError(text)
        time = datetime.fromisoformat(text)
        ms = round(1000 * (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    except (OverflowError, ValueError):
        cure = ", a leap second as second 59" if _LEAP.search(text) else ""
        raise ValueError(f"{short(text)}; allowed is {ALLOWED}{cure}") from None
    if ms >= YEARS_MS[1]:
        raise ValueError(f"{short(text)}; allowed are the years 1 to 9998")
    return ms
