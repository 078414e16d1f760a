"""Times that callers name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

from trueodds.inputs import table
from trueodds.texts import short

COMPACT_DATES = 19700101, 21001231
"""Dates that are written without dashes; as seconds two weeks of 1970."""


def seconds_of(value: Any) -> float | None:
    """The number that a value is, or that its text is; None where it is neither.

    Raises:
        ValueError: eight digits, which may be a date as well as Unix seconds.
    """
    if type(value) not in (int, float, str):
        return None
    try:
        seconds: float = table.number(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if COMPACT_DATES[0] <= seconds <= COMPACT_DATES[1]:
        raise ValueError(f"{short(value)}, a date or Unix seconds; write a date with dashes: 2026-01-31")
    return seconds


def _told(value: Any) -> Any:
    seconds_of(value)
    return value


Moment = Annotated[datetime, BeforeValidator(_told)]
"""ISO 8601 (UTC without an offset) or Unix time; no date without dashes."""


def unix_ms(time: datetime) -> int:
    """Milliseconds since 1970; a time without an offset is in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
